#include "answer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace forge::cli {
namespace {

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void write_all(std::FILE* to, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), to);
    std::fflush(to);
}

}  // namespace

AnswerPrinter::AnswerPrinter(bool show_reasoning)
    : show_reasoning_(show_reasoning), colours_(isatty(2) && !std::getenv("NO_COLOR")) {}

void AnswerPrinter::print(PieceKind kind, std::string_view text) {
    if (text.empty()) return;
    const bool reasoning = kind == PieceKind::reasoning;
    if (reasoning && !show_reasoning_) return;
    if (reasoning != in_reasoning_) {
        if (!reasoning) write_all(stderr, colours_ ? "\033[0m\n\n" : "\n\n");
        if (reasoning && colours_) write_all(stderr, "\033[2m");
        in_reasoning_ = reasoning;
    }
    write_all(reasoning ? stderr : stdout, text);
    if (!reasoning) {
        any_ = true;
        last_ = text.back();
    }
}

void AnswerPrinter::finish() {
    if (in_reasoning_) write_all(stderr, colours_ ? "\033[0m\n" : "\n");
    in_reasoning_ = false;
    if (any_ && last_ != '\n') write_all(stdout, "\n");
    last_ = '\n';
}

bool PromptProgress::operator()(int done, int total) {
    const double now = seconds_now();
    if (start_ < 0) start_ = now;
    if (done >= total) {
        clear();
    } else if (isatty(2) && now - start_ > 0.5 && now - last_ > 0.1) {
        last_ = now;
        drawn_ = true;
        std::fputs(fmt::format("\rreading the prompt: {} of {} tokens\033[K", done, total).c_str(), stderr);
    }
    return true;
}

void PromptProgress::clear() {
    if (drawn_) std::fputs("\r\033[K", stderr);
    drawn_ = false;
}

void print_timings(const Reply& r, double load_seconds) {
    const auto rate = [](int tokens, double seconds) {
        return seconds > 0 ? fmt::format("{:8.2f} tokens/s", tokens / seconds) : std::string("       - tokens/s");
    };
    const int read = r.prompt_tokens - r.cached_tokens;
    std::string text;
    if (load_seconds >= 0) text += fmt::format("load:        {:28.2f} s\n", load_seconds);
    text += fmt::format("prompt eval: {:6} tokens in {:10.2f} s  {}{}\n", read, r.prompt_seconds, rate(read, r.prompt_seconds),
                        r.cached_tokens ? fmt::format("  ({} known from before)", r.cached_tokens) : "");
    text += fmt::format("eval:        {:6} tokens in {:10.2f} s  {}\n", r.new_tokens, r.decode_seconds, rate(r.new_tokens, r.decode_seconds));
    write_all(stderr, text);
}

}  // namespace forge::cli
