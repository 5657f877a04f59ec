#pragma once

#include <cstdint>
#include <filesystem>

#include "store/store.h"

namespace forge::store_files {

enum class LockKind : std::uint8_t { shared, exclusive };

// Opens (making it) and locks a file; -1 when somebody else holds it and `wait` is false.
int lock_file(const std::filesystem::path& path, LockKind kind, bool wait);

}  // namespace forge::store_files
