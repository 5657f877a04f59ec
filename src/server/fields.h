// Reading the fields of a request: each error names the field and what was found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace forge::server {

using Json = nlohmann::ordered_json;

// An answer that is an error: HTTP status, the field that is wrong (or empty), a sentence.
class ApiError : public Error {
  public:
    ApiError(int status, std::string field, const std::string& message, std::string code = {})
        : Error(status == 404 ? ErrorKind::not_found : ErrorKind::invalid_input, message), status_(status), field_(std::move(field)), code_(std::move(code)) {}
    int status() const { return status_; }
    const std::string& field() const { return field_; }
    const std::string& code() const { return code_; }   // a word for programs, or empty
    int retry_after = 0;                                // seconds; 0: not said

  private:
    int status_;
    std::string field_, code_;
};

template <typename... Args>
[[noreturn]] void bad_field(const std::string& field, fmt::format_string<Args...> format, Args&&... args) {
    throw ApiError(400, field, fmt::format(format, std::forward<Args>(args)...));
}

// The body as a JSON object: UTF-8 and depth checked. ApiError 400 otherwise.
Json parse_object(std::string_view body);

// One object of a request. A field that is null counts as absent. finish() refuses fields that nobody asked for.
class Fields {
  public:
    explicit Fields(const Json& object, std::string path = {});

    bool has(const char* name) { return find(name) != nullptr; }
    const Json* find(const char* name);                      // null when absent
    std::optional<std::string> text(const char* name);
    std::optional<bool> flag(const char* name);
    std::optional<double> number(const char* name, double least, double most);
    std::optional<std::int64_t> whole(const char* name, std::int64_t least, std::int64_t most);
    std::vector<std::string> texts(const char* name, std::size_t most);   // a text or a list of texts
    const Json* object(const char* name);
    const Json* list(const char* name);

    // Fields that do not change what is answered: they are not looked at.
    void ignore(std::initializer_list<const char*> names);
    // Fields that would change it and that are not implemented: an error unless absent or `harmless`.
    void refuse(const char* name, std::string_view why, const Json& harmless = nullptr);
    void finish() const;

    std::string name_of(std::string_view field) const { return path_.empty() ? std::string(field) : path_ + "." + std::string(field); }

  private:
    [[noreturn]] void wrong(const char* name, const char* wanted, const Json& found) const;
    const Json& object_;
    std::string path_;
    std::set<std::string, std::less<>> known_;
};

// "an integer", "a list", ... and for short values the value itself.
std::string describe(const Json& value);

}  // namespace forge::server
