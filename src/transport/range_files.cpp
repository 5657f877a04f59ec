#include "transport/range_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file_io.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

// "FIRST-END"
std::optional<FileRange> parse_name(std::string_view name) {
    FileRange range;
    const char* const end = name.data() + name.size();
    const auto first = std::from_chars(name.data(), end, range.first);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
    const auto last = std::from_chars(first.ptr + 1, end, range.end);
    if (last.ec != std::errc() || last.ptr != end || range.first >= range.end) return std::nullopt;
    return range;
}

void remove_quietly(const fs::path& path) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
}

}  // namespace

fs::path RangeFolder::file(const FileRange& range) const { return path_ / fmt::format("{}-{}", range.first, range.end); }

void RangeFolder::create() const {
    std::error_code reason;
    fs::create_directories(path_, reason);
    if (reason) fail(ErrorKind::io, "cannot create the folder {}: {}", path_.string(), reason.message());
}

void RangeFolder::remove(const FileRange& range) const { remove_quietly(file(range)); }
void RangeFolder::remove() const { remove_quietly(path_); }

std::vector<FileRange> RangeFolder::plan(std::uint64_t front, std::uint64_t size, std::uint64_t step) const {
    std::vector<FileRange> found;
    std::error_code reason;
    for (fs::directory_iterator it(path_, reason), end; !reason && it != end; it.increment(reason)) {
        auto range = parse_name(it->path().filename().string());
        std::error_code ignored;
        if (range) range->have = fs::is_regular_file(it->path(), ignored) ? fs::file_size(it->path(), ignored) : 0;
        if (range && !ignored && range->end <= size && range->have > 0 && range->have <= range->end - range->first && file(*range) == it->path()) {
            found.push_back(*range);
        } else {
            remove_quietly(it->path());
        }
    }
    std::sort(found.begin(), found.end(), [](const FileRange& a, const FileRange& b) { return a.first != b.first ? a.first < b.first : a.have > b.have; });
    std::vector<FileRange> out;
    std::uint64_t at = front;
    const auto fill = [&](std::uint64_t end) {
        for (; at < end; at = out.back().end) out.push_back({at, std::min(end, at + step), 0});
    };
    for (const FileRange& range : found) {
        // One may have begun before the front, when it was killed while it was being appended.
        const bool at_front = out.empty() && range.first < front && range.end > front && range.first + range.have >= front;
        if (range.first < at && !at_front) {
            remove(range);
            continue;
        }
        fill(range.first);
        out.push_back(range);
        at = range.end;
    }
    fill(size);
    return out;
}

RangeFile::RangeFile(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail(ErrorKind::io, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

RangeFile::~RangeFile() { ::close(fd_); }

void RangeFile::write(std::uint64_t at, std::span<const std::byte> bytes) { write_at(fd_, path_, at, bytes); }

void RangeFile::read(std::uint64_t at, std::span<std::byte> bytes) const { read_at(fd_, path_, at, bytes); }

}  // namespace forge
