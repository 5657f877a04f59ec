#include "formats/xxh3.h"

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace forge {

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Xxh3::State {
    XXH3_state_t hash;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::update(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size()); }
std::uint64_t Xxh3::finish() const { return XXH3_64bits_digest(&state_->hash); }

}  // namespace forge
