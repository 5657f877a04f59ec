// forge tokenize: text to ids and back.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/model_text.h"
#include "base/error.h"
#include "base/json.h"
#include "commands.h"
#include "input.h"
#include "options.h"
#include "tokenizer/tokenizer.h"

namespace forge::cli {
namespace {

struct TokenizeOptions {
    std::string model, text, file, jsonl;
    bool has_text = false, bos = false, special = false, no_special = false, decode = false, pieces = false, count = false;
    bool skip_special = false;
};

// Ids separated by spaces, commas or newlines; brackets of a JSON list do no harm.
std::vector<std::int32_t> parse_ids(const std::string& text, std::int32_t limit) {
    std::vector<std::int32_t> ids;
    std::size_t at = 0;
    while (true) {
        at = text.find_first_not_of(" ,\t\r\n[]", at);
        if (at == std::string::npos) return ids;
        const std::size_t end = std::min(text.find_first_of(" ,\t\r\n[]", at), text.size());
        const std::string word = text.substr(at, end - at);
        if (word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9)
            fail("a token id should be a number such as 42, found '{}'", word.substr(0, 40));
        const std::int32_t id = std::stoi(word);
        if (id >= limit) fail("token id {} is not in the vocabulary, whose ids are 0 to {}", id, limit - 1);
        ids.push_back(id);
        at = end;
    }
}

void print_ids(const std::vector<std::int32_t>& ids) { fmt::print("{}\n", fmt::join(ids, " ")); }

void print_pieces(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    for (std::int32_t id : ids)
        fmt::print("{:>7}  {}\n", id, nlohmann::json(tokenizer.token_text(id)).dump());
}

// {"text"} lines in, {"ids"} lines out, in the same order.
void tokenize_lines(const Tokenizer& tokenizer, const std::string& path, EncodeOptions options) {
    std::size_t number = 0;
    for_each_line(path, [&](const std::string& line) {
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string::npos) return;
        const auto json = parse_json<nlohmann::json>(line, path, false);
        if (!json.is_object() || !json.contains("text") || !json["text"].is_string())
            fail("{} line {}: an object with a text in \"text\" is wanted, such as {{\"text\": \"Hello\"}}", path, number);
        const auto ids = tokenizer.encode(json["text"].get_ref<const std::string&>(), options);
        fmt::print("{{\"ids\":[{}]}}\n", fmt::join(ids, ","));
    });
}

void decode_lines(const Tokenizer& tokenizer, const std::string& path, bool skip_special) {
    std::size_t number = 0;
    for_each_line(path, [&](const std::string& line) {
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string::npos) return;
        const auto json = parse_json<nlohmann::json>(line, path, false);
        if (!json.is_object() || !json.contains("ids") || !json["ids"].is_array())
            fail("{} line {}: an object with a list in \"ids\" is wanted, such as {{\"ids\": [1, 2]}}", path, number);
        const auto ids = parse_ids(json["ids"].dump(), tokenizer.size());
        fmt::print("{}\n", nlohmann::json{{"text", tokenizer.decode(ids, skip_special)}}.dump());
    });
}

void tokenize(const TokenizeOptions& o) {
    const auto tokenizer = load_tokenizer(o.model);
    if (!o.jsonl.empty()) {
        if (o.decode) return decode_lines(*tokenizer, o.jsonl, o.skip_special);
        return tokenize_lines(*tokenizer, o.jsonl, {.add_bos = o.bos, .parse_special = !o.no_special});
    }
    const std::string text = o.has_text && o.text != "-" ? o.text : read_input(o.file.empty() ? "-" : o.file);
    if (o.decode) {
        const std::string decoded = tokenizer->decode(parse_ids(text, tokenizer->size()), o.skip_special);
        std::fwrite(decoded.data(), 1, decoded.size(), stdout);
        std::fputc('\n', stdout);
        return;
    }
    const auto ids = tokenizer->encode(text, {.add_bos = o.bos, .parse_special = o.special});
    if (o.count) {
        fmt::print("{}\n", ids.size());
    } else if (o.pieces) {
        print_pieces(*tokenizer, ids);
    } else {
        print_ids(ids);
    }
}

}  // namespace

void add_tokenize(CLI::App& app, int&) {
    auto options = std::make_shared<TokenizeOptions>();
    CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or back");
    add_model_argument(*command, options->model);
    CLI::Option* text = command->add_option("text,-p,--prompt", options->text, "Text (or ids); standard input when absent or -");
    CLI::Option* file = command->add_option("-f,--file", options->file, "Read the text (or ids) from a file")->type_name("FILE");
    CLI::Option* jsonl = command->add_option("--jsonl", options->jsonl,
        "Read {\"text\": ...} lines, print {\"ids\": [...]} lines (with --decode the other way round). "
        "Special tokens are matched, BOS is not added")->type_name("FILE");
    text->excludes(file)->excludes(jsonl);
    file->excludes(jsonl);
    command->add_flag("--bos", options->bos, "Add what the model's tokenizer puts around a text");
    CLI::Option* special = command->add_flag("--special", options->special, "Match special tokens such as <|im_end|> in the text");
    command->add_flag("--no-special", options->no_special, "Do not match them (the default, but for --jsonl)")->excludes(special);
    command->add_flag("--decode", options->decode, "Ids, separated by spaces or commas, back to text");
    command->add_flag("--skip-special", options->skip_special, "With --decode: leave out control tokens");
    command->add_flag("--pieces", options->pieces, "One line a token: its id and its text");
    command->add_flag("--count", options->count, "Print only how many tokens there are");
    command->footer("Examples:\n"
                    "  forge tokenize model.gguf \"Hello world\"\n"
                    "  forge tokenize model.gguf --decode 9906,1917\n"
                    "  forge tokenize model.gguf --pieces --special -f prompt.txt\n"
                    "  forge tokenize model.gguf --jsonl texts.jsonl > ids.jsonl");
    command->callback([options, text] {
        require_argument(options->model, "MODEL");
        options->has_text = text->count() > 0;
        tokenize(*options);
    });
}

}  // namespace forge::cli
