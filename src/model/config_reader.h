// Reading config.json: typed getters whose errors name the key and the file.
// A key that is absent and a key that is null are told apart only by stated():
// Hugging Face gives them different meanings (sliding_window).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace forge {

// What a count may be; larger values are refused before anything is allocated.
struct Range {
    std::int64_t low, high;
};
constexpr Range layer_range{1, 4096};
constexpr Range width_range{1, 1 << 20};     // hidden, feed-forward
constexpr Range expert_range{0, 1 << 12};   // 0: none
constexpr Range head_range{1, 1 << 12};      // heads
constexpr Range head_dim_range{2, 1 << 12};
constexpr Range vocab_range{1, 1 << 24};
constexpr Range length_range{1, 1 << 30};    // contexts, windows

class ConfigReader {
  public:
    using Json = nlohmann::ordered_json;

    // `where` names the object in messages: "models/x/config.json", "... text_config".
    ConfigReader(const Json& object, std::string where);

    const std::string& where() const { return where_; }
    const Json& json() const { return *object_; }
    bool stated(std::string_view key) const;         // present, even when null
    const Json* find(std::string_view key) const;    // nullptr when absent or null

    // nullopt when absent or null; another type is an error.
    std::optional<double> number(std::string_view key) const;
    std::optional<bool> boolean(std::string_view key) const;
    std::optional<std::string> text(std::string_view key) const;
    std::optional<int> count(std::string_view key, Range range) const;
    // The object under `key` as a reader of its own; nullopt when absent or null.
    std::optional<ConfigReader> object(std::string_view key) const;

    [[noreturn]] void missing(std::string_view key) const;
    // A feature that Forge does not implement: "<where>: '<key>' is <value>: <why>".
    [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

  private:
    [[noreturn]] void wrong(std::string_view key, std::string_view wanted) const;
    const Json* object_;
    std::string where_;
};

}  // namespace forge
