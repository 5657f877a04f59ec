// Jinja chat templates: parsing and rendering.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace forge {

namespace jinja {
struct Template;
}

// A template comes with a model and is untrusted: each limit ends the rendering with an
// error. The defaults are far above what published templates need.
struct TemplateLimits {
    std::uint64_t steps = 200'000'000;            // evaluated nodes and the work of long texts
    std::size_t memory = std::size_t{512} << 20;  // bytes of live values
    std::size_t output = std::size_t{64} << 20;   // bytes of rendered text
    int depth = 400;                              // nested blocks, expressions and macro calls
    int value_depth = 200;                        // lists in lists, objects in objects
};

struct RenderOptions {
    // What strftime_now() shows; absent: the local time of this moment.
    std::optional<std::chrono::year_month_day> now = std::nullopt;
    TemplateLimits limits = {};
    // Let templates call append, extend, insert and pop on lists they made themselves (the
    // reference refuses them all; templates written for other engines use them).
    bool allow_list_changes = false;
};

// What a template's raise_exception() said, or why it could not be parsed or rendered.
class TemplateError : public Error {
  public:
    enum class Cause {
        syntax,  // the template cannot be parsed
        raised,  // the template called raise_exception; what() is exactly its message
        failed,  // an operation failed, such as an attribute of something undefined
        limit,   // a limit was reached
    };
    TemplateError(Cause cause, const std::string& message)
        : Error(ErrorKind::invalid_input, message), cause_(cause) {}
    Cause cause() const { return cause_; }

  private:
    Cause cause_;
};

// A parsed template. Immutable: one object may be rendered by several threads at once.
class ChatTemplate {
  public:
    static constexpr std::size_t max_source = std::size_t{4} << 20;

    static ChatTemplate parse(std::string_view source);

    // `inputs` is an object; its members are the template's variables. Key order matters
    // (tojson prints it). An integer beyond 64 bits is already lost in this type: use
    // render_json_text where such numbers may occur.
    std::string render(const nlohmann::ordered_json& inputs, const RenderOptions& options = {}) const;

    // The same from JSON text, keeping key order, the difference between 1 and 1.0, -0.0
    // and integers of any size.
    std::string render_json_text(std::string_view inputs, const RenderOptions& options = {}) const;

    const std::string& source() const;
    const jinja::Template& parsed() const { return *parsed_; }  // for this room

  private:
    explicit ChatTemplate(std::shared_ptr<const jinja::Template> parsed) : parsed_(std::move(parsed)) {}
    std::shared_ptr<const jinja::Template> parsed_;
};

}  // namespace forge
