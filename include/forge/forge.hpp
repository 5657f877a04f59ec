// The C++ interface of Forge, over forge.h: owners instead of frees, exceptions instead of statuses.
//
//   forge::Model model("model.gguf");
//   forge::Session session(model);
//   session.chat({{"user", "Hello"}}, [](std::string_view text) { std::cout << text; return true; });
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forge/forge.h"

namespace forge {
inline namespace api_v0 {

class Error : public std::runtime_error {
  public:
    Error(forge_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    forge_status status() const { return status_; }

  private:
    forge_status status_;
};

namespace detail {
[[noreturn]] inline void throw_last() { throw Error(forge_last_status(), forge_last_error()); }
}  // namespace detail

struct LoadOptions {
    std::string device = "auto", dtype = "bf16";
    int threads = 0, context = 0, sessions = 1;
};

class Model {
  public:
    explicit Model(const std::string& path, const LoadOptions& options = {}) {
        forge_load_options raw;
        forge_load_options_init(&raw);
        raw.device = options.device.c_str();
        raw.dtype = options.dtype.c_str();
        raw.threads = options.threads;
        raw.context = options.context;
        raw.sessions = options.sessions;
        model_.reset(forge_model_load(path.c_str(), &raw), forge_model_free);
        if (!model_) detail::throw_last();
    }

    int context() const { return forge_model_context(model_.get()); }
    bool can_chat() const { return forge_model_can_chat(model_.get()) != 0; }

    std::vector<std::int32_t> tokenize(const std::string& text, bool add_bos = false, bool special = false) const {
        std::vector<std::int32_t> ids(text.size() + 8);
        auto count = forge_tokenize(model_.get(), text.c_str(), add_bos, special, ids.data(), ids.size());
        if (count > static_cast<std::int64_t>(ids.size())) {
            ids.resize(static_cast<std::size_t>(count));
            count = forge_tokenize(model_.get(), text.c_str(), add_bos, special, ids.data(), ids.size());
        }
        if (count < 0) detail::throw_last();
        ids.resize(static_cast<std::size_t>(count));
        return ids;
    }

    std::string detokenize(const std::vector<std::int32_t>& ids) const {
        std::string text(ids.size() * 8 + 8, '\0');
        auto length = forge_detokenize(model_.get(), ids.data(), ids.size(), text.data(), text.size());
        if (length > static_cast<std::int64_t>(text.size())) {
            text.resize(static_cast<std::size_t>(length));
            length = forge_detokenize(model_.get(), ids.data(), ids.size(), text.data(), text.size());
        }
        if (length < 0) detail::throw_last();
        text.resize(static_cast<std::size_t>(length));
        return text;
    }

    forge_model* get() const { return model_.get(); }

  private:
    std::shared_ptr<forge_model> model_;
};

struct Message { std::string role, content; };

// The model's recommendation where nothing is set here (Options(model)), or general defaults.
struct Options {
    Options() { forge_generate_options_init(&raw, nullptr); }
    explicit Options(const Model& model) { forge_generate_options_init(&raw, model.get()); }

    forge_generate_options raw;             // temperature, top_k, seed, max_tokens, ...
    std::vector<std::string> stop;          // used instead of raw.stop
    std::string variables;                  // JSON, used instead of raw.variables
};

struct Answer {
    std::string text, reasoning;
    forge_result result;
};

class Session {
  public:
    // Gets pieces of the answer as they come; returns false to stop.
    using OnText = std::function<bool(std::string_view)>;

    explicit Session(const Model& model) : session_(forge_session_new(model.get()), forge_session_free), defaults_(model) {
        if (!session_) detail::throw_last();
    }

    Answer generate(const std::string& prompt, const OnText& on_text = {}) { return generate(prompt, defaults_, on_text); }
    Answer generate(const std::string& prompt, const Options& options, const OnText& on_text = {}) {
        return collect(options, on_text, [&](const forge_generate_options* raw, Sink* sink, forge_result* result) {
            return forge_generate(session_.get(), prompt.c_str(), raw, &Sink::receive, sink, result);
        });
    }

    Answer chat(const std::vector<Message>& messages, const OnText& on_text = {}) { return chat(messages, defaults_, on_text); }
    Answer chat(const std::vector<Message>& messages, const Options& options, const OnText& on_text = {}) {
        std::vector<forge_message> raw_messages;
        for (const Message& message : messages) raw_messages.push_back({message.role.c_str(), message.content.c_str()});
        return collect(options, on_text, [&](const forge_generate_options* raw, Sink* sink, forge_result* result) {
            return forge_chat(session_.get(), raw_messages.data(), raw_messages.size(), raw, &Sink::receive, sink, result);
        });
    }

    void clear() { forge_session_clear(session_.get()); }
    int tokens() const { return forge_session_tokens(session_.get()); }

  private:
    struct Sink {
        Answer answer;
        const OnText* on_text;
        std::exception_ptr error;

        static int receive(void* user, forge_piece kind, const char* text, std::size_t length) noexcept {
            Sink& sink = *static_cast<Sink*>(user);
            try {
                const std::string_view piece(text, length);
                (kind == FORGE_REASONING ? sink.answer.reasoning : sink.answer.text) += piece;
                return kind == FORGE_ANSWER && *sink.on_text && !(*sink.on_text)(piece);
            } catch (...) {
                sink.error = std::current_exception();
                return 1;
            }
        }
    };

    template <typename Call>
    static Answer collect(const Options& options, const OnText& on_text, const Call& call) {
        Sink sink{{}, &on_text, nullptr};
        forge_result_init(&sink.answer.result);
        forge_generate_options raw = options.raw;
        std::vector<const char*> stop;
        for (const std::string& text : options.stop) stop.push_back(text.c_str());
        if (!stop.empty()) {
            raw.stop = stop.data();
            raw.stop_count = stop.size();
        }
        if (!options.variables.empty()) raw.variables = options.variables.c_str();
        const forge_status status = call(&raw, &sink, &sink.answer.result);
        if (sink.error) std::rethrow_exception(sink.error);
        if (status != FORGE_OK) detail::throw_last();
        return std::move(sink.answer);
    }

    std::shared_ptr<forge_session> session_;
    Options defaults_;
};

}  // namespace api_v0
}  // namespace forge
