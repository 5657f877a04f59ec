// What MLX did to a folder's weights: the "quantization" of config.json, and the
// scales and biases beside each weight.
#pragma once

#include <optional>

#include "formats/model_file.h"
#include "quant/mlx_format.h"

namespace forge {

// The planes of one quantised tensor; rows of all have the order of the weight's.
struct QuantisedTensor {
    WeightFormat format;
    const Tensor* scales = nullptr;
    const Tensor* biases = nullptr;        // affine only
    const Tensor* global_scale = nullptr;  // nvfp4: one number, or one an expert

    // What multiplies every element of an expert's matrix (expert 0 of unstacked ones).
    float scale_of(std::int64_t expert) const;
};

class MlxQuantisation {
  public:
    // Reads the block's own values; Error when they are none that MLX has.
    explicit MlxQuantisation(const ModelFile& file);

    // How NAME.weight, a matrix (or stacked matrices) of `cols` numbers a row, is stored;
    // nullopt: as plain numbers. Config and tensors that contradict each other are an Error.
    std::optional<QuantisedTensor> of(const Tensor& weight, std::int64_t cols) const;

  private:
    using Json = nlohmann::ordered_json;
    // A dictionary's values, the mode's defaults for those it leaves out.
    MlxFormat read(const Json& block, const std::string& where) const;
    MlxFormat infer(const Tensor& weight, const Tensor& scales, std::int64_t cols) const;
    void check(const MlxFormat& p, const std::string& where) const;

    const ModelFile* file_ = nullptr;
    const Json* block_ = nullptr;  // null: the folder is not quantised
    MlxFormat top_;
};

}  // namespace forge
