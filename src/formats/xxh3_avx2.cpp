// Compiled for AVX2; nothing here may run before the machine was asked.
#include "xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace forge {

std::uint64_t xxh3_avx2(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

void xxh3_update_avx2(void* state, const void* bytes, std::size_t count) { XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, count); }

}  // namespace forge
