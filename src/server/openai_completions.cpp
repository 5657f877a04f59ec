// /v1/completions
#include "openai.h"

namespace forge::server {
namespace {

std::string valid(const std::string& bytes) {   // a token may be a part of a character
    return Json::parse(dump(Json(bytes))).get<std::string>();
}

class CompletionWriter final : public Writer {
  public:
    CompletionWriter(const GenerateRequest& r) : usage_(r.include_usage), stream_(r.stream), logprobs_(r.top_logprobs >= 0), n_(r.n) {}

    std::string begin() override {
        std::string out;
        for (std::size_t i = 0; i < prompts.size() * static_cast<std::size_t>(n_); ++i)
            out += chunk(static_cast<int>(i), prompts[i / static_cast<std::size_t>(n_)], nullptr, {});
        return out;
    }
    std::string delta(int index, const TextDelta& d) override { return chunk(index, d.content, nullptr, d.logprobs); }
    std::string done(int index, const Answer& answer) override { return chunk(index, "", openai_finish(answer.done.reason), {}); }
    std::string end(const Totals& totals) override {
        std::string out;
        if (usage_) {
            Json json = frame();
            json["choices"] = Json::array();
            json["usage"] = openai_usage(totals);
            out = sse(json);
        }
        return out + "data: [DONE]\n\n";
    }
    std::string failed(const ApiError& error) override { return stream_ ? sse(openai_error(error)) : dump(openai_error(error)); }

    std::string whole(const std::vector<Answer>& answers, const Totals& totals) override {
        Json json = frame();
        json["choices"] = Json::array();
        for (std::size_t i = 0; i < answers.size(); ++i) {
            const std::string before = prompts.empty() ? "" : prompts[i / static_cast<std::size_t>(n_)];
            json["choices"].push_back({{"index", i}, {"text", before + answers[i].content},
                                       {"logprobs", logprobs_ ? logprobs_json(answers[i].logprobs, before.size()) : Json()},
                                       {"finish_reason", openai_finish(answers[i].done.reason)}});
        }
        json["usage"] = openai_usage(totals);
        return dump(json);
    }

  private:
    static Json logprobs_json(const std::vector<TokenLogprob>& tokens, std::size_t offset) {
        Json json = {{"tokens", Json::array()}, {"token_logprobs", Json::array()}, {"top_logprobs", Json::array()}, {"text_offset", Json::array()}};
        for (const TokenLogprob& t : tokens) {
            json["tokens"].push_back(valid(t.bytes));
            json["token_logprobs"].push_back(std::max(t.logprob, -9999.0f));
            Json top = Json::object();
            for (const auto& other : t.top) top[valid(other.bytes)] = std::max(other.logprob, -9999.0f);
            json["top_logprobs"].push_back(std::move(top));
            json["text_offset"].push_back(offset);
            offset += t.bytes.size();
        }
        return json;
    }
    Json frame() const {
        return {{"id", "cmpl-" + id}, {"object", "text_completion"}, {"created", created}, {"model", model}, {"system_fingerprint", "forge"}};
    }
    std::string chunk(int index, const std::string& text, Json finish, const std::vector<TokenLogprob>& tokens) {
        if (offsets_.size() <= static_cast<std::size_t>(index)) offsets_.resize(static_cast<std::size_t>(index) + 1);
        if (chunk_frame_.empty()) chunk_frame_ = dump(frame());
        std::size_t& offset = offsets_[static_cast<std::size_t>(index)];
        const Json choice = {{"index", index}, {"text", text}, {"logprobs", logprobs_ && !tokens.empty() ? logprobs_json(tokens, offset) : Json()}, {"finish_reason", std::move(finish)}};
        offset += text.size();
        return sse_choice(chunk_frame_, choice, usage_);
    }

    bool usage_, stream_, logprobs_;
    int n_;
    std::vector<std::size_t> offsets_;   // bytes said so far, for each answer
    std::string chunk_frame_;            // written once, not with each token
};

}  // namespace

std::vector<std::int32_t> id_list(const Json& list, const std::string& field) {
    std::vector<std::int32_t> ids;
    for (const Json& id : list) {
        if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > INT32_MAX)
            bad_field(field, "{} should hold token ids, found {}", field, describe(id));
        ids.push_back(id.get<std::int32_t>());
    }
    return ids;
}

Translated openai_completion(const Json& body) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    const Json* prompt = f.find("prompt");
    if (!prompt) bad_field("prompt", "prompt is missing; it should be a text, or token ids, or a list of these");
    if (prompt->is_string()) {
        r.texts.push_back(prompt->get<std::string>());
    } else if (prompt->is_array() && !prompt->empty()) {
        if (prompt->size() > 128 && !(*prompt)[0].is_number()) bad_field("prompt", "prompt holds {} prompts, and at most 128 are answered at once", prompt->size());
        if ((*prompt)[0].is_number()) r.ids.push_back(id_list(*prompt, "prompt"));
        else if ((*prompt)[0].is_string()) r.texts = f.texts("prompt", 128);
        else
            for (std::size_t i = 0; i < prompt->size(); ++i) {
                if (!(*prompt)[i].is_array()) bad_field("prompt", "prompt[{}] should be a list of token ids, found {}", i, describe((*prompt)[i]));
                r.ids.push_back(id_list((*prompt)[i], fmt::format("prompt[{}]", i)));
            }
    } else {
        bad_field("prompt", "prompt should be a text, or token ids, or a list of these, found {}", describe(*prompt));
    }
    read_sampling(f, r);
    read_form(f, r);
    r.max_tokens = static_cast<int>(f.whole("max_tokens", -1, 1 << 30).value_or(16));   // the hosted API's default
    r.suffix = f.text("suffix");
    if (r.suffix && (r.texts.size() != 1)) bad_field("suffix", "suffix wants one prompt of text");
    if (const auto top = f.whole("logprobs", 0, 20)) r.top_logprobs = static_cast<int>(*top);
    r.echo = f.flag("echo").value_or(false);
    if (r.echo && r.top_logprobs >= 0) bad_field("echo", "echo with logprobs is not supported: the prompt's own probabilities are not computed");
    f.refuse("best_of", "ask for n answers and choose", r.n);
    f.ignore({"user", "metadata", "cache_prompt", "id_slot", "service_tier"});
    f.finish();
    r.split_reasoning = false;
    t.writer = std::make_shared<CompletionWriter>(r);
    return t;
}

}  // namespace forge::server
