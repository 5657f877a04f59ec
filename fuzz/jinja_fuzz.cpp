// Any bytes as a template, rendered with a small conversation: errors are fine, anything
// else (a crash, a hang, a leak) is not.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chat/template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::string_view inputs = R"({
        "messages": [{"role": "user", "content": "hé <b> \"q\""},
                     {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
                      "arguments": {"a": 1, "b": 1.0, "c": [true, null, 12345678901234567890]}}}]},
                     {"role": "tool", "content": "4 "}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "d": {}, "n": 3, "x": 2.5, "s": "a,b c", "l": [3, 1, 2, "A", "b"], "add_generation_prompt": true})";
    forge::RenderOptions options;
    options.now = std::chrono::year(2026) / 1 / 2;
    options.limits.steps = 20000;
    options.limits.memory = std::size_t{1} << 20;
    options.limits.output = 1 << 16;
    // The first byte chooses between the two ways to treat list methods.
    options.allow_list_changes = size > 0 && data[0] % 2 == 0;
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    try {
        forge::ChatTemplate::parse(source).render_json_text(inputs, options);
    } catch (const forge::Error&) {
    }
    try {
        // Also as inputs, in front of a template that prints everything.
        static const forge::ChatTemplate all =
            forge::ChatTemplate::parse("{{ v }}{{ v|tojson(indent=1) }}{{ v == v }}");
        all.render_json_text("{\"v\":" + std::string(source) + "}", options);
    } catch (const forge::Error&) {
    }
    return 0;
}
