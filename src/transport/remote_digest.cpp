// Digests as text, and of files.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "transport/remote_digest.h"

namespace forge {

bool is_lower_hex(std::string_view text, std::size_t length) {
    return text.size() == length && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

RemoteDigest parse_sha256(std::string_view text, std::string_view where) {
    if (!text.starts_with("sha256:") || !is_lower_hex(text.substr(7), 64)) {
        std::string found(text.substr(0, 100));
        fail("{}: a digest should be sha256: and 64 hexadecimal digits, found \"{}\"", where, found);
    }
    return {RemoteDigest::Kind::sha256, std::string(text.substr(7))};
}

Hasher RemoteDigest::begin(std::uint64_t size) const {
    if (kind == Kind::sha256) return Hasher(Hasher::Kind::sha256);
    Hasher hasher(Hasher::Kind::sha1);
    const std::string header = fmt::format("blob {}", size);
    hasher.update(std::string_view(header.c_str(), header.size() + 1));  // with its zero byte
    return hasher;
}

std::string sha256_hex(std::string_view text) {
    Hasher hasher(Hasher::Kind::sha256);
    hasher.update(text);
    return hasher.hex();
}

std::string sha256_hex_of_file(const std::filesystem::path& path, const std::function<void(std::uint64_t)>& read) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(ErrorKind::io, "cannot read {}: {}", path.string(), std::strerror(errno));
    Hasher hasher(Hasher::Kind::sha256);
    std::vector<char> buffer(std::size_t{1} << 20);
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
        const auto count = static_cast<std::size_t>(in.gcount());
        hasher.update(std::as_bytes(std::span(buffer).first(count)));
        if (read) read(count);
    }
    if (in.bad()) fail(ErrorKind::io, "cannot read {} to its end", path.string());
    return hasher.hex();
}

}  // namespace forge
