#include "store/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "files.h"
#include "formats/forge_manifest.h"
#include "lock.h"
#include "store/blake3.h"

namespace forge {

namespace fs = std::filesystem;

namespace {

using namespace store_files;

// Flushes a file's bytes and makes it read-only: blobs never change.
void seal(const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(ErrorKind::io, "cannot open {}: {}", file.string(), std::strerror(errno));
    const bool done = ::fsync(fd) == 0 && ::fchmod(fd, 0444) == 0;
    const int reason = errno;
    ::close(fd);
    if (!done) fail(ErrorKind::io, "cannot flush {}: {}", file.string(), std::strerror(reason));
}

void remove_quietly(const fs::path& path) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
}

// The entries of a folder of ours; none when it is not there.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> out;
    std::error_code reason;
    for (fs::directory_iterator it(folder, reason), end; !reason && it != end; it.increment(reason)) out.push_back(it->path());
    if (reason && reason != std::errc::no_such_file_or_directory)
        fail(ErrorKind::io, "cannot list {}: {}", folder.string(), reason.message());
    std::sort(out.begin(), out.end());
    return out;
}

}  // namespace

Store Store::open() { return Store(data_folder() / "store"); }

Store::Store(fs::path root) : root_(std::move(root)) {
    for (const char* name : {"blobs", "manifests", "partial"}) make_folders(root_ / name);
}

StoreLock Store::use() const { return StoreLock(lock_file(root_ / "lock", LockKind::shared, true)); }

StoreLock Store::lock_partial(std::string_view key, bool wait) const {
    return StoreLock(lock_file(partial(std::string(key) + ".lock"), LockKind::exclusive, wait));
}

fs::path Store::blob_path(const Digest& digest) const { return blob_path_in(root_ / "blobs", digest); }

