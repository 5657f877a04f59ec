// Any bytes are a GGUF model or an Error; every byte of every tensor can be
// read, and every block can be decoded.
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "formats/model_file.h"
#include "quant/gguf_blocks.h"

namespace {

using namespace forge;

std::uint32_t type_id(const Tensor& tensor) { return static_cast<std::uint32_t>(tensor.block); }

void read_tensor(const Tensor& tensor) {
    unsigned sum = 0;
    for (std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
    [[maybe_unused]] static volatile unsigned sink;
    sink = sum;
    const auto block = gguf_block_size(type_id(tensor));
    if (!block || tensor.describe().empty()) std::abort();
    const std::int64_t row_bytes = tensor.cols() / block->elements * block->bytes;
    if (row_bytes * tensor.rows() != static_cast<std::int64_t>(tensor.data.size())) std::abort();
    if (!gguf_decodable(type_id(tensor))) return;
    std::vector<float> row(static_cast<std::size_t>(tensor.cols()));
    decode_gguf_row(tensor.block, tensor.data.data() + (tensor.rows() - 1) * row_bytes, tensor.cols(),
                    row.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ModelFile model;
    try {
        parse_gguf(std::as_bytes(std::span(data, size)), "fuzz", model);
    } catch (const Error&) {
        return 0;
    }
    for (const Tensor& tensor : model.tensors) {
        read_tensor(tensor);
        if (model.find(tensor.name) != &tensor) std::abort();
    }
    for (const auto& [key, value] : model.metadata.all()) {
        try {
            model.metadata.integers(key, 4, 0);
        } catch (const Error&) {
        }
    }
    return 0;
}
