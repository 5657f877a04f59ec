#include "known.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "store/blake3.h"
#include "transport/remote_digest.h"
#include "transport/url.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRepositories = 8;  // that a blob is asked for

// A cache that cannot be written costs time, and is no failure.
void write_quietly(const fs::path& path, const std::string& text) {
    try {
        std::error_code error;
        fs::create_directories(path.parent_path(), error);
        write_file_atomically(path, text);
    } catch (const Error& error) {
        log_debug("{}", error.what());
    }
}

std::string read_quietly(const fs::path& path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return "";
    try {
        return read_file(path);
    } catch (const Error&) {
        return "";
    }
}

fs::path sha256_file(const Digest& digest) { return cache_folder() / "sha256" / digest.hex(); }
fs::path repositories_file(const std::string& host) { return cache_folder() / "registries" / url_encode(host); }

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
        if (!line.empty()) lines.push_back(line);
    return lines;
}

}  // namespace

std::string known_sha256(const Digest& digest, const fs::path& file, const std::function<void(std::uint64_t)>& read) {
    const std::string known = read_quietly(sha256_file(digest));
    if (is_lower_hex(known, 64)) return known;
    const std::string computed = sha256_hex_of_file(file, read);
    // Remembered for good, so it must be of the right bytes.
    if (blake3_file(file, read) != digest) refuse_damaged(digest);
    remember_sha256(digest, computed);
    return computed;
}

void refuse_damaged(const Digest& digest) {
    fail("the blob {} in the store is damaged, so it is not sent; forge verify says of which model it is and what mends it", digest.hex());
}

void remember_sha256(const Digest& digest, const std::string& sha256) { write_quietly(sha256_file(digest), sha256); }

std::vector<std::string> other_repositories(const std::string& host, const std::string& name) {
    std::vector<std::string> names = lines_of(read_quietly(repositories_file(host)));
    std::erase(names, name);
    if (names.size() > kMaxRepositories) names.erase(names.begin(), names.end() - kMaxRepositories);
    std::reverse(names.begin(), names.end());  // the latest first
    return names;
}

void remember_repository(const std::string& host, const std::string& name) {
    std::vector<std::string> names = lines_of(read_quietly(repositories_file(host)));
    if (!names.empty() && names.back() == name) return;
    std::erase(names, name);
    names.push_back(name);
    if (names.size() > 100) names.erase(names.begin());
    std::string text;
    for (const std::string& line : names) text += line + "\n";
    write_quietly(repositories_file(host), text);
}

}  // namespace forge
