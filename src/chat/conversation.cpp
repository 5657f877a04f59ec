#include "chat/conversation.h"

#include <algorithm>

#include "jinja/evaluator.h"
#include "jinja/json.h"

namespace forge {
namespace {

using jinja::Value;
using nlohmann::ordered_json;

// How an assistant's message with tool calls and without text is written.
enum class EmptyContent { absent, null, empty };

struct Form {
    EmptyContent content = EmptyContent::absent;
    bool arguments_as_text = false;
    bool bind_absent_tools = true;  // tools = none when there are none, as the reference does
};

bool has_no_text(const Message& m) {
    return m.content.is_null() || (m.content.is_string() && m.content.get_ref<const std::string&>().empty());
}
bool has_calls(const Message& m) { return m.tool_calls.is_array() && !m.tool_calls.empty(); }

// Whether the template looks at "content is none" or the like anywhere.
bool compares_content_with_none(std::string_view source) {
    const auto skip = [&](std::size_t at, std::string_view any_of) {
        return std::min(source.find_first_not_of(any_of, at), source.size());
    };
    for (std::size_t at = source.find("content"); at != std::string_view::npos;
         at = source.find("content", at + 1)) {
        std::size_t p = skip(at + 7, "'\"]) \t\n");
        const std::string_view rest = source.substr(p);
        if (rest.starts_with("==") || rest.starts_with("!="))
            p += 2;
        else if (rest.starts_with("is not "))
            p += 7;
        else if (rest.starts_with("is "))
            p += 3;
        else
            continue;
        const std::string_view word = source.substr(skip(p, " \t\n"), 4);
        if (word == "none" || word == "None") return true;
    }
    return false;
}

class ContextBuilder {
  public:
    ContextBuilder(jinja::Evaluator& ev, const Form& form) : ev_(ev), heap_(ev.heap()), form_(form) {}

    Value context(const Conversation& conversation, const ChatOptions& options) {
        jinja::Dict map;
        // Later ones override: special tokens, then variables, then what is always passed.
        for (const ordered_json* source : {&options.special_tokens, &options.variables})
            if (source->is_object())
                for (const auto& [key, value] : source->items())
                    set(map, key, jinja::from_json(heap_, value));
        if (options.enable_thinking) set(map, "enable_thinking", Value::boolean(*options.enable_thinking));
        jinja::Values messages;
        for (const Message& m : conversation.messages) messages.push_back(message(m));
        set(map, "messages", jinja::make_list(heap_, std::move(messages)));
        if (!conversation.tools.is_null() || form_.bind_absent_tools)
            set(map, "tools", jinja::from_json(heap_, conversation.tools));
        set(map, "documents", jinja::from_json(heap_, conversation.documents));
        set(map, "add_generation_prompt", Value::boolean(options.add_generation_prompt));
        return jinja::make_dict(heap_, std::move(map));
    }

  private:
    void set(jinja::Dict& map, std::string_view key, Value value) {
        map.set(ev_.string(std::string(key)), std::move(value));
    }

    Value message(const Message& m) {
        jinja::Dict map;
        set(map, "role", ev_.string(m.role));
        if (!has_no_text(m) || !has_calls(m)) {
            set(map, "content", m.content.is_null() ? ev_.string("") : jinja::from_json(heap_, m.content));
        } else if (form_.content != EmptyContent::absent) {
            set(map, "content", form_.content == EmptyContent::null ? Value::none() : ev_.string(""));
        }
        if (m.reasoning) {
            set(map, "reasoning_content", ev_.string(*m.reasoning));
            set(map, "thinking", ev_.string(*m.reasoning));
        }
        if (has_calls(m)) {
            jinja::Values calls;
            for (const ordered_json& call : m.tool_calls) calls.push_back(tool_call(call));
            set(map, "tool_calls", jinja::make_list(heap_, std::move(calls)));
        }
        if (!m.tool_call_id.empty()) set(map, "tool_call_id", ev_.string(m.tool_call_id));
        if (!m.name.empty()) set(map, "name", ev_.string(m.name));
        return jinja::make_dict(heap_, std::move(map));
    }

    // The call with its arguments, in "function" or at the top, in the wanted form.
    Value tool_call(const ordered_json& json) {
        jinja::Dict map;
        for (const auto& [key, value] : json.items()) {
            if (key == "function" && value.is_object())
                set(map, key, tool_call(value));
            else
                set(map, key, key == "arguments" ? arguments(value) : jinja::from_json(heap_, value));
        }
        return jinja::make_dict(heap_, std::move(map));
    }

    Value arguments(const ordered_json& json) {
        const bool is_text = json.is_string();
        if (form_.arguments_as_text) {
            if (is_text) return jinja::from_json(heap_, json);
            const Value object = json.is_null() ? jinja::make_dict(heap_, {}) : jinja::from_json(heap_, json);
            return ev_.string(jinja::write_json(ev_, object, {}));
        }
        if (json.is_null()) return jinja::make_dict(heap_, {});
        if (!is_text) return jinja::from_json(heap_, json);
        const std::string& text = json.get_ref<const std::string&>();
        if (text.find_first_not_of(" \t\r\n") == std::string::npos) return jinja::make_dict(heap_, {});
        try {
            return jinja::read_json(heap_, text);
        } catch (const TemplateError&) {
            throw;  // a limit
        } catch (const Error&) {
            return jinja::from_json(heap_, json);  // not JSON: the model's own words
        }
    }

