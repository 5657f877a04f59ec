// /api/chat, /api/generate, /api/tags, /api/show, /api/ps, /api/version, ...
#include "ollama.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "app.h"
#include "digest.h"
#include "embeddings.h"

namespace forge::server {
namespace {

std::string utc(std::chrono::system_clock::time_point time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

class OllamaWriter final : public Writer {
  public:
    OllamaWriter(bool chat, bool stream) : chat_(chat), stream_(stream) {}
    std::string_view stream_type() const override { return "application/x-ndjson"; }

    std::string delta(int, const TextDelta& d) override {
        // Ollama's calls come whole: they are said when they are complete, at the end.
        if (d.content.empty() && d.reasoning.empty()) return {};
        return line(part(d.content, d.reasoning), false);
    }
    std::string done(int, const Answer& answer) override {
        std::string out;
        if (!answer.calls.empty()) out = line(part("", "", &answer.calls), false);
        last_ = answer.done;
        return out;
    }
    std::string end(const Totals& totals) override { return line(finished(part("", ""), totals), true); }
    std::string failed(const ApiError& error) override { return dump(ollama_error(error)) + (stream_ ? "\n" : ""); }
    std::string whole(const std::vector<Answer>& answers, const Totals& totals) override {
        const Answer& a = answers.at(0);
        last_ = a.done;
        Json json = finished(part(a.content, a.reasoning, a.calls.empty() ? nullptr : &a.calls), totals);
        json["done"] = true;
        return dump(json);
    }

  private:
    Json part(const std::string& content, const std::string& thinking, const std::vector<Answer::Call>* calls = nullptr) const {
        Json json = {{"model", model}, {"created_at", utc(std::chrono::system_clock::now())}};
        Json& to = chat_ ? (json["message"] = {{"role", "assistant"}}) : json;
        to[chat_ ? "content" : "response"] = content;
        if (!thinking.empty()) to["thinking"] = thinking;
        if (calls) {
            to["tool_calls"] = Json::array();
            for (const Answer::Call& call : *calls) {
                Json arguments = Json::parse(call.arguments, nullptr, false);
                to["tool_calls"].push_back({{"function", {{"name", call.name}, {"arguments", arguments.is_object() ? arguments : Json::object()}}}});
            }
        }
        return json;
    }
    Json finished(Json json, const Totals& t) const {
        const auto nanoseconds = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
        json.update({{"done", true}, {"done_reason", last_.reason == TextFinish::length ? "length" : "stop"},
                     {"total_duration", nanoseconds(t.seconds + t.load_seconds)}, {"load_duration", nanoseconds(t.load_seconds)},
                     {"prompt_eval_count", t.prompt_tokens}, {"prompt_eval_duration", nanoseconds(t.prompt_seconds)},
                     {"eval_count", t.new_tokens}, {"eval_duration", nanoseconds(t.decode_seconds)}});
        return json;
    }
    static std::string line(Json json, bool done) {
        json["done"] = done;
        return dump(json) + "\n";
    }
    bool chat_, stream_;
    TextDone last_;
};

}  // namespace

double seconds_of(const Json& value) {
    if (value.is_number()) return value.get<double>();
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    double total = 0;
    std::size_t at = 0;
    const bool negative = !text.empty() && text[0] == '-';
    at += negative;
    while (at < text.size()) {
        const std::size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
        if (end == at || text[at] == '.') break;
        const bool first = at == static_cast<std::size_t>(negative);
        const std::string digits = text.substr(at, end - at);
        char* stop = nullptr;
        const double number = std::strtod(digits.c_str(), &stop);   // libc++'s from_chars may have no floats
        at += static_cast<std::size_t>(stop - digits.c_str());
        const std::string_view rest = std::string_view(text).substr(at);
        const std::pair<std::string_view, double> units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
        bool found = first && rest.empty();   // seconds without a unit
        double factor = 1;
        for (const auto& [unit, scale] : units) {
            if (found || !rest.starts_with(unit)) continue;
            factor = scale;
            at += unit.size();
            found = true;
        }
        if (!found) break;
        total += number * factor;
        if (at == text.size()) return negative ? -1 : total;
    }
    bad_field("keep_alive", "keep_alive should be seconds or a time such as \"5m\", found {}", describe(value));
}

namespace {

void read_options(Fields& f, GenerateRequest& r) {
    r.stream = f.flag("stream").value_or(true);
    if (const Json* keep = f.find("keep_alive")) r.keep_alive = seconds_of(*keep);
    if (const Json* think = f.find("think")) {
        if (think->is_boolean()) r.chat.enable_thinking = think->get<bool>();
        else if (think->is_string()) set_effort(r, think->get<std::string>(), "think");
        else bad_field("think", "think should be true, false or a level, found {}", describe(*think));
    }
    if (const Json* format = f.find("format"); format && *format != "") {
        if (*format == "json") r.form = AnswerForm::json_object;
        else if (format->is_object()) r.form = AnswerForm::json_schema, r.form_field = "format", r.schema = *format;
        else bad_field("format", "format should be \"json\" or a JSON schema, found {}", describe(*format));
    }
    if (const Json* options = f.object("options")) {
        Fields o(*options, "options");
        read_sampling(o, r);
        // These have their meaning from Ollama: penalties look at the last 64 tokens.
        if (!o.has("repeat_last_n")) r.sampling.penalty_window.reset();
        if (const auto most = o.whole("num_predict", -2, 1 << 30)) r.max_tokens = static_cast<int>(std::max<std::int64_t>(*most, -1));
        o.ignore({"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "low_vram", "numa", "num_keep", "penalize_newline", "vocab_only", "f16_kv", "logits_all", "tfs_z", "mirostat_tau", "mirostat_eta"});
        o.refuse("mirostat", "it is not implemented", 0);
        o.finish();
    }
    f.refuse("logprobs", "it is not offered on this path; /v1/chat/completions has it", false);
    f.ignore({"top_logprobs", "truncate", "shift"});
    f.finish();
    if (r.max_tokens == 0) r.max_tokens = -1;
}

Json details(const std::string& path) {
    std::error_code ignored;
    const char* format = std::filesystem::is_directory(path, ignored) || path.ends_with(".safetensors") ? "safetensors" : "gguf";
    return {{"parent_model", ""}, {"format", format}, {"family", ""}, {"families", Json::array()}, {"parameter_size", ""}, {"quantization_level", ""}};
}

std::chrono::system_clock::time_point modified_at(const std::string& path) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path, error);
    if (error) return {};
    return std::chrono::time_point_cast<std::chrono::system_clock::duration>(std::chrono::file_clock::to_sys(time));
}

std::uint64_t size_of(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) return std::filesystem::file_size(path, ignored);
    std::uint64_t size = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
        if (entry.is_regular_file(ignored)) size += entry.file_size(ignored);
    return size;
}

void tags(const Call& call) {
    Json models = Json::array();
    for (const ServedModelName& m : call.app.models.names())
        models.push_back({{"name", m.name}, {"model", m.name}, {"modified_at", utc(modified_at(m.path))}, {"size", size_of(m.path)},
                          {"digest", model_digest(m.path)}, {"details", details(m.path)}});
    call.send({{"models", models}});
}

void running(const Call& call) {
    Json models = Json::array();
    for (const auto& served : call.app.models.all_loaded()) {
        const MemoryUse m = served->service.model().engine()->memory();
        const std::uint64_t size = m.weights + m.kv_cache + m.scratch;
        const ServedModelName& name = call.app.models.resolve(served->name);
        models.push_back({{"name", name.name}, {"model", name.name}, {"size", size}, {"size_vram", 0}, {"digest", model_digest(name.path)}, {"details", details(name.path)},
                          {"context_length", served->service.model().engine()->options().ctx}});
        // A model that stays until the server ends has no such time.
        if (const auto left = call.app.models.seconds_left(served->name)) models.back()["expires_at"] = utc(std::chrono::system_clock::now() + std::chrono::seconds(*left));
    }
    call.send({{"models", models}});
}

void show(const Call& call) {
    const Json body = call.body();
    Fields f(body);
    auto name = f.text("model");
    if (!name) name = f.text("name");
    f.ignore({"verbose", "system", "template", "options"});
    f.finish();
    if (!name || name->empty()) bad_field("model", "model is missing");
    const auto served = call.app.models.get(*name);
    const ModelSpec& spec = served->service.model().engine()->spec();
    const ModelText& text = served->service.model().text();
    Json d = details(call.app.models.resolve(*name).path);
    d["family"] = spec.architecture;
    d["families"] = Json::array({spec.architecture});
    d["parameter_size"] = fmt::format("{:.1f}B", static_cast<double>(spec.parameters) / 1e9);
    Json capabilities = Json::array({"completion"});
    if (text.has_chat_template()) {
        const std::string source = text.templates().source(text.templates().choose(true));
        if (source.find("tools") != std::string::npos) capabilities.push_back("tools");
        if (reasoning_markers(source)) capabilities.push_back("thinking");
    }
    call.send({{"modelfile", ""}, {"parameters", ""}, {"template", text.has_chat_template() ? text.templates().source(text.templates().choose(false)) : ""},
               {"details", d}, {"capabilities", capabilities}, {"modified_at", utc(served->loaded_at)},
               {"model_info", {{"general.architecture", spec.architecture}, {"general.parameter_count", spec.parameters},
                               {spec.architecture + ".context_length", served->service.model().engine()->options().ctx}}}});
}

// Models are files that whoever starts the server names, so that a client can neither add nor remove one. One that
// is there already needs no pulling, which is what clients ask that pull before each use.
void pull(const Call& call) {
    const Json body = call.body();
    Fields f(body);
    auto name = f.text("model");
    if (!name) name = f.text("name");
    const bool stream = f.flag("stream").value_or(true);
    f.ignore({"insecure", "username", "password"});
    f.finish();
    if (!name || name->empty()) bad_field("model", "model is missing");
    try {
        call.app.models.resolve(*name);
    } catch (const ApiError&) {
        throw ApiError(501, "model", fmt::format("{} cannot be pulled: this server offers the models it was started with; get the model first, then name it to forge serve", name->substr(0, 200)));
    }
    if (stream) call.reply->send(200, "application/x-ndjson", "{\"status\":\"success\"}\n");
    else call.send({{"status", "success"}});
}

void remove(const Call& call) {
    const Json body = call.body();
    Fields f(body);
    auto name = f.text("model");
    if (!name) name = f.text("name");
    f.finish();
    if (!name || name->empty()) bad_field("model", "model is missing");
    const ServedModelName& model = call.app.models.resolve(*name);   // 404 where there is none
    throw ApiError(501, "model", fmt::format("{} is not deleted: this server offers the models it was started with; start it without the model and remove its file", model.name));
}

// A request without a prompt loads a model, or with keep_alive 0 unloads it.
bool load_only(const Call& call, Translated& t, bool chat) {
    const GenerateRequest& r = t.request;
    const bool empty = chat ? r.conversation->messages.empty() : !r.conversation && r.texts.size() == 1 && r.texts[0].empty();
    if (!empty) return false;
    const bool unload = r.keep_alive && *r.keep_alive == 0;
    const std::string name = call.app.models.resolve(r.model).name;
    if (unload) call.app.models.unload(name);
    else call.app.models.get(r.model)->keep(r.keep_alive);
    Json json = {{"model", name}, {"created_at", utc(std::chrono::system_clock::now())}};
    if (chat) json["message"] = {{"role", "assistant"}, {"content", ""}};
    else json["response"] = "";
    json.update({{"done", true}, {"done_reason", unload ? "unload" : "load"}});
    call.reply->send(200, "application/json", dump(json));
    return true;
}

}  // namespace

Translated ollama_chat(const Json& body) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    if (r.model.empty()) bad_field("model", "model is missing");
    r.conversation.emplace();
    if (const Json* messages = f.list("messages"); messages && !messages->empty()) {
        Json changed = *messages;
        for (std::size_t i = 0; i < changed.size(); ++i) {
            if (!changed[i].is_object()) continue;
            if (changed[i].contains("images") && !changed[i]["images"].empty()) bad_field(fmt::format("messages[{}].images", i), "messages[{}] has images, and only text is supported", i);
            if (changed[i].contains("tool_name") && !changed[i].contains("name")) changed[i]["name"] = changed[i]["tool_name"];
        }
        r.conversation->messages = openai_messages(changed, "messages");
    }
    if (const Json* tools = f.list("tools"); tools && !tools->empty()) {
        check_tools(*tools, "tools");
        r.tools = *tools;
    }
    read_options(f, r);
    t.writer = std::make_shared<OllamaWriter>(true, r.stream);
    return t;
}

