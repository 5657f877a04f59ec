// One token timeline on an engine. Callers pass the whole conversation; the
// session keeps what it has in common with what it already computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/sampler.h"

namespace forge {

class Session {
  public:
    explicit Session(std::shared_ptr<Engine> engine);  // takes a slot; Error when none is free
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Makes the timeline equal to `tokens` (at least one) and computes the logits after its last token.
    // Returns how many tokens were already in the cache. `progress(done, total)` is called per
    // chunk and may return false to stop (then Stopped is thrown; what was computed stays).
    // Error when tokens do not fit the context, naming both sizes.
    struct Stopped {};
    int feed(std::span<const std::int32_t> tokens, const std::function<bool(int, int)>& progress = {});

    // Like feed from an empty timeline, with the logits of every position:
    // on_logits(i, logits after tokens[i]). Steps have at most LoadOptions::max_outputs rows.
    void score(std::span<const std::int32_t> tokens, const std::function<void(int, std::span<const float>)>& on_logits);

    // Appends one token and computes the logits after it. No allocation.
    void append(std::int32_t token);

    // Appends `token` and, but for the last, the tokens picked[i] that follow it: each the arg-max below `limit`, without
    // a return to the host in between; logits() are those that picked.back() is the arg-max of. -1: no token can follow.
    // False, with nothing appended, where the device cannot, the context is too short, or steps cannot be taken back.
    bool append_greedy(std::int32_t token, std::int32_t limit, std::span<std::int32_t> picked);
    // Takes the last `count` tokens back; there are no logits then. Not for recurrent models.
    void take_back(int count);

    std::span<const float> logits() const;              // after the last token, [vocab]
    std::span<const std::int32_t> tokens() const;
    int capacity() const;                               // positions; append is an Error when tokens().size() reaches it
    void clear();

    // A file that restores this timeline; refused by another model, dtype or format version.
    void save(const std::string& path) const;
    void restore(const std::string& path);

    const std::shared_ptr<Engine>& engine() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

enum class FinishReason { stop, length, cancelled };

struct GenerateOptions {
    int max_tokens = -1;                                // -1 = until a stop token or a full context
    std::vector<std::int32_t> stop_ids = {};
    bool ignore_stop = false;                           // benchmarks and replays
};

// Samples from the session's logits until a stop. `on_token` gets every token that is not a
// stop token and returns false to cancel. `mask`, where given, says before each draw what is allowed (as
// for Sampler::sample). The session ends with all reported tokens appended but the last (whose logits
// nobody asked for yet).
FinishReason generate(Session& session, Sampler& sampler, const GenerateOptions& options,
                      const std::function<bool(std::int32_t)>& on_token,
                      const std::function<const std::uint32_t*()>& mask = {});

}  // namespace forge
