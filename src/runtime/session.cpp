#include "runtime/session.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/timeline.h"
#include "saved_timeline.h"

namespace forge {

struct Session::State {
    std::shared_ptr<Engine> engine;
    int slot = -1;
    std::unique_ptr<Timeline> timeline;
    std::span<const float> logits;      // of the last token; empty when unknown
    std::vector<float> own_logits;      // with several sequences another one's step would overwrite them
    std::vector<StepInput> rows;

    int capacity() const { return engine->options().ctx; }
    int vocab() const { return engine->spec().vocab; }

    // Computes tokens[first, last); logits of the last one when `want`.
    void step(std::span<const std::int32_t> part, int first, bool want) {
        rows.resize(part.size());
        for (std::size_t i = 0; i < part.size(); ++i)
            rows[i] = {part[i], slot, first + static_cast<int>(i), want && i + 1 == part.size()};
        keep(engine->step(rows));
        timeline->advance(part);
    }
    void keep(std::span<const float> computed) {
        logits = computed;
        if (engine->options().parallel > 1) {
            own_logits.assign(logits.begin(), logits.end());
            logits = own_logits;
        }
    }
};

Session::Session(std::shared_ptr<Engine> engine) : state_(std::make_unique<State>()) {
    state_->slot = engine->take_slot();
    state_->engine = std::move(engine);
    state_->timeline = std::make_unique<Timeline>(state_->engine, state_->slot);
    state_->rows.reserve(static_cast<std::size_t>(state_->engine->options().chunk));
    if (state_->engine->options().parallel > 1) state_->own_logits.reserve(static_cast<std::size_t>(state_->vocab()));
}

Session::~Session() {
    if (state_->slot >= 0) state_->engine->give_slot(state_->slot);
}

int Session::feed(std::span<const std::int32_t> tokens, const std::function<bool(int, int)>& progress) {
    State& s = *state_;
    if (tokens.empty()) fail("a prompt needs at least one token");
    if (static_cast<int>(tokens.size()) > s.capacity())
        fail("the prompt has {} tokens, and the context holds {}; use a longer context (--ctx) or a shorter prompt", tokens.size(), s.capacity());
    const std::vector<std::int32_t>& known = s.timeline->tokens();
    if (!s.logits.empty() && std::equal(tokens.begin(), tokens.end(), known.begin(), known.end())) return static_cast<int>(tokens.size());
    const int kept = static_cast<int>(s.timeline->rewind(tokens));
    s.logits = {};
    const int total = static_cast<int>(tokens.size());
    for (int first = kept; first < total;) {
        if (progress && !progress(first, total)) throw Stopped{};
        const int last = s.timeline->step_end(first, tokens);
        s.step(tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)), first, last == total);
        if (last < total) s.timeline->snapshot();
        first = last;
    }
    if (progress) progress(total, total);
    return kept;
}

void Session::score(std::span<const std::int32_t> tokens, const std::function<void(int, std::span<const float>)>& on_logits) {
    State& s = *state_;
    if (static_cast<int>(tokens.size()) > s.capacity())
        fail("the text has {} tokens, and the context holds {}", tokens.size(), s.capacity());
    clear();
    const std::size_t vocab = static_cast<std::size_t>(s.vocab());
    const int most = std::min(s.engine->options().max_outputs, s.engine->options().chunk), total = static_cast<int>(tokens.size());
    for (int first = 0; first < total;) {
        const int last = std::min(total, first + most);
        const auto part = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
        s.rows.clear();
        for (std::size_t i = 0; i < part.size(); ++i) s.rows.push_back({part[i], s.slot, first + static_cast<int>(i), true});
        const std::span<const float> logits = s.engine->step(s.rows);
        s.timeline->advance(part);
        for (std::size_t i = 0; i < part.size(); ++i) on_logits(first + static_cast<int>(i), logits.subspan(i * vocab, vocab));
        first = last;
    }
    s.logits = {};
}

void Session::append(std::int32_t token) {
    State& s = *state_;
    const int position = static_cast<int>(s.timeline->tokens().size());
    if (position >= s.capacity())
        fail("the context of {} tokens is full", s.capacity());
    s.step({&token, 1}, position, true);
}

bool Session::append_greedy(std::int32_t token, std::int32_t limit, std::span<std::int32_t> picked) {
    State& s = *state_;
    if (s.timeline->recurrent() || picked.empty()) return false;
    const int position = static_cast<int>(s.timeline->tokens().size());
    if (position + static_cast<int>(picked.size()) > s.capacity()) return false;
    std::span<const float> logits;
    if (!s.engine->follow({token, s.slot, position, true}, limit, picked, &logits)) return false;
    s.keep(logits);
    s.timeline->advance({&token, 1});
    s.timeline->advance(picked.first(picked.size() - 1));
    return true;
}

void Session::take_back(int count) {
    State& s = *state_;
    s.timeline->truncate(s.timeline->tokens().size() - static_cast<std::size_t>(count));
    s.logits = {};
}

std::span<const float> Session::logits() const {
    if (state_->logits.empty()) fail(ErrorKind::internal, "there are no logits: nothing was fed");
    return state_->logits;
}

std::span<const std::int32_t> Session::tokens() const { return state_->timeline->tokens(); }
int Session::capacity() const { return state_->capacity(); }
const std::shared_ptr<Engine>& Session::engine() const { return state_->engine; }

void Session::clear() {
    state_->timeline->clear();
    state_->logits = {};
}

void Session::save(const std::string& path) const { save_timeline(*state_->engine, state_->slot, *state_->timeline, path); }

void Session::restore(const std::string& path) {
    state_->logits = {};
    restore_timeline(*state_->engine, state_->slot, *state_->timeline, path);
}

}  // namespace forge
