#include "saved_timeline.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/paths.h"

namespace forge {
namespace {

// The file: this header, the tokens, the cache in plain order, and of hybrids the snapshots, the least recently used
// first: a u64, how many tokens it follows, and the state. Little-endian.
struct SavedHeader {
    char magic[8];                  // "FORGESES"
    std::uint32_t version, dtype;
    std::uint64_t model;            // fingerprint of the descriptor and the file
    std::uint64_t tokens, cache_bytes;
    std::uint64_t snapshots, state_bytes;   // how many; bytes of each state
};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kSnapshots = 4;   // at most; the last used ones: a state can take tens of megabytes

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

void save_timeline(const Engine& engine, int slot, const Timeline& timeline, const std::string& path) {
    const std::vector<std::int32_t>& tokens = timeline.tokens();
    const std::vector<std::byte> cache = engine.save_cache(slot, static_cast<int>(tokens.size()));
    std::vector<const Timeline::Snapshot*> snapshots;
    for (const Timeline::Snapshot& snapshot : timeline.snapshots()) snapshots.push_back(&snapshot);
    std::sort(snapshots.begin(), snapshots.end(), [](const auto* a, const auto* b) { return a->use < b->use; });
    if (snapshots.size() > kSnapshots) snapshots.erase(snapshots.begin(), snapshots.end() - kSnapshots);
    const SavedHeader header{{'F', 'O', 'R', 'G', 'E', 'S', 'E', 'S'}, kVersion, static_cast<std::uint32_t>(engine.options().dtype),
                             fingerprint(engine), tokens.size(), cache.size(), snapshots.size(), engine.state_bytes()};
    std::string content(reinterpret_cast<const char*>(&header), sizeof header);
    content.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4);
    content.append(reinterpret_cast<const char*>(cache.data()), cache.size());
    for (const Timeline::Snapshot* snapshot : snapshots) {
        const std::uint64_t length = snapshot->length;
        content.append(reinterpret_cast<const char*>(&length), sizeof length);
        content.append(reinterpret_cast<const char*>(snapshot->state.data()), snapshot->state.size());
    }
    write_file_atomically(path, content);
}

void restore_timeline(Engine& engine, int slot, Timeline& timeline, const std::string& path) {
    const auto file = MappedFile::open(path);
    const auto bytes = file->bytes();
    SavedHeader header;
    if (bytes.size() < sizeof header) fail("{} is not a saved session", path);
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, "FORGESES", 8) != 0) fail("{} is not a saved session", path);
    if (header.version != kVersion)
        fail(ErrorKind::unsupported, "{}: session format {} is not known to this forge (it reads {})", path, header.version, kVersion);
    if (header.model != fingerprint(engine)) fail("{} was saved with another model", path);
    if (header.dtype != static_cast<std::uint32_t>(engine.options().dtype))
        fail("{} was saved with another activation type than {}; start with the same --dtype", path, name_of(engine.options().dtype));
    const auto capacity = static_cast<std::uint64_t>(engine.options().ctx);
    if (header.tokens > capacity)
        fail("{} holds {} tokens, and the context holds {}; start with a longer one (--ctx)", path, header.tokens, capacity);
    const std::size_t plain = sizeof header + header.tokens * 4;
    const std::uint64_t state = engine.state_bytes();
    if (header.cache_bytes > bytes.size() || header.state_bytes != state || header.snapshots > bytes.size() / (state + 8) ||
        bytes.size() != plain + header.cache_bytes + header.snapshots * (state + 8))
        fail("{} is truncated or damaged", path);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(header.tokens));
    std::memcpy(tokens.data(), bytes.data() + sizeof header, tokens.size() * 4);
    timeline.clear();
    engine.load_cache(slot, static_cast<int>(tokens.size()), bytes.subspan(plain, static_cast<std::size_t>(header.cache_bytes)));
    timeline.advance(tokens);
    auto rest = bytes.subspan(plain + static_cast<std::size_t>(header.cache_bytes));
    for (; !rest.empty(); rest = rest.subspan(8 + static_cast<std::size_t>(state))) {
        std::uint64_t length = 0;
        std::memcpy(&length, rest.data(), sizeof length);
        timeline.add_snapshot(static_cast<std::size_t>(length), rest.subspan(8, static_cast<std::size_t>(state)));
    }
    timeline.snapshot();
}

}  // namespace forge