    jinja::Evaluator& ev_;
    jinja::Heap& heap_;
    Form form_;
};

std::string render(const ChatTemplate& chosen, const Conversation& conversation, const ChatOptions& options,
                   const Form& form) {
    RenderOptions render_options;
    render_options.now = options.now;
    render_options.limits = options.limits;
    // Templates written for other engines change the lists they make; that harms nobody.
    render_options.allow_list_changes = true;
    jinja::Evaluator ev(chosen.parsed(), render_options);
    const Value context = ContextBuilder(ev, form).context(conversation, options);
    return ev.render(context);
}

// Marks all that the conversation's writers wrote (untrusted_text.h); returns the mark.
std::string mark_conversation(Conversation& c, const SpecialTexts& special) {
    ordered_json all = ordered_json::array({c.tools, c.documents});
    for (const Message& m : c.messages)
        all.push_back({m.role, m.content, m.reasoning.value_or(""), m.tool_calls, m.tool_call_id, m.name});
    const std::string mark = unused_mark(all);
    mark_texts(c.tools, special, mark);
    mark_texts(c.documents, special, mark);
    for (Message& m : c.messages) {
        mark_texts(m.content, special, mark);
        mark_texts(m.tool_calls, special, mark);
        if (m.reasoning) m.reasoning = special.marked(*m.reasoning, mark);
        for (std::string* text : {&m.role, &m.tool_call_id, &m.name}) *text = special.marked(*text, mark);
    }
    return mark;
}

std::vector<Form> forms(const Conversation& conversation, std::string_view source) {
    const auto& messages = conversation.messages;
    const bool calls = std::any_of(messages.begin(), messages.end(), has_calls);
    const bool silent_calls = std::any_of(messages.begin(), messages.end(),
                                          [](const Message& m) { return has_calls(m) && has_no_text(m); });
    std::vector<Form> out;
    for (EmptyContent content : {EmptyContent::absent, EmptyContent::null, EmptyContent::empty}) {
        if (content != EmptyContent::absent && !silent_calls) break;
        if (content == EmptyContent::null && !compares_content_with_none(source)) continue;
        out.push_back({content, false, true});
        if (calls) out.push_back({content, true, true});
    }
    // A template made for tools may loop over them: without any it works only if they are undefined.
    if (conversation.tools.is_null())
        for (std::size_t i = 0, n = out.size(); i < n; ++i)
            out.push_back({out[i].content, out[i].arguments_as_text, false});
    return out;
}

}  // namespace

Message message_from_json(const ordered_json& json, std::size_t index) {
    if (!json.is_object())
        fail("messages[{}] should be an object with a role and content, but it is {}.", index,
             json.type_name());
    Message m;
    const auto text = [&](const char* key) -> std::string {
        if (!json.contains(key) || json[key].is_null()) return {};
        if (!json[key].is_string())
            fail("messages[{}].{} should be a text, but it is {}.", index, key, json[key].type_name());
        return json[key].get<std::string>();
    };
    m.role = text("role");
    if (m.role.empty())
        fail("messages[{}] has no role; it should be system, user, assistant or tool.", index);
    if (json.contains("content")) m.content = json["content"];
    if (!m.content.is_null() && !m.content.is_string() && !m.content.is_array())
        fail("messages[{}].content should be a text or a list of parts, but it is {}.", index,
             m.content.type_name());
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
        if (!json.contains(key) || json[key].is_null()) continue;
        m.reasoning = text(key);
        break;
    }
    if (json.contains("tool_calls")) m.tool_calls = json["tool_calls"];
    if (!m.tool_calls.is_null()) {
        if (!m.tool_calls.is_array())
            fail("messages[{}].tool_calls should be a list, but it is {}.", index, m.tool_calls.type_name());
        for (const ordered_json& call : m.tool_calls)
            if (!call.is_object())
                fail("messages[{}].tool_calls should hold objects, but one is {}.", index, call.type_name());
    }
    m.tool_call_id = text("tool_call_id");
    m.name = text("name");
    return m;
}

ChatPrompt apply_template(const TemplateSet& templates, const Conversation& conversation,
                          const ChatOptions& options) {
    if (conversation.messages.empty()) fail("A conversation needs at least one message, but there is none.");
    const bool with_tools = conversation.tools.is_array() && !conversation.tools.empty();
    ChatPrompt out;
    out.template_name = options.template_name.empty() ? templates.choose(with_tools) : options.template_name;
    const ChatTemplate& chosen = templates.get(out.template_name);
    Conversation given = conversation;
    if (!with_tools) given.tools = nullptr;
    const std::string mark = options.special ? mark_conversation(given, *options.special) : std::string();

    std::exception_ptr first;
    bool done = false;
    for (const Form& form : forms(given, chosen.source())) {
        try {
            out.text = render(chosen, given, options, form);
            done = true;
            break;
        } catch (const TemplateError& error) {
            if (error.cause() == TemplateError::Cause::limit) throw;
            if (!first) first = std::current_exception();
        }
    }
    if (!done) std::rethrow_exception(first);
    if (!mark.empty()) out.plain_at = take_marks(out.text, mark);

    out.reasoning = reasoning_markers(chosen.source());
    out.in_reasoning =
        options.add_generation_prompt && out.reasoning && ends_in_reasoning(out.text, *out.reasoning);
    return out;
}

}  // namespace forge
