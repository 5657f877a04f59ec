// forge.h over the rooms: no exception leaves, every failure becomes a status and a sentence.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "api/text_model.h"
#include "base/error.h"
#include "base/json.h"
#include "forge/forge.h"

struct forge_model {
    std::shared_ptr<const forge::TextModel> model;
};

struct forge_session {
    std::shared_ptr<const forge::TextModel> model;
    forge::Session session;
    explicit forge_session(std::shared_ptr<const forge::TextModel> m) : model(std::move(m)), session(model->engine()) {}
};

namespace {

using namespace forge;
using Json = nlohmann::ordered_json;

thread_local std::string last_error = "there was no error";
thread_local forge_status last_status = FORGE_OK;

forge_status status_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::invalid_input: return FORGE_INVALID_INPUT;
        case ErrorKind::unsupported: return FORGE_UNSUPPORTED;
        case ErrorKind::not_found: return FORGE_NOT_FOUND;
        case ErrorKind::out_of_memory: return FORGE_OUT_OF_MEMORY;
        case ErrorKind::io: return FORGE_IO;
        case ErrorKind::internal: return FORGE_INTERNAL;
    }
    return FORGE_INTERNAL;
}

// Runs body and remembers what it throws. Even keeping the sentence may fail when memory is short.
template <typename Body>
forge_status guarded(const Body& body) noexcept {
    const auto remember = [](forge_status status, const char* text) {
        last_status = status;
        try {
            last_error = text;
        } catch (...) {
            last_error.clear();
        }
        return status;
    };
    try {
        body();
        return FORGE_OK;
    } catch (const Error& error) {
        return remember(status_of(error.kind()), error.what());
    } catch (const std::bad_alloc&) {
        return remember(FORGE_OUT_OF_MEMORY, "memory ran out");
    } catch (const std::exception& error) {
        return remember(FORGE_INTERNAL, error.what());
    } catch (...) {
        return remember(FORGE_INTERNAL, "an unknown exception was thrown");
    }
}

void want(const void* pointer, const char* name) {
    if (!pointer) fail("{} is NULL", name);
}

// The caller's struct may be older, and so shorter, than ours: what it lacks keeps our defaults.
template <typename T>
T completed(const T* given, T defaults, const char* name) {
    if (!given) return defaults;
    if (given->size < sizeof(std::size_t) || given->size > 4096)
        fail("{}.size is {}; fill the struct with its _init function first", name, given->size);
    std::memcpy(static_cast<void*>(&defaults), given, std::min(given->size, sizeof(T)));
    return defaults;
}

forge::LoadOptions load_options(const forge_load_options* given) {
    forge_load_options defaults;
    forge_load_options_init(&defaults);
    const forge_load_options raw = completed(given, defaults, "forge_load_options");
    forge::LoadOptions options;
    if (raw.device) options.device = raw.device;
    const std::string dtype = raw.dtype ? raw.dtype : "bf16";
    if (dtype == "bf16") {
        options.dtype = DType::bf16;
    } else if (dtype == "f16") {
        options.dtype = DType::f16;
    } else if (dtype == "f32") {
        options.dtype = DType::f32;
    } else {
        fail("the dtype should be bf16, f16 or f32, found {}", dtype);
    }
    options.threads = raw.threads;
    options.ctx = raw.context;
    options.parallel = raw.sessions;
    return options;
}

struct Request {
    ReplyOptions options;
    Json variables;
};

Request request_of(const forge_generate_options* given, const TextModel& model) {
    forge_generate_options defaults;
    const forge_model handle{std::shared_ptr<const TextModel>(std::shared_ptr<const TextModel>(), &model)};
    forge_generate_options_init(&defaults, &handle);
    const forge_generate_options raw = completed(given, defaults, "forge_generate_options");
    Request request;
    SamplingOptions& s = request.options.sampling;
    s.temperature = raw.temperature;
    s.top_k = raw.top_k;
    s.top_p = raw.top_p;
    s.min_p = raw.min_p;
    s.typical_p = raw.typical_p;
    s.repetition_penalty = raw.repetition_penalty;
    s.presence_penalty = raw.presence_penalty;
    s.frequency_penalty = raw.frequency_penalty;
    s.penalty_window = raw.penalty_window;
    s.seed = raw.seed;
    request.options.max_tokens = raw.max_tokens;
    for (std::size_t i = 0; i < raw.stop_count; ++i) {
        want(raw.stop, "forge_generate_options.stop");
        want(raw.stop[i], "an entry of forge_generate_options.stop");
        request.options.stop.emplace_back(raw.stop[i]);
    }
    if (raw.variables) {
        request.variables = parse_json<Json>(raw.variables, "forge_generate_options.variables", false);
        if (!request.variables.is_object()) fail("forge_generate_options.variables should be a JSON object");
    }
    return request;
}

