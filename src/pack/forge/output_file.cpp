#include "output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"

namespace forge {

namespace fs = std::filesystem;

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail(ErrorKind::io, "cannot create {}: {}", path_.string(), std::strerror(errno));
}

OutputFile::~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = std::exchange(other.fd_, -1);
        path_ = std::move(other.path_);
    }
    return *this;
}

std::uint64_t OutputFile::size() const {
    struct stat info{};
    if (::fstat(fd_, &info) != 0) fail(ErrorKind::io, "cannot look at {}: {}", path_.string(), std::strerror(errno));
    return static_cast<std::uint64_t>(info.st_size);
}

void OutputFile::resize(std::uint64_t bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail(ErrorKind::io, "cannot make {} {} bytes long: {}", path_.string(), bytes, std::strerror(errno));
}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) { write_at(fd_, path_, offset, bytes); }

void OutputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const { read_at(fd_, path_, offset, bytes); }

void OutputFile::flush() {
    if (::fsync(fd_) != 0) fail(ErrorKind::io, "cannot flush {}: {}", path_.string(), std::strerror(errno));
}

bool OutputFile::try_lock() { return ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }

PackJournal::PackJournal(fs::path path, const std::string& key) : file_(std::move(path)) {
    std::string text(static_cast<std::size_t>(file_.size()), '\0');
    file_.read(0, std::as_writable_bytes(std::span(text)));
    const std::string first = key + "\n";
    if (!text.starts_with(first)) {
        file_.resize(0);
        file_.write(0, std::as_bytes(std::span(first)));
        end_ = first.size();
        return;
    }
    end_ = first.size();
    while (end_ < text.size()) {
        const std::size_t newline = text.find('\n', end_);
        if (newline == std::string::npos) break;
        std::istringstream line(text.substr(end_, newline - end_));
        Entry entry{};
        std::string hex;
        if (!(line >> entry.number >> hex >> entry.bytes)) break;
        const auto digest = Digest::parse(hex);
        if (!digest) break;
        entry.digest = *digest;
        entries_.push_back(entry);
        end_ = newline + 1;
    }
    file_.resize(end_);
}

void PackJournal::add(const Entry& entry) {
    const std::string line = fmt::format("{} {} {}\n", entry.number, entry.digest.hex(), entry.bytes);
    file_.write(end_, std::as_bytes(std::span(line)));
    file_.flush();
    end_ += line.size();
    entries_.push_back(entry);
}

void PackJournal::remove() {
    std::error_code ignored;
    fs::remove(file_.path(), ignored);
}

}  // namespace forge
