#include "generation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <mutex>
#include <optional>
#include <random>

#include "api/call_grammar.h"
#include "grammar/compile.h"
#include "infill.h"

namespace forge::server {
namespace {

using Clock = std::chrono::steady_clock;

// The time of one picture on a screen. Each writing takes a core from the threads that compute, here and where a client
// on the same machine reads, so that pieces of a stream that come faster are written together.
constexpr std::chrono::milliseconds between_writes{16};

SamplingOptions patched(SamplingOptions o, const SamplingPatch& p) {
    o.temperature = p.temperature.value_or(o.temperature);
    o.top_p = p.top_p.value_or(o.top_p);
    o.min_p = p.min_p.value_or(o.min_p);
    o.typical_p = p.typical_p.value_or(o.typical_p);
    o.repetition_penalty = p.repetition_penalty.value_or(o.repetition_penalty);
    o.presence_penalty = p.presence_penalty.value_or(o.presence_penalty);
    o.frequency_penalty = p.frequency_penalty.value_or(o.frequency_penalty);
    o.top_k = p.top_k.value_or(o.top_k);
    o.penalty_window = p.penalty_window.value_or(o.penalty_window);
    o.logit_bias = p.logit_bias;
    o.seed = p.seed ? *p.seed : std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
    return o;
}

// Refused rather than answered as if it had not been asked.
void check_tool_choice(const GenerateRequest& r) {
    if (r.tool_choice != ToolChoice::required && r.tool_choice != ToolChoice::named) return;
    if (r.tools.is_null()) bad_field("tool_choice", "tool_choice wants a tool to be called, and there are no tools");
    if (r.tool_choice == ToolChoice::named) {
        const bool known = std::any_of(r.tools.begin(), r.tools.end(), [&](const Json& t) { return t["function"]["name"] == r.tool_name; });
        if (!known) bad_field("tool_choice", "tool_choice names {}, and no tool is called that", r.tool_name.substr(0, 80));
    }
}

// What the answers are held to; null: nothing. Each answer needs one of its own.
class Constraints {
  public:
    Constraints(const GenerateRequest& r, const TextModel& model, ToolFamily family) {
        const bool chooses = r.tool_choice == ToolChoice::required || r.tool_choice == ToolChoice::named;
        const bool tools = !r.tools.is_null() && r.tool_choice != ToolChoice::none;
        if (r.form == AnswerForm::text && !tools) return;
        static const Json object = {{"type", "object"}};
        const Json* schema = r.form == AnswerForm::json_object ? &object : r.form == AnswerForm::json_schema ? &r.schema : nullptr;
        std::string field = r.form == AnswerForm::grammar ? "grammar" : r.form_field;
        try {
            if (schema) compile_schema(*schema);   // its own errors first, under its own name
            if (tools) {
                if (r.form == AnswerForm::grammar) bad_field("grammar", "an answer is held to a grammar or calls tools, not both: set tool_choice to none");
                field = "tools";
                const CallRules rules{family, std::string(model.text().templates().source(model.text().templates().choose(true))), r.tools,
                                      r.tool_choice == ToolChoice::named ? r.tool_name : "", r.parallel_tool_calls && r.tool_choice != ToolChoice::named};
                make_ = chooses || schema ? require_calls(rules, model.vocabulary(), chooses ? nullptr : schema) : check_calls(rules, model.vocabulary());
                return;
            }
            const auto grammar = std::make_shared<Grammar>(schema ? compile_schema(*schema) : compile_gbnf(r.grammar));
            make_ = [grammar, vocabulary = model.vocabulary()] { return hold_to(grammar, vocabulary); };
        } catch (const ApiError&) {
            throw;
        } catch (const Error& e) {
            throw ApiError(400, field, e.what());
        }
    }

    std::shared_ptr<TokenConstraint> next() const { return make_ ? make_() : nullptr; }

  private:
    ConstraintMaker make_;
};

// All answers of one request. The model's stepping thread only puts what it has to say into a list; the thread of the
// sockets takes it from there: it builds the JSON and writes it. The client's leaving comes from that thread too, the
// submission from a worker.
class Generation : public std::enable_shared_from_this<Generation> {
  public:
    Generation(std::shared_ptr<Served> served, bool stream, std::shared_ptr<Writer> writer, std::shared_ptr<http::Reply> reply,
               Metrics& metrics, double load_seconds, std::size_t count)
        : served_(std::move(served)), stream_(stream), writer_(std::move(writer)), reply_(std::move(reply)), metrics_(metrics), answers_(count) {
        totals_.load_seconds = load_seconds;
    }

