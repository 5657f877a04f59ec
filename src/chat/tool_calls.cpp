#include "chat/tool_calls.h"

namespace forge {
namespace {
class NoCalls final : public ToolCallParser {
  public:
    Delta push(std::string_view text) override { return {std::string(text), {}}; }
    Delta finish(bool) override { return {}; }
    int complete() const override { return 0; }
};
}  // namespace
ToolFamily tool_family(std::string_view) { return ToolFamily::none; }
std::vector<std::string> tool_markers(ToolFamily) { return {}; }
std::unique_ptr<ToolCallParser> make_tool_parser(ToolFamily, ToolCallParser::Options) { return std::make_unique<NoCalls>(); }
}  // namespace forge
