#include "embeddings.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>

#include "app.h"
#include "ollama.h"
#include "openai.h"

namespace forge::server {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t most_inputs = 2048;   // the hosted API's

// What the file's makers meant; GGUF's numbers are 1 mean, 3 last.
Pooling default_pooling(const Engine& engine) {
    const std::int64_t type = engine.file().metadata.integer(engine.spec().architecture + ".pooling_type", 0);
    return type == 1 ? Pooling::mean : Pooling::last;
}

// One text after the other, so that a long list leaves room for others in the queue. Callbacks come from the
// stepping thread, the client's leaving from the I/O thread; a worker writes the answer, which can be long.
class EmbeddingJob : public std::enable_shared_from_this<EmbeddingJob> {
  public:
    EmbeddingJob(std::shared_ptr<Served> served, std::vector<std::vector<std::int32_t>> texts, Pooling pooling, std::size_t dimensions,
                 EmbeddingBody body, std::shared_ptr<http::Reply> reply, std::string path, Metrics& metrics, double load_seconds)
        : served_(std::move(served)), texts_(std::move(texts)), pooling_(pooling), dimensions_(dimensions), body_(std::move(body)),
          reply_(std::move(reply)), path_(std::move(path)), metrics_(metrics) {
        answer_.model = served_->name;
        answer_.load_seconds = load_seconds;
        for (const auto& text : texts_) answer_.prompt_tokens += static_cast<std::int64_t>(text.size());
    }

    // QueueFull for the first text only.
    void start() {
        submit();
        reply_->on_gone([weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->gone();
        });
    }

  private:
    void submit() {
        BatchRequest request;
        std::lock_guard lock(mutex_);
        if (over_) return;
        request.prompt = texts_[answer_.vectors.size()];
        request.pooling = pooling_;
        request.on_embedding = [self = shared_from_this()](std::span<const float> vector) { self->add(vector); };
        request.on_done = [self = shared_from_this()](FinishReason reason, const BatchStats&) { self->done(reason); };
        request.on_error = [self = shared_from_this()](const std::string& error) { self->fail(ApiError(500, "", error)); };
        id_ = served_->service.batcher().submit(std::move(request));
    }

    void add(std::span<const float> vector) {
        std::vector<float> kept(vector.begin(), vector.begin() + static_cast<std::ptrdiff_t>(std::min(dimensions_, vector.size())));
        double squares = 0;
        for (const float x : kept) squares += double(x) * x;
        if (kept.size() < vector.size() && squares > 0)
            for (float& x : kept) x = static_cast<float>(x / std::sqrt(squares));
        answer_.vectors.push_back(std::move(kept));
        finite_ = finite_ && std::isfinite(squares);
    }

    void done(FinishReason reason) {
        if (reason == FinishReason::cancelled) return fail(ApiError(503, "", "the answer was cancelled, because the server is stopping"));
        if (!finite_) return fail(ApiError(500, "", "the model computed a vector that is not finite"));
        if (answer_.vectors.size() < texts_.size()) {
            try {
                submit();
            } catch (const Error& error) {
                fail(as_api_error(error));
            } catch (const std::exception& error) {
                fail(ApiError(500, "", error.what()));
            }
            return;
        }
        answer_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
        reply_->again([self = shared_from_this()] {
            std::string body;
            try {
                body = self->body_(self->answer_);
            } catch (const std::exception& error) {   // memory, mostly
                return self->fail(ApiError(503, "", error.what()));
            }
            if (self->end()) self->reply_->send(200, "application/json", std::move(body));
        });
    }

    void fail(const ApiError& error) {
        if (end()) send_error(*reply_, path_, error, metrics_);
    }

    bool end() {
        std::lock_guard lock(mutex_);
        return !std::exchange(over_, true);
    }

    void gone() {
        if (!end()) return;
        ++metrics_.cancelled;
        std::lock_guard lock(mutex_);
        served_->service.cancel(id_);
    }