Translated ollama_generate(const Json& body) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    if (r.model.empty()) bad_field("model", "model is missing");
    const std::string prompt = f.text("prompt").value_or(""), system = f.text("system").value_or("");
    const bool raw = f.flag("raw").value_or(false);
    r.suffix = f.text("suffix");
    if (r.suffix && r.suffix->empty()) r.suffix.reset();
    if (raw || r.suffix || prompt.empty()) {
        r.texts.push_back(prompt);
        r.split_reasoning = false;
    } else {
        r.conversation.emplace();
        for (const auto& [role, text] : {std::pair{"system", &system}, {"user", &prompt}}) {
            if (text->empty()) continue;
            Message message;
            message.role = role;
            message.content = *text;
            r.conversation->messages.push_back(std::move(message));
        }
    }
    if (const Json* images = f.list("images"); images && !images->empty()) bad_field("images", "images are not supported: only text is");
    f.refuse("template", "the model's own template is used; raw: true uses none", "");
    f.refuse("context", "it is no longer offered: send the conversation to /api/chat instead");
    read_options(f, r);
    t.writer = std::make_shared<OllamaWriter>(false, r.stream);
    return t;
}

Json ollama_error(const ApiError& error) { return {{"error", error.what()}}; }

bool route_ollama(const Call& call) {
    if (!call.request.path.starts_with("/api/")) return false;
    for (const bool chat : {true, false}) {
        if (!call.is("POST", chat ? "/api/chat" : "/api/generate")) continue;
        Translated t = chat ? ollama_chat(call.body()) : ollama_generate(call.body());
        if (!load_only(call, t, chat)) run(call, std::move(t));
        return true;
    }
    if (call.is("GET", "/api/tags")) return tags(call), true;
    if (call.is("GET", "/api/ps")) return running(call), true;
    if (call.is("POST", "/api/show")) return show(call), true;
    if (call.is("GET", "/api/version")) return call.send({{"version", FORGE_VERSION_TEXT}}), true;
    if (call.is("POST", "/api/embed")) return ollama_embed(call, false), true;
    if (call.is("POST", "/api/embeddings")) return ollama_embed(call, true), true;
    if (call.is("POST", "/api/pull")) return pull(call), true;
    if (call.is("DELETE", "/api/delete")) return remove(call), true;
    return false;
}

}  // namespace forge::server
