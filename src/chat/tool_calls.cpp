#include "chat/tool_calls.h"

#include <algorithm>
#include <random>

#include "chat/stop_strings.h"
#include "tools/blocks.h"

namespace forge {
namespace {

using tools::Block;
using tools::Declared;

// How a family is read. Openers begin a block (the first byte after them is the reader's first), dropped
// markers stand around blocks and say nothing.
struct Family {
    ToolFamily family;
    std::string_view name;
    std::vector<std::string_view> openers, dropped;
    bool bare;         // a message may begin with calls that nothing marks
    Block (*read)(std::string_view body, bool last, const Declared& declared);
};

Block tagged(std::string_view b, bool l, const Declared& d) { return tools::read_tagged(b, l, d, false); }
Block glm(std::string_view b, bool l, const Declared& d) { return tools::read_tagged(b, l, d, true); }
Block json_array(std::string_view b, bool l, const Declared& d) { return tools::read_json(b, l, d, ""); }
Block action(std::string_view b, bool l, const Declared& d) { return tools::read_json(b, l, d, "<|END_ACTION|>"); }
Block functions_json(std::string_view b, bool l, const Declared& d) { return tools::read_functions("<function=" + std::string(b), l, d, true); }

const std::vector<Family>& families() {
    static const std::vector<Family> all = {
        {ToolFamily::none, "none", {}, {}, true, tools::read_bare},
        {ToolFamily::hermes, "hermes", {"<tool_call>"}, {"</tool_call>"}, true, tagged},
        {ToolFamily::qwen_xml, "qwen_xml", {"<tool_call>"}, {"</tool_call>"}, false, tagged},
        {ToolFamily::glm, "glm", {"<tool_call>"}, {"</tool_call>"}, false, glm},
        {ToolFamily::llama, "llama", {"<|python_tag|>"}, {}, true, tools::read_python_tag},
        {ToolFamily::mistral, "mistral", {"[TOOL_CALLS]"}, {}, false, tools::read_mistral},
        {ToolFamily::gemma4, "gemma4", {"<|tool_call>", "<start_function_call>"}, {"<tool_call|>", "<end_function_call>"}, false, tools::read_gemma4},
        {ToolFamily::gpt_oss, "gpt_oss", {"<|channel|>"}, {"<|start|>assistant", "<|call|>"}, false, tools::read_channel},
        {ToolFamily::deepseek, "deepseek", {"<｜tool▁call▁begin｜>"}, {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}, false, tools::read_deepseek},
        {ToolFamily::kimi, "kimi", {"<|tool_call_begin|>"}, {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}, false, tools::read_kimi},
        {ToolFamily::lfm2, "lfm2", {"<|tool_call_start|>"}, {"<|tool_call_end|>"}, false, tools::read_lfm2},
        {ToolFamily::granite3, "granite3", {"<|tool_call|>", "<tool_call>"}, {"</tool_call>"}, false, json_array},
        {ToolFamily::command_r, "command_r", {"<|START_ACTION|>"}, {"<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}, false, action},
        {ToolFamily::functionary, "functionary", {"<function="}, {"</function>"}, false, functions_json},
    };
    return all;
}

const Family& family_of(ToolFamily family) {
    for (const Family& f : families())
        if (f.family == family) return f;
    return families().front();
}

// Texts besides openers and dropped markers that must reach the parser as they are.
const std::vector<std::string_view>& inner_markers() {
    static const std::vector<std::string_view> all = {"</tool_call>", "<tool_call|>", "<|\"|>", "<escape>", "[ARGS]", "[CALL_ID]", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                                                      "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|message|>", "<|constrain|>", "<|start|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
    return all;
}

std::string random_text(std::mt19937_64& generator, std::size_t length) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    std::string id(length, ' ');
    for (char& c : id) c = letters[generator() % 62];
    return id;
}

// Takes the text a byte at a time, so that the result cannot depend on how it was cut.
class Parser final : public ToolCallParser {
  public:
    Parser(ToolFamily family, Options options)
        : family_(family_of(family)), declared_(options.tools), parallel_(options.parallel), ids_(options.id_seed) {}

    Delta push(std::string_view text) override {
        Delta out;
        for (const char c : text) byte(c, out);
        return out;
    }

    Delta finish(bool cut) override {
        Delta out;
        if (block_ != In::content) {
            // An unfinished call of an answer that was cut is left out: half a command must not run.
            if (cut && !tail_) {
                if (block_ == In::bare) out.content += pending_;
                pending_.clear();
                return out;
            }
            end_block(read(true), out, true);
        }
        if (!(after_call_ && tools::trimmed(pending_).empty())) out.content += pending_;
        pending_.clear();
        return out;
    }

    int complete() const override { return count_; }

  private:
    enum class In { content, marked, bare, function };

    Block read(bool last) const {
        switch (block_) {
            case In::bare: return tools::read_bare(pending_, last, declared_);
            case In::function: {
                // <function=N> without the tag around it: only for tools that exist.
                const std::size_t end = pending_.find('>');
                if (end != std::string::npos && !declared_.has(declared_.name(std::string_view(pending_).substr(10, end - 10)))) return {Block::State::hopeless, pending_.size(), {}};
                return tools::read_functions(pending_, last, declared_, false);
            }
            default: return family_.read(pending_, last, declared_);
        }
    }

    void byte(char c, Delta& out) {
        pending_ += c;
        if (block_ == In::content) return content(out);
        count_brackets(c);
        // Looked at again only where something can have ended, so that long arguments cost little.
        if (tail_ || pending_.size() < 256 || may_end(c)) end_block(read(false), out, false);
    }

    void count_brackets(char c) {
        if (in_string_) {
            if (escaped_) escaped_ = false;
            else if (c == '\\') escaped_ = true;
            else if (c == '"') in_string_ = false;
        } else if (c == '"') {
            in_string_ = true;
        } else if (c == '{' || c == '[' || c == '(') {
            ++depth_;
        } else if (c == '}' || c == ']' || c == ')') {
            --depth_;
        }
    }

    bool may_end(char c) const {
        if (c == '}' || c == ']' || c == ')') return !in_string_ && depth_ <= 0;
        if (c == '`') return depth_ <= 0;
        if (c != '>') return false;
        for (const std::string_view closer : {"</tool_call>", "</function>", "</parameter>", "</arg_value>", "<tool_call|>", "<end_function_call>", "<|tool_call_end|>", "<｜tool▁call▁end｜>", "<|END_ACTION|>", "<|message|>", "<|call|>"})
            if (pending_.ends_with(closer)) return true;
        return false;
    }

    void begin_block(In kind) {
        block_ = kind;
        in_string_ = escaped_ = false;
        depth_ = 0;
        for (const char c : pending_) count_brackets(c);
    }

    void end_block(Block block, Delta& out, bool last) {
        tail_ = block.state == Block::State::tail;
        if (!last && (block.state == Block::State::more || tail_)) return;
        const std::string whole = opener_ + pending_;
        const bool was_bare = block_ == In::bare;
        std::string rest = pending_.substr(std::min(block.used, pending_.size()));
        block_ = In::content;
        tail_ = false;
        if (block.state == Block::State::done) {
            for (tools::ParsedCall& call : block.calls) emit(std::move(call), out);
            after_call_ = true;
            may_be_bare_ = was_bare && family_.family == ToolFamily::llama;
            pending_.clear();
        } else if (was_bare) {
            rest = std::move(pending_);   // it may hold markers: once more, as content
            pending_.clear();
            may_be_bare_ = false;
        } else {
            out.content += std::exchange(held_white_, {}) + whole.substr(0, whole.size() - rest.size());
            may_be_bare_ = after_call_ = false;
            pending_.clear();
        }
        opener_.clear();
        if (block.state == Block::State::done) held_white_.clear();
        for (const char c : rest) byte(c, out);
    }

    void content(Delta& out) {
        if (after_call_) {
            // White space around calls is not content; Llama writes ; between them.
            std::size_t at = tools::skip_white(pending_, 0);
            while (may_be_bare_ && at < pending_.size() && pending_[at] == ';') at = tools::skip_white(pending_, at + 1);
            pending_.erase(0, at);
            if (pending_.empty()) return;
        }
        if (may_be_bare_ && family_.bare) {
            const std::size_t at = tools::skip_white(pending_, 0);
            if (at == pending_.size()) return;
            if (pending_[at] == '{' || pending_[at] == '[' || pending_[at] == '`') {
                begin_block(In::bare);
                return end_block(read(false), out, false);
            }
            may_be_bare_ = false;
        }
        may_be_bare_ = false;
        for (const std::string_view opener : family_.openers) {
            if (!pending_.ends_with(opener)) continue;
            const std::string before = pending_.substr(0, pending_.size() - opener.size());
            const std::string_view text = std::string_view(before).substr(0, white_end(before));
            out.content += text;
            held_white_ = before.substr(text.size());   // wanted again if this is no call after all
            pending_.clear();
            opener_ = opener;
            begin_block(In::marked);
            return;
        }
        if (family_.family == ToolFamily::qwen_xml && pending_.ends_with("<function=")) {
            const std::string before = pending_.substr(0, pending_.size() - 10);
            if (before.empty() ? at_line_start_ : before.back() == '\n') {
                const std::string_view text = std::string_view(before).substr(0, white_end(before));
                out.content += text;
                held_white_ = before.substr(text.size());
                pending_ = "<function=";
                begin_block(In::function);
                return;
            }
        }
        for (const std::string_view marker : family_.dropped) {
            if (!pending_.ends_with(marker)) continue;
            pending_.resize(pending_.size() - marker.size());
            break;
        }
        // What may be the beginning of a marker waits, and so does white space before it.
        std::size_t held = 0;
        for (const auto* list : {&family_.openers, &family_.dropped})
            for (const std::string_view marker : *list) held = std::max(held, partial_suffix(pending_, marker));
        if (family_.family == ToolFamily::qwen_xml) held = std::max(held, partial_suffix(pending_, "<function="));
        const std::size_t ready = white_end(std::string_view(pending_).substr(0, pending_.size() - held));
        if (ready == 0) return;
        out.content.append(pending_, 0, ready);
        at_line_start_ = pending_[ready - 1] == '\n';
        pending_.erase(0, ready);
        after_call_ = false;
    }

    static std::size_t white_end(std::string_view text) {
        std::size_t end = text.size();
        while (end > 0 && tools::is_white(text[end - 1])) --end;
        return end;
    }

    void emit(tools::ParsedCall call, Delta& out) {
        if (!parallel_ && count_ > 0) return;
        std::string id;
        if (family_.family == ToolFamily::kimi) id = call.id;
        else if (family_.family == ToolFamily::mistral) id = call.id.size() == 9 ? call.id : random_text(ids_, 9);
        if (id.empty()) id = "call_" + random_text(ids_, 24);
        out.calls.push_back({count_, std::move(id), std::move(call.name), ""});
        out.calls.push_back({count_, "", "", std::move(call.arguments)});
        ++count_;
    }

    const Family& family_;
    const Declared declared_;
    const bool parallel_;
    std::mt19937_64 ids_;
    std::string pending_;     // in a block: its text after the opener
    std::string opener_, held_white_;
    In block_ = In::content;
    int depth_ = 0;           // brackets open in the block, outside of texts
    bool in_string_ = false, escaped_ = false;
    bool tail_ = false, after_call_ = false, may_be_bare_ = true, at_line_start_ = true;
    int count_ = 0;
};

}  // namespace

ToolFamily tool_family(std::string_view source) {
    const auto has = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
    if (has("<|channel|>")) return ToolFamily::gpt_oss;
    if (has("<|tool_call>") && has("<tool_call|>")) return ToolFamily::gemma4;
    if (has("<start_function_call>")) return ToolFamily::gemma4;
    if (has("<｜tool▁calls▁begin｜>")) return ToolFamily::deepseek;
    if (has("<|tool_calls_section_begin|>")) return ToolFamily::kimi;
    if (has("<arg_key>")) return ToolFamily::glm;
    if (has("[TOOL_CALLS]")) return ToolFamily::mistral;
    if (has("<|START_ACTION|>")) return ToolFamily::command_r;
    if (has("<function=") && has("<parameter=")) return ToolFamily::qwen_xml;
    if (has("<function=")) return ToolFamily::functionary;
    if (has("<|tool_list_start|>") || has("<|tool_call_start|>") || has("List of tools: [")) return ToolFamily::lfm2;
    if (has("<|tool_call|>") || (has("<|start_of_role|>") && !has("<tool_call>"))) return ToolFamily::granite3;
    if (has("<tool_call>") || has("xml_tools") || has("Reasoning Mode:")) return ToolFamily::hermes;
    if (has("<|start_header_id|>") && has("ipython")) return ToolFamily::llama;
    return ToolFamily::none;
}

std::string_view name_of(ToolFamily family) { return family_of(family).name; }

std::vector<std::string> tool_markers(ToolFamily family) {
    const Family& f = family_of(family);
    std::vector<std::string> out;
    for (const auto* list : {&f.openers, &f.dropped, &inner_markers()})
        for (const std::string_view marker : *list) out.emplace_back(marker);
    return out;
}

std::unique_ptr<ToolCallParser> make_tool_parser(ToolFamily family, ToolCallParser::Options options) {
    return std::make_unique<Parser>(family, std::move(options));
}

}  // namespace forge