    std::shared_ptr<Served> served_;
    std::vector<std::vector<std::int32_t>> texts_;
    Pooling pooling_;
    std::size_t dimensions_;
    EmbeddingBody body_;
    std::shared_ptr<http::Reply> reply_;
    std::string path_;
    Metrics& metrics_;
    EmbeddingAnswer answer_;
    std::mutex mutex_;
    std::uint64_t id_ = 0;
    bool over_ = false, finite_ = true;
    Clock::time_point began_ = Clock::now();
};

std::optional<Pooling> read_pooling(Fields& f) {
    const auto name = f.text("pooling");
    if (!name) return std::nullopt;
    if (*name == "last") return Pooling::last;
    if (*name == "mean") return Pooling::mean;
    bad_field("pooling", "pooling should be \"last\" or \"mean\", found \"{}\"", name->substr(0, 40));
}

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

void read_input(Fields& f, EmbeddingRequest& r) {
    const Json* input = f.find("input");
    if (!input) bad_field("input", "input is missing; it should be a text, or token ids, or a list of these");
    const auto none_empty = [](std::size_t i, bool empty) {
        if (empty) bad_field("input", "input[{}] is empty, and nothing can be said about nothing", i);
    };
    if (input->is_string()) r.texts.push_back(input->get<std::string>());
    else if (!input->is_array() || input->empty())
        bad_field("input", "input should be a text, or token ids, or a list of these, found {}", input->is_array() ? "an empty list" : describe(*input));
    else if (input->size() > most_inputs && !(*input)[0].is_number())
        bad_field("input", "input holds {} texts, and at most {} are answered at once", input->size(), most_inputs);
    else if ((*input)[0].is_string()) r.texts = f.texts("input", most_inputs);
    else if ((*input)[0].is_number()) r.ids.push_back(id_list(*input, "input"));
    else
        for (std::size_t i = 0; i < input->size(); ++i) {
            const std::string field = fmt::format("input[{}]", i);
            if (!(*input)[i].is_array()) bad_field(field, "{} should be a list of token ids, found {}", field, describe((*input)[i]));
            r.ids.push_back(id_list((*input)[i], field));
        }
    for (std::size_t i = 0; i < r.texts.size(); ++i) none_empty(i, r.texts[i].empty());
    for (std::size_t i = 0; i < r.ids.size(); ++i) none_empty(i, r.ids[i].empty());
}

void embed(const Call& call, EmbeddingRequest r, EmbeddingBody body) {
    double load_seconds = 0;
    const auto served = call.app.models.get(r.model, &load_seconds);
    served->keep(r.keep_alive);
    const TextModel& model = served->service.model();
    const Engine& engine = *model.engine();
    const auto context = static_cast<std::size_t>(engine.options().ctx);
    const auto hidden = static_cast<std::size_t>(engine.spec().hidden);
    if (r.dimensions && *r.dimensions > hidden) bad_field("dimensions", "dimensions should be from 1 to {}, found {}", hidden, *r.dimensions);
    std::vector<std::vector<std::int32_t>> texts = std::move(r.ids);
    for (const auto& ids : texts)
        for (const std::int32_t id : ids)
            if (id >= model.id_limit()) bad_field("input", "input holds the token id {}, and ids are 0 to {}", id, model.id_limit() - 1);
    for (const std::string& text : r.texts) texts.push_back(model.text().raw_prompt(text).ids);
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].empty()) bad_field("input", "input[{}] has no tokens", i);
        if (texts[i].size() <= context) continue;
        if (!r.truncate)
            throw ApiError(400, "input", fmt::format("input[{}] has {} tokens, and the context holds {}; shorten it, or start the server with a longer one (--ctx)", i, texts[i].size(), context), "context_length_exceeded");
        texts[i].resize(context);
    }
    std::make_shared<EmbeddingJob>(served, std::move(texts), r.pooling.value_or(default_pooling(engine)), r.dimensions.value_or(hidden),
                                   std::move(body), call.reply, call.request.path, call.app.metrics, load_seconds)->start();
}

void openai_embeddings(const Call& call) {
    const Json json = call.body();
    Fields f(json);
    EmbeddingRequest r;
    r.model = f.text("model").value_or("");
    read_input(f, r);
    r.pooling = read_pooling(f);
    if (const auto n = f.whole("dimensions", 1, 1 << 20)) r.dimensions = static_cast<std::size_t>(*n);
    const std::string encoding = f.text("encoding_format").value_or("float");
    if (encoding != "float" && encoding != "base64") bad_field("encoding_format", "encoding_format should be \"float\" or \"base64\", found \"{}\"", encoding.substr(0, 40));
    f.ignore({"user", "metadata"});
    f.finish();
    embed(call, std::move(r), [binary = encoding == "base64"](const EmbeddingAnswer& a) {
        std::string out = "{\"object\":\"list\",\"data\":[";
        for (std::size_t i = 0; i < a.vectors.size(); ++i) {
            const auto* bytes = reinterpret_cast<const char*>(a.vectors[i].data());   // little-endian, as is every machine Forge runs on
            const std::string vector = binary ? "\"" + base64({bytes, a.vectors[i].size() * 4}) + "\"" : vector_text(a.vectors[i]);
            out += fmt::format("{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":{}}}", i ? "," : "", i, vector);
        }
        return out + fmt::format("],\"model\":{},\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{}}}}}", dump(a.model), a.prompt_tokens, a.prompt_tokens);
    });
}

void ollama_embed(const Call& call, bool old) {
    const Json json = call.body();
    Fields f(json);
    EmbeddingRequest r;
    r.model = f.text("model").value_or("");
    if (r.model.empty()) bad_field("model", "model is missing");
    r.truncate = f.flag("truncate").value_or(true);
    if (old) {
        r.texts.push_back(f.text("prompt").value_or(""));
        if (r.texts[0].empty()) bad_field("prompt", "prompt is missing; it should be a text");
    } else {
        read_input(f, r);
        if (const auto n = f.whole("dimensions", 1, 1 << 20)) r.dimensions = static_cast<std::size_t>(*n);
    }
    r.pooling = read_pooling(f);
    if (const Json* keep = f.find("keep_alive")) r.keep_alive = seconds_of(*keep);
    f.ignore({"options"});
    f.finish();
    embed(call, std::move(r), [old](const EmbeddingAnswer& a) {
        if (old) return "{\"embedding\":" + vector_text(a.vectors.at(0)) + "}";
        std::string out = fmt::format("{{\"model\":{},\"embeddings\":[", dump(a.model));
        for (std::size_t i = 0; i < a.vectors.size(); ++i) out += (i ? "," : "") + vector_text(a.vectors[i]);
        return out + fmt::format("],\"total_duration\":{},\"load_duration\":{},\"prompt_eval_count\":{}}}", nanoseconds(a.seconds + a.load_seconds),
                                 nanoseconds(a.load_seconds), a.prompt_tokens);
    });
}

std::string vector_text(const std::vector<float>& vector) {
    std::string out = "[";
    for (const float x : vector) {
        if (out.size() > 1) out += ',';
        fmt::format_to(std::back_inserter(out), "{}", x);
    }
    return out + "]";
}

std::string base64(std::string_view bytes) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const auto byte = [&](std::size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
        const unsigned all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (std::size_t k = 0; k < 4; ++k) out += k <= bytes.size() - i ? letters[all >> (18 - 6 * k) & 63] : '=';
    }
    return out;
}

}  // namespace forge::server
