#include "transport/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/text.h"
#include "transport/file_lock.h"
#include "transport/hub_cache.h"

namespace forge {
namespace {

using Json = nlohmann::json;

// Line breaks around a pasted token are not part of it; inside they would end a header.
std::string trimmed(std::string text) {
    const auto space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    while (!text.empty() && space(text.back())) text.pop_back();
    std::size_t begin = 0;
    while (begin < text.size() && space(text[begin])) ++begin;
    return text.substr(begin);
}

Json read_all() {
    const auto path = credentials_file();
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return Json::object();
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0)
        log_warn("{} can be read by others; chmod 600 closes it", path.string());
    Json all = parse_json<Json>(read_file(path), path.string(), false);
    if (!all.is_object()) fail("{} is not as forge login writes it; remove it and log in again", path.string());
    return all;
}

// As write_file_atomically, but never readable by others, not even for a moment.
void write_all(const Json& all) {
    const auto path = credentials_file();
    const std::string temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
    ::unlink(temporary.c_str());
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) fail(ErrorKind::io, "cannot write {}: {}", temporary, std::strerror(errno));
    const std::string text = all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
    const int reason = errno;
    ::close(fd);
    if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
        ::unlink(temporary.c_str());
        fail(ErrorKind::io, "cannot write {}: {}", path.string(), std::strerror(written ? errno : reason));
    }
}

FileLock lock_credentials() {
    const auto folder = credentials_file().parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail(ErrorKind::io, "cannot create {}: {}", folder.string(), error.message());
    return FileLock(folder / "credentials.lock", "the credentials");
}

}  // namespace

std::filesystem::path credentials_file() { return config_folder() / "credentials.json"; }

std::optional<Credential> stored_credential(const std::string& host) {
    const Json all = read_all();
    const auto found = all.find(host);
    if (found == all.end() || !found->is_object()) return std::nullopt;
    Credential credential;
    if (const auto user = found->find("user"); user != found->end() && user->is_string()) credential.user = user->get<std::string>();
    if (const auto secret = found->find("secret"); secret != found->end() && secret->is_string()) credential.secret = secret->get<std::string>();
    if (credential.secret.empty()) return std::nullopt;
    return credential;
}

void store_credential(const std::string& host, const Credential& credential) {
    const FileLock lock = lock_credentials();
    Json all = read_all();
    all[host] = Json{{"user", credential.user}, {"secret", credential.secret}};
    write_all(all);
}

bool forget_credential(const std::string& host) {
    const FileLock lock = lock_credentials();
    Json all = read_all();
    if (all.erase(host) == 0) return false;
    write_all(all);
    return true;
}

std::string hub_token(const std::string& host) {
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
        if (const std::string token = trimmed(environment(name)); !token.empty()) return token;
    if (const auto stored = stored_credential(host)) return stored->secret;
    const std::string named = environment("HF_TOKEN_PATH");
    const std::filesystem::path path = named.empty() ? hub_home() / "token" : std::filesystem::path(named);
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) return trimmed(read_file(path));
    return "";
}

std::optional<Credential> registry_credential(const std::string& host) {
    const std::string token = trimmed(environment("FORGE_REGISTRY_TOKEN"));
    if (!token.empty() && environment("FORGE_REGISTRY") == host) return Credential{environment("FORGE_REGISTRY_USER"), token};
    return stored_credential(host);
}

std::string base64(const std::string& bytes) {
    static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const auto at = [&](std::size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
        const unsigned word = at(0) << 16 | at(1) << 8 | at(2);
        out += digits[word >> 18];
        out += digits[word >> 12 & 63];
        out += i + 1 < bytes.size() ? digits[word >> 6 & 63] : '=';
        out += i + 2 < bytes.size() ? digits[word & 63] : '=';
    }
    return out;
}

}  // namespace forge
