#include "formats/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef FORGE_XXH3_AVX2
#include "xxh3_avx2.h"
#endif

namespace forge {
namespace {

[[maybe_unused]] bool has_avx2() {
#ifdef FORGE_XXH3_AVX2
    static const bool has = __builtin_cpu_supports("avx2");
    return has;
#else
    return false;
#endif
}

}  // namespace

struct Xxh3::State {
    XXH3_state_t hash;
};

std::uint64_t xxh3(std::span<const std::byte> bytes) {
#ifdef FORGE_XXH3_AVX2
    if (has_avx2()) return xxh3_avx2(bytes.data(), bytes.size());
#endif
    return XXH3_64bits(bytes.data(), bytes.size());
}

Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::update(std::span<const std::byte> bytes) {
#ifdef FORGE_XXH3_AVX2
    if (has_avx2()) return xxh3_update_avx2(&state_->hash, bytes.data(), bytes.size());
#endif
    XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::uint64_t Xxh3::finish() const { return XXH3_64bits_digest(&state_->hash); }

}  // namespace forge
