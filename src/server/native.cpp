// /health, /metrics, /tokenize, /detokenize, /apply-template and the page at /.
#include "app.h"
#include "infill.h"
#include "openai.h"
#include "page.h"

namespace forge::server {
namespace {

void health(const Call& call) {
    double stalled = 0;
    for (const auto& served : call.app.models.all_loaded()) stalled = std::max(stalled, served->service.load().seconds_since_step);
    if (stalled > static_cast<double>(call.app.options.stall.count()))
        return call.send({{"status", "stalled"}, {"message", fmt::format("work waits, and no step ended for {:.0f} s", stalled)}}, 503);
    call.send({{"status", "ok"}});
}

void metrics(const Call& call) {
    App& app = call.app;
    std::string out = app.metrics.requests();
    const auto counter = [&](const char* name, const char* kind, const char* help) { out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, kind, help); };
    const auto all = app.models.all_loaded();
    const auto each = [&](const char* name, const char* kind, const char* help, const auto& value) {
        counter(name, kind, help);
        for (const auto& served : all) {
            std::string label;   // a model's name is a file's name: anything can stand in it
            for (const char c : served->name) label += c == '\\' || c == '"' ? std::string("\\") + c : std::string(1, c == '\n' ? ' ' : c);
            out += fmt::format("{}{{model=\"{}\"}} {}\n", name, label, value(served->service.load(), *served));
        }
    };
    using Load = Batcher::Load;
    each("forge_queue", "gauge", "Requests that wait for a slot.", [](const Load& l, const Served&) { return l.waiting; });
    each("forge_slots", "gauge", "Sequences that are computed at once at most.", [](const Load& l, const Served&) { return l.slots; });
    each("forge_slots_busy", "gauge", "Sequences being computed.", [](const Load& l, const Served&) { return l.running; });
    each("forge_prompt_tokens_total", "counter", "Tokens of prompts.", [](const Load& l, const Served&) { return l.prompt_tokens; });
    each("forge_cached_tokens_total", "counter", "Tokens of prompts that were known from before.", [](const Load& l, const Served&) { return l.cached_tokens; });
    each("forge_generated_tokens_total", "counter", "Tokens generated.", [](const Load& l, const Served&) { return l.generated_tokens; });
    each("forge_steps_total", "counter", "Rounds of the stepping thread.", [](const Load& l, const Served&) { return l.steps; });
    each("forge_prefix_store_bytes", "gauge", "Caches of finished sequences.", [](const Load& l, const Served&) { return l.prefix_bytes; });
    each("forge_memory_bytes", "gauge", "Weights, caches and scratch.", [](const Load&, const Served& s) {
        const MemoryUse m = s.service.model().engine()->memory();
        return m.weights + m.kv_cache + m.scratch;
    });
    out += app.metrics.first_token.text("forge_time_to_first_token_seconds", "From the request to its first text.");
    out += app.metrics.between_tokens.text("forge_inter_token_seconds", "Between pieces of text of a request.");
    out += app.metrics.queue_time.text("forge_queue_seconds", "Waiting for a slot.");
    counter("forge_cancelled_total", "counter", "Requests whose client went away.");
    out += fmt::format("forge_cancelled_total {}\n", app.metrics.cancelled.load());
    counter("forge_refused_total", "counter", "Requests refused because the queue was full.");
    out += fmt::format("forge_refused_total {}\n", app.metrics.refused.load());
    call.reply->send(200, "text/plain; version=0.0.4; charset=utf-8", out);
}

void tokenize(const Call& call) {
    const Json body = call.body();
    Fields f(body);
    const std::string model = f.text("model").value_or("");
    auto text = f.text("content");
    if (!text) text = f.text("prompt");
    if (!text) text = f.text("text");
    if (!text) bad_field("content", "content is missing; it should be a text");
    EncodeOptions options;
    options.add_bos = f.flag("add_special").value_or(false);
    options.parse_special = f.flag("parse_special").value_or(true);
    const bool pieces = f.flag("with_pieces").value_or(false);
    f.finish();
    const auto served = call.app.models.get(model);
    const Tokenizer& tokenizer = *served->service.model().tokenizer();
    const auto ids = tokenizer.encode(*text, options);
    Json tokens = Json::array();
    for (const std::int32_t id : ids) tokens.push_back(pieces ? Json{{"id", id}, {"piece", tokenizer.token_text(id)}} : Json(id));
    call.send({{"tokens", tokens}, {"count", ids.size()}});
}

void detokenize(const Call& call) {
    const Json body = call.body();
    Fields f(body);
    const std::string model = f.text("model").value_or("");
    const Json* list = f.list("tokens");
    if (!list) bad_field("tokens", "tokens is missing; it should be a list of token ids");
    const bool skip = f.flag("skip_special").value_or(false);
    f.finish();
    const auto served = call.app.models.get(model);
    const Tokenizer& tokenizer = *served->service.model().tokenizer();
    std::vector<std::int32_t> ids;
    for (const Json& id : *list) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= tokenizer.size())
            bad_field("tokens", "tokens should hold ids from 0 to {}, found {}", tokenizer.size() - 1, describe(id));
        ids.push_back(id.get<std::int32_t>());
    }
    call.send({{"content", tokenizer.decode(ids, skip)}});
}

void apply_template(const Call& call) {
    Json body = call.body();
    bool generation = true;
    if (body.contains("add_generation_prompt")) {
        Fields f(body);
        generation = f.flag("add_generation_prompt").value_or(true);
        body.erase("add_generation_prompt");
    }
    Translated t = openai_chat(body);
    t.request.chat.add_generation_prompt = generation;
    const auto served = call.app.models.get(t.request.model);
    t.request.conversation->tools = t.request.tools;
    try {
        call.send({{"prompt", served->service.model().text().render(*t.request.conversation, t.request.chat).text}});
    } catch (const Error& error) {
        throw ApiError(400, "messages", error.what());
    }
}

}  // namespace

bool route_native(const Call& call) {
    if (call.is("GET", "/health") || call.is("GET", "/v1/health")) return health(call), true;
    if (call.is("GET", "/metrics")) return metrics(call), true;
    if (call.is("POST", "/tokenize")) return tokenize(call), true;
    if (call.is("POST", "/detokenize")) return detokenize(call), true;
    if (call.is("POST", "/apply-template")) return apply_template(call), true;
    if (call.is("POST", "/infill")) return run(call, infill(call.body())), true;
    if (call.is("GET", "/")) {
        const std::string nonce = random_id();   // only the page's own script has it
        std::string page(page_html);
        page.replace(page.find("@NONCE@"), 7, nonce);
        call.reply->send(200, "text/html; charset=utf-8", std::move(page), {
            {"Content-Security-Policy", "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"},
            {"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-cache"}});
        return true;
    }
    return false;
}

}  // namespace forge::server