void answer(forge_session& session, const Prompt& prompt, const Request& request, forge_callback callback, void* user,
            forge_result* result) {
    forge_result filled;
    forge_result_init(&filled);
    if (result && (result->size < sizeof(std::size_t) || result->size > 4096))
        fail("forge_result.size is {}; fill the struct with forge_result_init first", result->size);
    const Reply r = reply(*session.model, session.session, prompt, request.options, [&](PieceKind kind, std::string_view text) {
        return !callback || callback(user, kind == PieceKind::reasoning ? FORGE_REASONING : FORGE_ANSWER, text.data(), text.size()) == 0;
    });
    filled.reason = r.reason == FinishReason::stop ? FORGE_STOPPED : r.reason == FinishReason::length ? FORGE_LENGTH : FORGE_CANCELLED;
    filled.prompt_tokens = r.prompt_tokens;
    filled.cached_tokens = r.cached_tokens;
    filled.new_tokens = r.new_tokens;
    filled.prompt_seconds = r.prompt_seconds;
    filled.decode_seconds = r.decode_seconds;
    if (result) {
        filled.size = result->size;
        std::memcpy(static_cast<void*>(result), &filled, std::min(filled.size, sizeof filled));
    }
}

}  // namespace

extern "C" {

const char* forge_version(void) { return FORGE_VERSION_TEXT; }
const char* forge_last_error(void) { return last_error.c_str(); }
forge_status forge_last_status(void) { return last_status; }

void forge_load_options_init(forge_load_options* options) {
    if (options) *options = {sizeof(forge_load_options), "auto", "bf16", 0, 0, 1};
}

forge_model* forge_model_load(const char* path, const forge_load_options* options) {
    forge_model* result = nullptr;
    guarded([&] {
        want(path, "path");
        result = new forge_model{TextModel::load(path, load_options(options))};
    });
    return result;
}

void forge_model_free(forge_model* model) { delete model; }
int32_t forge_model_context(const forge_model* model) { return model ? model->model->engine()->options().ctx : 0; }
int forge_model_can_chat(const forge_model* model) { return model && model->model->text().has_chat_template(); }

int64_t forge_tokenize(const forge_model* model, const char* text, int add_bos, int special, int32_t* ids, size_t capacity) {
    int64_t count = -1;
    guarded([&] {
        want(model, "model");
        want(text, "text");
        const auto made = model->model->tokenizer()->encode(text, {.add_bos = add_bos != 0, .parse_special = special != 0});
        if (ids) std::copy_n(made.begin(), std::min(made.size(), capacity), ids);
        count = static_cast<int64_t>(made.size());
    });
    return count;
}

int64_t forge_detokenize(const forge_model* model, const int32_t* ids, size_t count, char* text, size_t capacity) {
    int64_t length = -1;
    guarded([&] {
        want(model, "model");
        if (count > 0) want(ids, "ids");
        for (size_t i = 0; i < count; ++i)
            if (ids[i] < 0 || ids[i] >= model->model->tokenizer()->size()) fail("token id {} is not in the vocabulary", ids[i]);
        const std::string made = model->model->tokenizer()->decode({ids, count});
        if (text) std::copy_n(made.begin(), std::min(made.size(), capacity), text);
        length = static_cast<int64_t>(made.size());
    });
    return length;
}

forge_session* forge_session_new(const forge_model* model) {
    forge_session* result = nullptr;
    guarded([&] {
        want(model, "model");
        result = new forge_session(model->model);
    });
    return result;
}

void forge_session_free(forge_session* session) { delete session; }
void forge_session_clear(forge_session* session) {
    if (session) session->session.clear();
}
int32_t forge_session_tokens(const forge_session* session) {
    return session ? static_cast<int32_t>(session->session.tokens().size()) : 0;
}

void forge_generate_options_init(forge_generate_options* options, const forge_model* model) {
    if (!options) return;
    SamplingOptions s;
    if (model) guarded([&] { s = default_sampling(model->model->engine()->file()); });
    *options = {sizeof(forge_generate_options), s.temperature, s.top_k, s.top_p, s.min_p, s.typical_p, s.repetition_penalty,
                s.presence_penalty, s.frequency_penalty, s.penalty_window, s.seed, -1, nullptr, 0, nullptr};
}

void forge_result_init(forge_result* result) {
    if (result) *result = {sizeof(forge_result), FORGE_STOPPED, 0, 0, 0, 0, 0};
}

forge_status forge_generate(forge_session* session, const char* prompt, const forge_generate_options* options, forge_callback callback,
                            void* user, forge_result* result) {
    return guarded([&] {
        want(session, "session");
        want(prompt, "prompt");
        const Request request = request_of(options, *session->model);
        answer(*session, session->model->text().raw_prompt(prompt), request, callback, user, result);
    });
}

forge_status forge_chat(forge_session* session, const forge_message* messages, size_t count, const forge_generate_options* options,
                        forge_callback callback, void* user, forge_result* result) {
    return guarded([&] {
        want(session, "session");
        if (count > 0) want(messages, "messages");
        Json list = Json::array();
        for (size_t i = 0; i < count; ++i) {
            want(messages[i].role, "a message's role");
            want(messages[i].content, "a message's content");
            list.push_back({{"role", messages[i].role}, {"content", messages[i].content}});
        }
        const Request request = request_of(options, *session->model);
        answer(*session, session->model->text().chat_prompt(list, request.variables), request, callback, user, result);
    });
}

forge_status forge_chat_json(forge_session* session, const char* messages, const forge_generate_options* options,
                             forge_callback callback, void* user, forge_result* result) {
    return guarded([&] {
        want(session, "session");
        want(messages, "messages");
        const Json list = parse_json<Json>(messages, "the messages", false);
        if (!list.is_array()) fail("the messages should be a JSON list");
        const Request request = request_of(options, *session->model);
        answer(*session, session->model->text().chat_prompt(list, request.variables), request, callback, user, result);
    });
}

}  // extern "C"
