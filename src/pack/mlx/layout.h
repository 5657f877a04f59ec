// The tensors of an MLX folder, made of a Hugging Face folder's: names, stacked
// experts, shifted norms. No data is touched.
#pragma once

#include <string>
#include <vector>

#include "formats/model_file.h"
#include "model/spec.h"

namespace forge::mlx {

// Rows of a tensor; a vector is one row.
struct RowSpan {
    const Tensor* tensor;
    std::int64_t first, count;
};

struct OutTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<RowSpan> rows;   // one after the other
    bool plus_one = false;       // stored as 1 + w, rounded to the source's type
    bool keep_type = false;      // not cast with the others
    bool module = false;         // a linear layer or embedding, which may be quantised
    bool experts = false;        // matrices of several experts
    std::string path() const;    // of the module: the name without ".weight"
};

struct Layout {
    std::vector<OutTensor> tensors;
    bool nested = false;         // names start with language_model., config keys are in text_config
    bool tied = false;           // there is no head tensor
};

// `spec` is read_spec(file): the folder is known to be complete and of a known family.
Layout layout_of(const ModelFile& file, const ModelSpec& spec);

}  // namespace forge::mlx
