// What MLX did to a folder's weights: the "quantization" of config.json, and the
// scales and biases beside each weight.
#pragma once

#include <optional>

#include "formats/model_file.h"
#include "quant/weight.h"

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
    enum class Mode : std::uint8_t { affine, mxfp4, mxfp8, nvfp4 };
    struct Parameters {
        Mode mode = Mode::affine;
        std::int64_t bits = 0, group = 0;
        bool operator==(const Parameters&) const = default;
    };
    using Json = nlohmann::ordered_json;
    static std::string describe(const Parameters& p);
    static Parameters defaults(Mode mode);
    // A dictionary's values, the mode's defaults for those it leaves out.
    Parameters read(const Json& block, const std::string& where) const;
    Parameters infer(const Tensor& weight, const Tensor& scales, std::int64_t cols) const;
    void check(const Parameters& p, const std::string& where) const;

    const ModelFile* file_ = nullptr;
    const Json* block_ = nullptr;  // null: the folder is not quantised
    Parameters top_;
};

}  // namespace forge