    void start(std::vector<TextRequest> requests) {
        std::vector<std::uint64_t> ids;
        left_ = requests.size();
        for (std::size_t i = 0; i < requests.size(); ++i) {
            const int index = static_cast<int>(i);
            try {
                ids.push_back(served_->service.submit(std::move(requests[i]), {
                    [self = shared_from_this(), index](TextDelta&& delta) { return self->delta(index, std::move(delta)); },
                    [self = shared_from_this(), index](const TextDone& done) { self->say({index, {}, done, {}}); },
                    [self = shared_from_this(), index](const std::string& message) { self->say({index, {}, {}, message}); }}));
            } catch (...) {
                closed_ = true;   // what the others still say goes nowhere
                for (const std::uint64_t id : ids) served_->service.cancel(id);
                throw;
            }
        }
        {
            std::lock_guard lock(mutex_);
            ids_ = std::move(ids);
            if (stream_) {
                reply_->start(200, writer_->stream_type(), {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
                reply_->write(writer_->begin());
            }
        }
        reply_->on_gone([weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->gone();
        });
        reply_->defer([self = shared_from_this()] { self->listen(); });   // to what was said meanwhile
    }

  private:
    // What a model's thread says: more of an answer, its end, or an error.
    struct Event {
        int index = 0;
        std::optional<TextDelta> delta;
        std::optional<TextDone> done;
        std::optional<std::string> error;
    };

    // ---- on the model's thread
    bool delta(int index, TextDelta&& delta) {
        if (closed_) return false;
        const auto now = Clock::now();
        if (last_token_ == Clock::time_point()) metrics_.first_token.add(std::chrono::duration<double>(now - began_).count());
        else if (answers_.size() == 1) metrics_.between_tokens.add(std::chrono::duration<double>(now - last_token_).count());
        last_token_ = now;
        say({index, std::move(delta), {}, {}});
        return true;
    }

    void say(Event event) {
        const bool waits = !stream_ && event.delta;   // a whole answer is written at its end
        bool wake = false;
        {
            std::lock_guard lock(said_mutex_);
            const bool more = event.delta.has_value();   // of an answer whose last writing may be too young
            said_.push_back(std::move(event));
            if (!waits && !listening_ && !(more && resting_)) wake = listening_ = true;
        }
        if (wake) reply_->defer([self = shared_from_this()] { self->listen(); });
    }

    // ---- on the thread of the sockets
    void listen() {
        std::vector<Event> events;
        {
            std::lock_guard lock(said_mutex_);
            events.swap(said_);
            listening_ = false;
        }
        std::lock_guard lock(mutex_);
        if (closed_) return;
        std::string out;
        try {
            for (const Event& event : events) {
                if (closed_) break;
                if (event.delta) add(event.index, *event.delta, out);
                else if (event.done) end(event.index, *event.done, out);
                else fail(ApiError(500, "", *event.error), out);
            }
        } catch (const std::exception& error) {   // memory, mostly; it must not end the thread of all sockets
            fail(ApiError(500, "", error.what()), out);
        }
        if (!out.empty()) rest();
        if (!out.empty() && !reply_->write(std::move(out)) && !closed_) leave();   // the client is gone, and gone() has not come yet
        if (closed_ && stream_) reply_->end();
    }

    // What comes now waits a little, but for the end. Does not keep an answer alive that has ended meanwhile.
    void rest() {
        {
            std::lock_guard lock(said_mutex_);
            if (resting_) return;
            resting_ = true;
        }
        reply_->defer(between_writes, [weak = weak_from_this()] {
            const auto self = weak.lock();
            if (!self) return;
            {
                std::lock_guard lock(self->said_mutex_);
                self->resting_ = false;
                if (self->said_.empty() || self->listening_) return;
                self->listening_ = true;
            }
            self->listen();
        });
    }

    void add(int index, const TextDelta& delta, std::string& out) {
        answers_[static_cast<std::size_t>(index)].add(delta);
        if (stream_) out += writer_->delta(index, delta);
    }

    void end(int index, const TextDone& done, std::string& out) {
        if (done.reason == TextFinish::cancelled) return fail(ApiError(503, "", "the answer was cancelled, because the server is stopping"), out);
        Answer& answer = answers_[static_cast<std::size_t>(index)];
        answer.done = done;
        totals_.prompt_tokens += done.prompt_tokens;
        totals_.cached_tokens += done.cached_tokens;
        totals_.new_tokens += done.new_tokens;
        totals_.reasoning_tokens += done.reasoning_tokens;
        totals_.prompt_seconds = std::max(totals_.prompt_seconds, done.prompt_seconds);
        totals_.decode_seconds = std::max(totals_.decode_seconds, done.decode_seconds);
        metrics_.queue_time.add(done.queue_seconds);
        if (stream_) out += writer_->done(index, answer);
        if (--left_ > 0) return;
        closed_ = true;
        totals_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
        if (stream_) out += writer_->end(totals_);
        else reply_->send(200, "application/json", writer_->whole(answers_, totals_), {});
    }

    void fail(const ApiError& error, std::string& out) {
        closed_ = true;
        if (stream_) out += writer_->failed(error);
        else reply_->send(error.status(), "application/json", writer_->failed(error), {});
        for (const std::uint64_t id : ids_) served_->service.cancel(id);
    }

    void gone() {
        std::lock_guard lock(mutex_);
        if (!closed_) leave();
    }

    // Nobody reads the answer any more. Call with the lock.
    void leave() {
        closed_ = true;
        ++metrics_.cancelled;
        for (const std::uint64_t id : ids_) served_->service.cancel(id);
    }

    std::shared_ptr<Served> served_;
    const bool stream_;
    std::shared_ptr<Writer> writer_;
    std::shared_ptr<http::Reply> reply_;
    Metrics& metrics_;
    const Clock::time_point began_ = Clock::now();
    Clock::time_point last_token_;   // the model's thread's
    std::atomic<bool> closed_{false};

    std::mutex said_mutex_;
    std::vector<Event> said_;
    bool listening_ = true;          // listen() will come
    bool resting_ = false;           // something was written a short while ago

    std::mutex mutex_;               // what follows
    std::vector<Answer> answers_;
    Totals totals_;
    std::vector<std::uint64_t> ids_;
    std::size_t left_ = 0;
};

}  // namespace

std::vector<Prompt> build_prompts(const GenerateRequest& request, const TextModel& model) {
    std::vector<Prompt> prompts;
    if (request.conversation) {
        Conversation conversation = *request.conversation;
        conversation.tools = request.tools;
        try {
            prompts.push_back(model.text().chat_prompt(conversation, request.chat));
        } catch (const ApiError&) {
            throw;
        } catch (const Error& error) {
            throw ApiError(400, "messages", error.what());   // the template's own refusal, mostly
        }
    }
    for (const std::string& text : request.texts)
        prompts.push_back(request.suffix ? infill_prompt(model, text, *request.suffix) : model.text().raw_prompt(text));
    for (const auto& ids : request.ids) {
        for (const std::int32_t id : ids)
            if (id < 0 || id >= model.id_limit()) bad_field("prompt", "prompt holds the token id {}, and ids are 0 to {}", id, model.id_limit() - 1);
        prompts.push_back({ids, model.tokenizer()->decode(ids), false});
    }
    return prompts;
}

void generate(const std::shared_ptr<Served>& served, GenerateRequest request, std::shared_ptr<Writer> writer,
              std::shared_ptr<http::Reply> reply, Metrics& metrics, double load_seconds) {
    const TextModel& model = served->service.model();
    const int context = model.engine()->options().ctx;
    const SamplingOptions sampling = patched(served->sampling, request.sampling);
    const bool chat = request.conversation.has_value();
    check_tool_choice(request);
    for (const auto& [id, bias] : request.sampling.logit_bias)
        if (id >= model.id_limit()) bad_field("logit_bias", "logit_bias names the token id {}, and ids are 0 to {}", id, model.id_limit() - 1);
    std::vector<Prompt> prompts = build_prompts(request, model);
    const ToolFamily family = request.tools.is_null() ? ToolFamily::none : tool_family(model.text().templates().source(model.text().templates().choose(true)));
    Constraints constraints(request, model, family);
    std::vector<TextRequest> requests;
    for (Prompt& prompt : prompts) {
        if (prompt.ids.empty()) bad_field("prompt", "the prompt is empty");
        if (static_cast<int>(prompt.ids.size()) > context)
            throw ApiError(400, chat ? "messages" : "prompt",
                           fmt::format("the prompt has {} tokens, and the context holds {}; shorten it, or start the server with a longer one (--ctx)", prompt.ids.size(), context),
                           "context_length_exceeded");
        if (request.echo) writer->prompts.push_back(prompt.text);
        for (int i = 0; i < request.n; ++i) {
            TextRequest one;
            one.prompt = prompt;
            one.sampling = sampling;
            one.sampling.seed += static_cast<std::uint64_t>(i);
            one.max_tokens = request.max_tokens;
            one.stop = request.stop;
            one.ignore_stop = request.ignore_stop;
            one.top_logprobs = request.top_logprobs;
            one.split_reasoning = request.split_reasoning;
            one.thinking_budget = request.thinking_budget;
            one.constraint = constraints.next();
            if (!request.tools.is_null() && request.tool_choice != ToolChoice::none) {
                one.tools = family;
                one.tool_options = ToolCallParser::Options{request.tools, request.parallel_tool_calls, one.sampling.seed + std::random_device{}()};
            }
            requests.push_back(std::move(one));
        }
    }
    writer->model = served->name;
    writer->id = random_id();
    writer->created = std::time(nullptr);
    writer->prompt_tokens = static_cast<int>(prompts.at(0).ids.size());
    const std::size_t count = requests.size();
    const auto generation = std::make_shared<Generation>(served, request.stream, std::move(writer), std::move(reply), metrics, load_seconds, count);
    generation->start(std::move(requests));
}

void warm_up(Served& served) {
    TextRequest request;
    request.prompt.ids = {0};
    request.max_tokens = 1;
    const auto end = std::make_shared<std::promise<std::string>>();   // of both threads
    served.service.submit(std::move(request), {{}, [end](const TextDone&) { end->set_value(""); }, [end](const std::string& error) { end->set_value(error); }});
    if (const std::string error = end->get_future().get(); !error.empty()) fail("{} cannot compute a token: {}", served.name, error);
}

}  // namespace forge::server
