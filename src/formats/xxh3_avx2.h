// XXH3 with vectors of 256 bits, for x86-64 machines that have them; the same values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forge {

std::uint64_t xxh3_avx2(const void* bytes, std::size_t count);
// state: an XXH3_state_t.
void xxh3_update_avx2(void* state, const void* bytes, std::size_t count);

}  // namespace forge
