// SHA-256, which registries and the Hugging Face hub name bytes by, and git's SHA-1 of a blob, by
// which the hub names small files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace forge {

class Hasher {
  public:
    enum class Kind { sha256, sha1 };
    explicit Hasher(Kind kind);
    ~Hasher();
    Hasher(Hasher&&) noexcept;
    Hasher& operator=(Hasher&&) noexcept;
    void update(std::span<const std::byte> bytes);
    void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
    std::string hex();  // lower case; the end: nothing can be added after it

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// What some bytes must be: "sha256:<64 hex>" or "git:<40 hex>" (git's name of a blob of these bytes).
struct RemoteDigest {
    enum class Kind { sha256, git } kind = Kind::sha256;
    std::string hex;

    std::string text() const { return (kind == Kind::sha256 ? "sha256:" : "git:") + hex; }
    bool operator==(const RemoteDigest&) const = default;
    // A hasher that has seen what comes before a file of `size` bytes (git hashes a header too).
    Hasher begin(std::uint64_t size) const;
};

bool is_lower_hex(std::string_view text, std::size_t length);
// "sha256:..." as registries write it; Error naming `where` otherwise.
RemoteDigest parse_sha256(std::string_view text, std::string_view where);

std::string sha256_hex(std::string_view text);
// Reads a whole file; `read` hears of each piece and may throw.
std::string sha256_hex_of_file(const std::filesystem::path& path, const std::function<void(std::uint64_t)>& read = {});

}  // namespace forge
