#include "line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <iostream>

namespace forge::cli {

struct LineEditor::State {
    bool terminal = false;
    std::string prompt, history_file;
    EditLine* editor = nullptr;
    History* history = nullptr;
    HistEvent event{};

    static char* prompt_of(EditLine* editor) {
        void* self = nullptr;
        el_get(editor, EL_CLIENTDATA, &self);
        return static_cast<State*>(self)->prompt.data();
    }
};

LineEditor::LineEditor(std::string history) : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.terminal = isatty(0) && isatty(1);
    if (!s.terminal) return;
    // libedit reads UTF-8 only in a UTF-8 locale.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    s.history_file = std::move(history);
    s.editor = el_init("forge", stdin, stdout, stderr);
    s.history = history_init();
    ::history(s.history, &s.event, H_SETSIZE, 1000);
    ::history(s.history, &s.event, H_SETUNIQUE, 1);
    ::history(s.history, &s.event, H_LOAD, s.history_file.c_str());
    el_set(s.editor, EL_CLIENTDATA, &s);
    el_set(s.editor, EL_PROMPT, &State::prompt_of);
    el_set(s.editor, EL_EDITOR, "emacs");
    el_set(s.editor, EL_SIGNAL, 0);
    el_set(s.editor, EL_HIST, ::history, s.history);
    el_source(s.editor, nullptr);  // the user's ~/.editrc
}

LineEditor::~LineEditor() {
    State& s = *state_;
    if (!s.editor) return;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(s.history_file).parent_path(), ignored);
    ::history(s.history, &s.event, H_SAVE, s.history_file.c_str());
    el_end(s.editor);
    history_end(s.history);
}

bool LineEditor::terminal() const { return state_->terminal; }

LineEditor::Result LineEditor::read(const std::string& prompt, std::string& line) {
    State& s = *state_;
    if (!s.terminal) {
        if (!std::getline(std::cin, line)) return Result::end;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return Result::line;
    }
    s.prompt = prompt;
    int count = 0;
    errno = 0;
    const char* text = el_gets(s.editor, &count);
    if (!text || count <= 0) {
        if (errno == EINTR) {
            std::clearerr(stdin);
            el_reset(s.editor);
            return Result::interrupted;
        }
        return Result::end;
    }
    line.assign(text, static_cast<std::size_t>(count));
    if (!line.empty() && line.back() == '\n') line.pop_back();
    if (line.find_first_not_of(' ') != std::string::npos) ::history(s.history, &s.event, H_ENTER, line.c_str());
    return Result::line;
}

}  // namespace forge::cli
