// Typed key-value metadata of a model file (GGUF's header; other formats keep JSON).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace forge {

using MetaValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string,
                               std::vector<bool>, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>>;

// Getters convert between integer widths and signs when the value fits and
// throw Error naming the key, the wanted and the found type otherwise.
class Metadata {
  public:
    std::string source;  // file name, for messages

    void set(std::string key, MetaValue value) { values_[std::move(key)] = std::move(value); }
    bool has(std::string_view key) const { return find(key) != nullptr; }
    const MetaValue* find(std::string_view key) const;

    std::int64_t integer(std::string_view key) const;  // error when absent
    std::int64_t integer(std::string_view key, std::int64_t absent) const;
    double number(std::string_view key, double absent) const;
    bool boolean(std::string_view key, bool absent) const;
    const std::string& string(std::string_view key) const;  // error when absent
    std::string string(std::string_view key, std::string_view absent) const;
    // A scalar or an array: `count` copies of the scalar, or the array (its length must be count).
    std::vector<std::int64_t> integers(std::string_view key, std::size_t count, std::int64_t absent) const;
    const std::vector<std::string>* strings(std::string_view key) const;  // nullptr when absent
    const std::vector<std::int64_t>* integer_array(std::string_view key) const;
    const std::vector<double>* number_array(std::string_view key) const;
    const std::vector<bool>* boolean_array(std::string_view key) const;

    const std::map<std::string, MetaValue, std::less<>>& all() const { return values_; }

  private:
    std::map<std::string, MetaValue, std::less<>> values_;
};

}  // namespace forge