std::optional<std::uint64_t> Store::size_of(const Digest& digest) const {
    struct stat info{};
    if (::stat(blob_path(digest).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
    return static_cast<std::uint64_t>(info.st_size);
}

bool Store::has(const Digest& digest) const { return size_of(digest).has_value(); }

bool Store::is_intact(const Digest& digest, std::uint64_t bytes, const std::function<void(std::uint64_t)>& advance) const {
    if (size_of(digest) != bytes) return false;
    Blake3 hasher;
    return read_pieces(blob_path(digest), [&](std::span<const std::byte> piece) {
        hasher.update(piece);
        if (advance) advance(piece.size());
        return true;
    }) && hasher.finish() == digest;
}

std::shared_ptr<MappedFile> Store::open_blob(const Digest& digest) const {
    if (!has(digest))
        fail(ErrorKind::not_found, "the store {} lacks the blob {}; pull or pack the model again", root_.string(), digest.hex());
    return MappedFile::open(blob_path(digest).string());
}

std::vector<StoredBlob> Store::blobs() const {
    std::vector<StoredBlob> out;
    for (const fs::path& folder : entries(root_ / "blobs"))
        for (const fs::path& file : entries(folder)) {
            const auto digest = Digest::parse(file.filename().string());
            if (!digest) continue;
            if (const auto bytes = size_of(*digest)) out.push_back({*digest, *bytes});
        }
    return out;
}

fs::path Store::partial(std::string_view key) const {
    if (key.empty() || key.find('/') != std::string_view::npos || key.front() == '.')
        fail(ErrorKind::internal, "'{}' is no name for a partial file", key);
    return root_ / "partial" / key;
}

Digest Store::put(std::span<const std::byte> bytes) const {
    const Digest digest = blake3(bytes);
    if (size_of(digest) == bytes.size() && has_bytes(blob_path(digest), bytes)) return digest;
    static std::atomic<int> serial{0};  // threads of one process may write the same blob
    const fs::path file = partial(fmt::format("put-{}-{}", ::getpid(), ++serial));
    write_file_atomically(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return adopt(file, digest, digest);
}

Digest Store::put(std::string_view text) const { return put(std::as_bytes(std::span(text))); }

Digest Store::adopt(const fs::path& file, const std::optional<Digest>& expected, const std::optional<Digest>& known,
                    const std::function<void(std::uint64_t)>& advance) const {
    const Digest digest = known ? *known : blake3_file(file, advance);
    if (expected && *expected != digest)
        fail("{} should have the BLAKE3 {}, but it has {}: its bytes are wrong", file.string(), expected->hex(), digest.hex());
    const fs::path target = blob_path(digest);
    std::error_code reason;
    const auto bytes = fs::file_size(file, reason);
    if (const auto there = size_of(digest); there && !reason) {
        // Compared, since the right bytes are at hand: a disk may have changed those that are there.
        if (*there == bytes && has_bytes_of(target, file)) {
            remove_quietly(file);
            return digest;
        }
        log_warn("the blob {} in the store was damaged; it is replaced", digest.hex());
    }
    seal(file);
    make_folders(target.parent_path());
    fs::rename(file, target, reason);
    if (reason) fail(ErrorKind::io, "cannot move {} to {}: {}", file.string(), target.string(), reason.message());
    flush_folder(target.parent_path());
    flush_folder(target.parent_path().parent_path());  // the folder of the first two digits may be new
    return digest;
}

fs::path Store::manifest_path(const ModelName& name) const {
    std::string flat = name.name + "@" + name.tag + ".json";
    std::replace(flat.begin(), flat.end(), '/', '+');
    return root_ / "manifests" / flat;
}

std::optional<std::string> Store::read_manifest(const ModelName& name) const {
    try {
        return read_file(manifest_path(name));
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::not_found) return std::nullopt;
        throw;
    }
}

void Store::write_manifest(const ModelName& name, std::string_view text) const {
    const Manifest manifest = Manifest::parse(text, "the manifest of " + name.text());
    for (const ManifestBlob& blob : manifest.blobs) {
        const auto bytes = size_of(blob.digest);
        if (!bytes) fail("the manifest of {} names the blob {} ({} {}), which is not in the store", name.text(), blob.digest.hex(), blob.role, blob.name);
        if (*bytes != blob.bytes)
            fail("the manifest of {} says that the blob {} has {} bytes, but in the store it has {}", name.text(), blob.digest.hex(), blob.bytes, *bytes);
    }
    write_file_atomically(manifest_path(name), text);
    flush_folder(root_ / "manifests");
}

bool Store::remove_manifest(const ModelName& name) const {
    if (::unlink(manifest_path(name).c_str()) == 0) {
        flush_folder(root_ / "manifests");
        return true;
    }
    if (errno == ENOENT) return false;
    fail(ErrorKind::io, "cannot remove {}: {}", manifest_path(name).string(), std::strerror(errno));
}

std::vector<ModelName> Store::list() const {
    std::vector<ModelName> out;
    for (const fs::path& file : entries(root_ / "manifests")) {
        std::string flat = file.filename().string();
        const std::size_t at = flat.rfind('@');
        if (at == std::string::npos || !flat.ends_with(".json")) continue;
        std::string name = flat.substr(0, at);
        std::replace(name.begin(), name.end(), '+', '/');
        if (auto parsed = ModelName::parse(name + ":" + flat.substr(at + 1, flat.size() - at - 6))) out.push_back(*parsed);
    }
    std::sort(out.begin(), out.end());
    return out;
}

GcResult Store::gc(bool dry_run) const {
    int fd = lock_file(root_ / "lock", LockKind::exclusive, false);
    if (fd < 0) {
        log_info("waiting for a process that is adding a model to {}", root_.string());
        fd = lock_file(root_ / "lock", LockKind::exclusive, true);
    }
    const StoreLock alone(fd);
    std::set<Digest> named;
    for (const ModelName& name : list()) {
        const auto text = read_manifest(name);
        if (!text) continue;  // removed just now
        for (const ManifestBlob& blob : Manifest::parse(*text, manifest_path(name).string()).blobs) named.insert(blob.digest);
    }
    GcResult result;
    const auto sweep = [&](const fs::path& file) {
        result.bytes += bytes_at(file);
        if (!dry_run) remove_quietly(file);
    };
    for (const fs::path& folder : entries(root_ / "blobs"))
        for (const fs::path& file : entries(folder)) {
            const auto digest = Digest::parse(file.filename().string());
            if (digest && named.contains(*digest)) continue;
            sweep(file);
            ++result.blobs;
        }
    for (const fs::path& file : entries(root_ / "partial")) {
        if (file.extension() != ".lock") ++result.partials;
        sweep(file);
    }
    for (const fs::path& file : entries(root_ / "manifests"))  // half-written ones
        if (file.extension() == ".tmp") {
            sweep(file);
            ++result.partials;
        }
    if (!dry_run)
        for (const fs::path& folder : entries(root_ / "blobs")) ::rmdir(folder.c_str());  // those that are empty now
    return result;
}

}  // namespace forge
