// One request a line on standard input, one answer a line on standard output; for tools/check_schemas.py.
//   {"schema": S, "texts": [...], "open": bool}      -> {"accepted": [...]} or {"error": "..."}
//   {"schema": S, "random": N, "seed": K}            -> {"texts": [...]}: random tokens under the mask
//   {"schema": S, "quote": Q, ...}                   -> the same, in the notation whose quotes are the special token Q
//   {"schema": S, "time": N}                         -> {"compile_ms": ..., "mask_us": [...]}: N random answers
// An optional argument is a model (GGUF, folder) or a .tiktoken file whose vocabulary is used for the last two.
#include <time.h>

#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "formats/model_file.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace {

using Json = nlohmann::ordered_json;
// Of this thread's own time, so that a busy machine does not count.
double now_us() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}
double micros(double since) { return now_us() - since; }

// A token that the mask allows: a first byte, each alike, then a token that begins with it, so that rare characters
// come up too. After some tokens the end and what closes are preferred, so that recursive schemas come to an end.
std::int32_t pick(const std::uint32_t* mask, const forge::Vocabulary& v, std::mt19937_64& random, bool soon) {
    std::map<char, std::vector<std::int32_t>> by_byte;
    std::vector<std::int32_t> closing;
    for (std::size_t w = 0; w < v.words(); ++w)
        for (std::uint32_t bits = mask[w]; bits; bits &= bits - 1) {
            const auto id = static_cast<std::int32_t>(w * 32 + static_cast<std::size_t>(__builtin_ctz(bits)));
            const std::string& b = v.bytes(id);
            by_byte[b.empty() ? '\0' : b[0]].push_back(id);
            if (b.empty() || b == "\"" || b == "}" || b == "]" || b == "0" || b == "null") closing.push_back(id);
        }
    if (by_byte.empty()) return -1;
    if (soon && !closing.empty() && random() % 4 != 0) return closing[random() % closing.size()];
    const auto& group = std::next(by_byte.begin(), static_cast<std::ptrdiff_t>(random() % by_byte.size()))->second;
    return group[random() % group.size()];
}

std::string random_text(forge::Matcher& matcher, const forge::Vocabulary& v, std::mt19937_64& random, std::vector<double>* times) {
    std::string text;
    for (int n = 0; n < 4000; ++n) {
        const auto start = now_us();
        const std::uint32_t* mask = matcher.mask();
        if (times) times->push_back(micros(start));
        const std::int32_t id = pick(mask, v, random, n > 40);
        if (id < 0) return "no token is allowed after " + text;
        if (v.bytes(id).empty()) return text;   // the end
        if (!matcher.accept(id)) return "a token of the mask was refused after " + text;
        text += v.bytes(id);
    }
    return "no end: " + text.substr(0, 200);
}

// Lines of a token's bytes in base64 and its id.
std::vector<std::string> tiktoken(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> tokens;
    for (std::string text; file >> text;) {
        std::size_t id = 0;
        file >> id;
        std::string bytes;
        unsigned bits = 0, count = 0;
        for (const char c : text) {
            const std::size_t digit = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
            if (digit == std::string_view::npos) break;
            bits = bits << 6 | static_cast<unsigned>(digit);
            count += 6;
            if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xFF);
        }
        if (id >= tokens.size()) tokens.resize(id + 1);
        tokens[id] = bytes;
    }
    return tokens;
}

Json answer(const Json& request, const std::shared_ptr<const forge::Vocabulary>& vocabulary) {
    const auto start = now_us();
    std::shared_ptr<const forge::Grammar> grammar;
    try {
        if (request.contains("quote")) {
            const forge::Notation notation{forge::Notation::Kind::bare, forge::Grammar::special_begin + request["quote"].get<std::string>() + forge::Grammar::special_end};
            grammar = std::make_shared<forge::Grammar>(forge::compile_forms({{{}, {}, {}, {{{"", &request["schema"], notation}}}, false}}));
        } else {
            grammar = std::make_shared<forge::Grammar>(request.contains("grammar") ? forge::compile_gbnf(request["grammar"].get<std::string>())
                                                                                   : forge::compile_schema(request["schema"], {request.value("open", false)}));
        }
    } catch (const forge::Error& e) {
        return {{"error", e.what()}, {"compile_ms", micros(start) / 1000}};
    }
    Json out = {{"compile_ms", micros(start) / 1000}, {"nodes", grammar->nodes.size()}, {"edges", grammar->edges.size()}};
    if (request.contains("texts")) {
        out["accepted"] = Json::array();
        for (const Json& text : request["texts"]) {
            forge::Matcher matcher(grammar, vocabulary);
            out["accepted"].push_back(matcher.accept(text.get<std::string>()) && matcher.can_end());
        }
    }
    if (const int count = request.value("random", request.value("time", 0)); count > 0) {
        std::mt19937_64 random(request.value("seed", 1ull));
        std::vector<double> times;
        out["texts"] = Json::array();
        for (int i = 0; i < count; ++i) {
            forge::Matcher matcher(grammar, vocabulary);
            out["texts"].push_back(random_text(matcher, *vocabulary, random, request.contains("time") ? &times : nullptr));
        }
        if (request.contains("time")) out["mask_us"] = times;
    }
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    std::shared_ptr<const forge::Vocabulary> vocabulary = std::make_shared<forge::Vocabulary>(std::vector<std::string>{}, std::vector<std::int32_t>{});
    if (argc > 1) {
        const std::string path = argv[1];
        const auto start = now_us();
        if (path.ends_with(".tiktoken")) {
            std::vector<std::string> tokens = tiktoken(path);
            tokens.emplace_back();   // the end
            const auto end = static_cast<std::int32_t>(tokens.size() - 1);
            tokens.emplace_back("<|im_start|>");   // the file has no special tokens
            vocabulary = std::make_shared<forge::Vocabulary>(std::move(tokens), std::vector<std::int32_t>{end}, std::vector<std::int32_t>{end + 1});
        } else {
            const auto tokenizer = path.ends_with(".gguf") ? forge::Tokenizer::from_gguf(forge::open_gguf(path)->metadata) : forge::Tokenizer::from_folder(path);
            vocabulary = std::make_shared<forge::Vocabulary>(tokenizer, tokenizer->size(), tokenizer->end_of_generation());
        }
        std::cerr << "vocabulary: " << vocabulary->size() << " tokens, prepared in " << micros(start) / 1000 << " ms\n";
    }
    for (std::string line; std::getline(std::cin, line);) {
        try {
            std::cout << answer(Json::parse(line), vocabulary).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
        } catch (const std::exception& e) {
            std::cout << Json{{"failure", e.what()}}.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
        }
    }
}
