// llama.cpp's Metal kernels. Nothing of theirs is here: their folder is an argument, and argument structures
// and macros are read from it.
#pragma once

#include "foreign/arguments.h"
#include "foreign/blocks.h"
#include "foreign/harness.h"

namespace metal_emu::foreign {

struct Llama {
    Harness& h;
    const Header& header;

    Arguments arguments(const std::string& name) const { return {header, "ggml_metal_kargs_" + name}; }
    long macro(const std::string& name) const { return header.macro(name); }
};

void llama_rows(const Llama& l);        // norms, rope, softmax, rows of a table, activations
void llama_products(const Llama& l);    // matvec, matrix products, experts
void llama_attention(const Llama& l);
void llama_tensor_products(const Llama& l);   // Metal 4: read the files with GGML_METAL_HAS_TENSOR

}  // namespace metal_emu::foreign
