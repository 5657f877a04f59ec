#include "runtime/session.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "runtime/timeline.h"

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
        logits = engine->step(rows);
        if (engine->options().parallel > 1) {
            own_logits.assign(logits.begin(), logits.end());
            logits = own_logits;
        }
        timeline->advance(part);
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

namespace {

// The file: this header, the tokens, the cache in plain order. Little-endian.
struct SavedHeader {
    char magic[8];                  // "FORGESES"
    std::uint32_t version, dtype;
    std::uint64_t model;            // fingerprint of the descriptor and the file
    std::uint64_t tokens, cache_bytes;
};

// Tells models apart: dimensions, parameter count, source name and tensor bytes.
std::uint64_t fingerprint(const Engine& engine) {
    const ModelSpec& spec = engine.spec();
    std::uint64_t hash = 1469598103934665603ull;
    auto mix = [&](const void* data, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
    };
    auto number = [&](std::uint64_t value) { mix(&value, sizeof value); };
    mix(spec.architecture.data(), spec.architecture.size());
    for (std::uint64_t value : {std::uint64_t(spec.hidden), std::uint64_t(spec.vocab), std::uint64_t(spec.layers.size()),
                                spec.parameters, engine.file().tensor_bytes()}) number(value);
    // A sample of the weights themselves: two fine-tunes have the same shapes.
    for (const Tensor& tensor : engine.file().tensors) mix(tensor.data.data(), std::min<std::size_t>(64, tensor.data.size()));
    return hash;
}

}  // namespace

void Session::save(const std::string& path) const {
    const State& s = *state_;
    const std::vector<std::int32_t>& tokens = s.timeline->tokens();
    const std::vector<std::byte> cache = s.engine->save_cache(s.slot, static_cast<int>(tokens.size()));
    SavedHeader header{{'F', 'O', 'R', 'G', 'E', 'S', 'E', 'S'}, 1, static_cast<std::uint32_t>(s.engine->options().dtype),
                       fingerprint(*s.engine), tokens.size(), cache.size()};
    std::string content(reinterpret_cast<const char*>(&header), sizeof header);
    content.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4);
    content.append(reinterpret_cast<const char*>(cache.data()), cache.size());
    write_file_atomically(path, content);
}

void Session::restore(const std::string& path) {
    State& s = *state_;
    const auto file = MappedFile::open(path);
    const auto bytes = file->bytes();
    SavedHeader header;
    if (bytes.size() < sizeof header) fail("{} is not a saved session", path);
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, "FORGESES", 8) != 0) fail("{} is not a saved session", path);
    if (header.version != 1) fail(ErrorKind::unsupported, "{}: session format {} is not known to this forge (it reads 1)", path, header.version);
    if (header.model != fingerprint(*s.engine)) fail("{} was saved with another model", path);
    if (header.dtype != static_cast<std::uint32_t>(s.engine->options().dtype))
        fail("{} was saved with another activation type than {}; start with the same --dtype", path, name_of(s.engine->options().dtype));
    if (header.tokens > static_cast<std::uint64_t>(s.capacity()))
        fail("{} holds {} tokens, and the context holds {}; start with a longer one (--ctx)", path, header.tokens, s.capacity());
    if (header.cache_bytes > bytes.size() || bytes.size() != sizeof header + header.tokens * 4 + header.cache_bytes)
        fail("{} is truncated or damaged", path);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(header.tokens));
    std::memcpy(tokens.data(), bytes.data() + sizeof header, tokens.size() * 4);
    clear();
    s.engine->load_cache(s.slot, static_cast<int>(tokens.size()), bytes.subspan(sizeof header + tokens.size() * 4));
    s.timeline->advance(tokens);
    s.timeline->snapshot();
}

}  // namespace forge
