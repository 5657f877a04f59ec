// What is remembered between pushes: the SHA-256 of the store's blobs, and which repositories of a
// registry hold a blob. It lies in the cache folder and may be deleted at any time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/digest.h"

namespace forge {

// The SHA-256 of a blob of the store, in hex; `read` hears of bytes that had to be read for it. Error when the
// bytes are not those of its BLAKE3.
std::string known_sha256(const Digest& digest, const std::filesystem::path& file, const std::function<void(std::uint64_t)>& read);
[[noreturn]] void refuse_damaged(const Digest& digest);
void remember_sha256(const Digest& digest, const std::string& sha256);

// Repositories of `host` other than `name` into which something was pushed, or from which pulled.
std::vector<std::string> other_repositories(const std::string& host, const std::string& name);
void remember_repository(const std::string& host, const std::string& name);

}  // namespace forge
