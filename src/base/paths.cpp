#include "base/paths.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace forge {
namespace {

std::filesystem::path folder(const char* xdg, const char* linux_default, const char* mac, const char* under_home) {
    if (const char* home = std::getenv("FORGE_HOME"); home && *home) return std::filesystem::path(home) / under_home;
    const char* user = std::getenv("HOME");
    const std::filesystem::path base = user && *user ? user : "/tmp";
#ifdef __APPLE__
    (void)xdg;
    (void)linux_default;
    return base / mac / "Forge";
#else
    (void)mac;
    if (const char* dir = std::getenv(xdg); dir && *dir) return std::filesystem::path(dir) / "forge";
    return base / linux_default / "forge";
#endif
}

}  // namespace

std::filesystem::path cache_folder() { return folder("XDG_CACHE_HOME", ".cache", "Library/Caches", "cache"); }
std::filesystem::path data_folder() { return folder("XDG_DATA_HOME", ".local/share", "Library/Application Support", "data"); }
std::filesystem::path config_folder() { return folder("XDG_CONFIG_HOME", ".config", "Library/Application Support", "config"); }

void write_file_atomically(const std::filesystem::path& target, std::string_view content) {
    const std::string temporary = fmt::format("{}.{}.tmp", target.string(), ::getpid());
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) fail(ErrorKind::io, "cannot write {}: {}", temporary, std::strerror(errno));
    while (!content.empty()) {
        const ssize_t n = ::write(fd, content.data(), content.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int reason = errno;
            ::close(fd);
            ::unlink(temporary.c_str());
            fail(ErrorKind::io, "cannot write {}: {}", temporary, std::strerror(reason));
        }
        content.remove_prefix(static_cast<std::size_t>(n));
    }
    const bool synced = ::fsync(fd) == 0;
    ::close(fd);
    if (!synced || ::rename(temporary.c_str(), target.c_str()) != 0) {
        const int reason = errno;
        ::unlink(temporary.c_str());
        fail(ErrorKind::io, "cannot write {}: {}", target.string(), std::strerror(reason));
    }
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
        const int reason = errno;
        fail(reason == ENOENT ? ErrorKind::not_found : ErrorKind::io, "cannot read {}: {}", path.string(), std::strerror(reason));
    }
    std::ostringstream out;
    out << in.rdbuf();
    if (in.bad() || (out.fail() && in.peek() != std::char_traits<char>::eof()))
        fail(ErrorKind::io, "cannot read {}", path.string());
    return std::move(out).str();
}

}  // namespace forge
