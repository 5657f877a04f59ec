// Any text as an answer of each family: calls have objects as arguments, and a cut changes nothing, of gpt-oss' channels neither.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "chat/reasoning.h"
#include "chat/tool_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace forge;
    using Json = nlohmann::ordered_json;
    if (size < 2 || size > 4096) return 0;
    static const Json tools = Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
        {"a":{"type":"integer"},"b":{"type":["boolean","null"]},"c":{"type":"array"},"d":{"$ref":"#/properties/a"}}}}}])");
    const auto family = static_cast<ToolFamily>(data[0] % 14);
    const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);
    const auto said = [&](std::size_t cut) {
        const auto parser = make_tool_parser(family, {tools, true, 1});
        std::string content;
        std::vector<std::string> calls;
        const auto add = [&](const ToolCallParser::Delta& d) {
            content += d.content;
            for (const ToolCallDelta& c : d.calls) {
                if (static_cast<std::size_t>(c.index) >= calls.size()) calls.resize(static_cast<std::size_t>(c.index) + 1);
                calls[static_cast<std::size_t>(c.index)] += c.arguments;
            }
        };
        add(parser->push(text.substr(0, cut)));
        add(parser->push(text.substr(cut)));
        add(parser->finish(false));
        for (const std::string& c : calls) {
            if (!Json::parse(c, nullptr, false).is_object()) std::abort();
            content += c;
        }
        return content;
    };
    const std::size_t cut = data[1] % (text.size() + 1);
    if (said(0) != said(cut)) std::abort();
    // The channels before it, likewise.
    const auto split = [&](std::size_t at) {
        ReasoningSplitter splitter(reasoning_markers("<|channel|>"), false);
        ReasoningSplitter::Delta all;
        for (const auto& d : {splitter.push(text.substr(0, at)), splitter.push(text.substr(at)), splitter.finish()}) {
            all.reasoning += d.reasoning;
            all.content += d.content;
        }
        return all;
    };
    if (family == ToolFamily::gpt_oss && !(split(0) == split(cut))) std::abort();
    return 0;
}
