#include "infill.h"

namespace forge::server {
namespace {

// Ids of the tokens before the prefix, before the suffix and before the middle.
struct Marks { std::int32_t prefix, suffix, middle; };

Marks marks_of(const TextModel& model) {
    const Metadata& metadata = model.engine()->file().metadata;
    const auto from_metadata = [&](const char* name, const char* older) -> std::optional<std::int32_t> {
        for (const char* part : {name, older}) {
            const std::string key = fmt::format("tokenizer.ggml.{}_token_id", part);
            if (metadata.has(key)) return static_cast<std::int32_t>(metadata.number(key, -1));
        }
        return std::nullopt;
    };
    const auto prefix = from_metadata("fim_pre", "prefix"), suffix = from_metadata("fim_suf", "suffix"), middle = from_metadata("fim_mid", "middle");
    if (prefix && suffix && middle) return {*prefix, *suffix, *middle};
    // Folders say nothing about them; the texts that models use do.
    const char* known[][3] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                              {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}, {"<PRE>", "<SUF>", "<MID>"}};
    for (const auto& texts : known) {
        const Tokenizer& t = *model.tokenizer();
        const auto a = t.token_id(texts[0]), b = t.token_id(texts[1]), c = t.token_id(texts[2]);
        if (a && b && c) return {*a, *b, *c};
    }
    throw ApiError(400, "suffix", "this model was not made to fill in between two texts: it has no tokens for it");
}

}  // namespace

Prompt infill_prompt(const TextModel& model, std::string_view before, std::string_view after) {
    const Marks marks = marks_of(model);
    const Tokenizer& t = *model.tokenizer();
    Prompt prompt;
    if (t.adds_bos()) prompt.ids.push_back(*t.bos());
    const auto add = [&](std::int32_t mark, std::string_view text) {
        prompt.ids.push_back(mark);
        const auto ids = t.encode(text);   // the user's text: no special tokens in it
        prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
    };
    add(marks.prefix, before);
    add(marks.suffix, after);
    prompt.ids.push_back(marks.middle);
    prompt.text = std::string(before);
    return prompt;
}

Translated infill(const Json& body) {
    Fields f(body);
    Translated t;
    GenerateRequest& r = t.request;
    r.model = f.text("model").value_or("");
    const std::string prompt = f.text("prompt").value_or("");
    std::string before;
    if (const Json* extra = f.list("input_extra")) {
        for (std::size_t i = 0; i < extra->size(); ++i) {
            Fields e((*extra)[i], fmt::format("input_extra[{}]", i));
            e.ignore({"filename"});
            before += e.text("text").value_or("") + "\n";
            e.finish();
        }
    }
    const auto prefix = f.text("input_prefix");
    r.suffix = f.text("input_suffix");
    if (!prefix || !r.suffix) bad_field(prefix ? "input_suffix" : "input_prefix", "input_prefix and input_suffix are both needed");
    r.texts.push_back(before + *prefix + prompt);
    read_sampling(f, r);
    if (const auto most = f.whole("n_predict", -1, 1 << 30)) r.max_tokens = static_cast<int>(*most);
    f.ignore({"cache_prompt", "id_slot", "samplers", "t_max_prompt_ms", "t_max_predict_ms", "n_indent"});
    f.finish();
    r.split_reasoning = false;

    // {"content": ...} as a whole, or pieces of it as events.
    class InfillWriter final : public Writer {
      public:
        explicit InfillWriter(bool stream) : stream_(stream) {}
        std::string delta(int, const TextDelta& d) override { return sse({{"content", d.content}, {"stop", false}}); }
        std::string done(int, const Answer& a) override { return sse(finished("", a.done)); }
        std::string end(const Totals&) override { return {}; }
        std::string failed(const ApiError& error) override { return stream_ ? sse(openai_error(error)) : dump(openai_error(error)); }
        std::string whole(const std::vector<Answer>& answers, const Totals&) override { return dump(finished(answers.at(0).content, answers.at(0).done)); }

      private:
        Json finished(const std::string& content, const TextDone& done) const {
            return {{"content", content}, {"stop", true}, {"model", model}, {"stop_type", done.reason == TextFinish::length ? "limit" : done.stop_text.empty() ? "eos" : "word"},
                    {"stopping_word", done.stop_text}, {"tokens_evaluated", done.prompt_tokens}, {"tokens_cached", done.cached_tokens}, {"tokens_predicted", done.new_tokens}};
        }
        bool stream_;
    };
    t.writer = std::make_shared<InfillWriter>(r.stream);
    return t;
}

}  // namespace forge::server
