// A command for tools/compare_tokenizers.py and for timing, with the flags of
// `forge tokenize`:
//
//   tokenize_tool tokenize MODEL --jsonl FILE   one JSON string a line in,
//       {"ids": [...], "text": decoded, "stream": decoded one by one} a line out;
//       special text is parsed, unless --no-special
//   tokenize_tool time MODEL FILE               seconds to load, encode and decode a file
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "load_any.h"

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

int tokenize(const forge::Tokenizer& t, std::shared_ptr<const forge::Tokenizer> shared,
             const std::string& path, forge::EncodeOptions options) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        auto text = nlohmann::json::parse(line).get<std::string>();
        auto ids = t.encode(text, options);
        forge::StreamDecoder stream(shared);
        std::string streamed;
        for (auto id : ids) streamed += stream.push(id);
        streamed += stream.finish();
        nlohmann::json out = {{"ids", ids}, {"text", t.decode(ids)}, {"stream", streamed}};
        fmt::print("{}\n", out.dump());
    }
    return 0;
}

int time_file(const std::string& model, const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream buffer;
    buffer << in.rdbuf();
    std::string text = buffer.str();
    auto start = Clock::now();
    auto t = forge::testing::load_any(model);
    double load = seconds_since(start);
    start = Clock::now();
    auto ids = t->encode(text);
    double encode = seconds_since(start);
    start = Clock::now();
    auto back = t->decode(ids);
    double decode = seconds_since(start);
    fmt::print("load {:.3f} s, encode {} bytes -> {} ids {:.3f} s, decode {:.3f} s\n", load, text.size(),
               ids.size(), encode, decode);
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    std::vector<std::string> args(argv + 1, argv + argc);
    if (args.size() >= 3 && args[0] == "time") return time_file(args[1], args[2]);
    if (args.size() < 4 || args[0] != "tokenize" || args[2] != "--jsonl") {
        std::cerr << "usage: tokenize_tool tokenize MODEL --jsonl FILE [--no-special] [--bos]\n"
                     "       tokenize_tool time MODEL FILE\n";
        return 2;
    }
    forge::EncodeOptions options{false, true};
    for (std::size_t i = 4; i < args.size(); ++i) {
        if (args[i] == "--no-special") options.parse_special = false;
        if (args[i] == "--bos") options.add_bos = true;
    }
    auto t = forge::testing::load_any(args[1]);
    return tokenize(*t, t, args[3], options);
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
}
