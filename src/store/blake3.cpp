#include "store/blake3.h"

#include <blake3.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace forge {

struct Blake3::State {
    blake3_hasher hasher;
};

Blake3::Blake3() : state_(std::make_unique<State>()) { blake3_hasher_init(&state_->hasher); }
Blake3::~Blake3() = default;
Blake3::Blake3(Blake3&&) noexcept = default;
Blake3& Blake3::operator=(Blake3&&) noexcept = default;

void Blake3::update(std::span<const std::byte> bytes) {
    blake3_hasher_update(&state_->hasher, bytes.data(), bytes.size());
}

Digest Blake3::finish() const {
    Digest digest;
    blake3_hasher_finalize(&state_->hasher, digest.bytes.data(), digest.bytes.size());
    return digest;
}

Digest blake3(std::span<const std::byte> bytes) {
    Blake3 hasher;
    hasher.update(bytes);
    return hasher.finish();
}

// Read, not mapped: a disk that fails, or a file that becomes shorter, is then an error and no signal.
Digest blake3_file(const std::filesystem::path& path, const std::function<void(std::uint64_t)>& advance) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        const int reason = errno;
        fail(reason == ENOENT ? ErrorKind::not_found : ErrorKind::io, "cannot open {}: {}", path.string(), std::strerror(reason));
    }
#ifdef POSIX_FADV_SEQUENTIAL
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
    Blake3 hasher;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    for (;;) {
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            const int reason = errno;
            ::close(fd);
            fail(ErrorKind::io, "cannot read {}: {}", path.string(), std::strerror(reason));
        }
        if (got == 0) break;
        hasher.update(std::span(buffer).first(static_cast<std::size_t>(got)));
        if (advance) advance(static_cast<std::uint64_t>(got));
    }
    ::close(fd);
    return hasher.finish();
}

}  // namespace forge
