// Which module gets which format.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/spec.h"
#include "pack/mlx_encode.h"

namespace forge::mlx {

// What one module becomes, and how config.json says so.
struct Choice {
    std::optional<MlxFormat> format;  // nullopt: plain numbers
    enum class Entry : std::uint8_t { none, parameters, parameters_without_mode, denied } entry = Entry::none;
};

class Recipe {
  public:
    // `recipes` as in QuantizeOptions. Error names the text that is no recipe.
    explicit Recipe(const std::vector<std::string>& recipes);

    // The folder's own format.
    const MlxFormat& base() const { return base_; }
    // The module at `path`, whose rows have `cols` numbers. Patterns may also name it by `alias`, its own file's name.
    Choice choose(const std::string& path, std::int64_t cols, const ModelSpec& spec, const std::string& alias = {}) const;

  private:
    MlxFormat base_;
    bool plain_ = false;        // nothing but what patterns name is quantised
    int high_bits_ = 0;         // mixed recipes: of the wider modules; 0 = not mixed
    std::vector<std::pair<std::string, std::optional<MlxFormat>>> overrides_;
};

}  // namespace forge::mlx
