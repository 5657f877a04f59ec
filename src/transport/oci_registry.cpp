#include "transport/oci_registry.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/json.h"
#include "base/log.h"
#include "transport/credentials.h"

namespace forge {
namespace {

constexpr const char* kManifestTypes = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json";

Url base_of(const OciReference& reference, bool plain_http) {
    Url url = parse_url("https://" + reference.host + "/");
    const bool has_port = reference.host.find(':', reference.host.starts_with("[") ? reference.host.find(']') : 0) != std::string::npos;
    if (plain_http || url.loopback()) {
        url.scheme = "http";
        if (!has_port) url.port = 80;
    }
    return url;
}

// "0-499" or "bytes=0-499": 500 bytes are there.
std::uint64_t bytes_of_range(std::string_view text) {
    const std::size_t dash = text.rfind('-');
    if (dash == std::string_view::npos) return 0;
    std::uint64_t last = 0;
    const auto [end, error] = std::from_chars(text.data() + dash + 1, text.data() + text.size(), last);
    if (error != std::errc() || end != text.data() + text.size() || last >= std::uint64_t{1} << 44) return 0;
    return last == 0 ? 0 : last + 1;  // an empty upload says 0-0, or a registry of one byte: sent again, it is refused and begun anew
}

struct OpenFile {
    int fd;
    explicit OpenFile(const std::filesystem::path& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (fd < 0) fail(ErrorKind::io, "cannot read {}: {}", path.string(), std::strerror(errno));
    }
    ~OpenFile() { ::close(fd); }
};

}  // namespace

OciRegistry::OciRegistry(const OciReference& reference, HttpOptions options, bool plain_http)
    : reference_(reference), base_(base_of(reference, plain_http)), connection_(std::move(options)) {}

std::string OciRegistry::url(const std::string& rest) const { return fmt::format("{}/v2/{}/{}", base_.origin(), reference_.name, rest); }

std::string OciRegistry::authorization() {
    std::lock_guard lock(mutex_);
    return authorization_;
}

// Credentials go along once the registry has asked for them, and to the registry alone.
HttpAnswer OciRegistry::send(HttpConnection& connection, HttpRequest request, bool retrying) {
    const bool ours = parse_url(request.url).same_origin(base_);
    for (int round = 0;; ++round) {
        request.authorization = ours ? authorization() : "";
        HttpAnswer answer = retrying ? connection.send_retrying(request) : connection.send(request);
        if (answer.status != 401 || !ours || round == 5) return answer;  // a token may run out while others use it too
        authorize(connection, answer, request.authorization);
    }
}

// Answers a 401: a password for "Basic", a token from where the registry says for "Bearer".
void OciRegistry::authorize(HttpConnection& connection, const HttpAnswer& refusal, const std::string& used) {
    std::lock_guard lock(mutex_);
    if (authorization_ != used) return;  // another thread has been here
    const auto credential = registry_credential(reference_.host);
    const std::string basic = credential ? "Basic " + base64((credential->user.empty() ? "token" : credential->user) + ":" + credential->secret) : "";
    const std::string hint = credential ? fmt::format("what forge login {} kept is not accepted", reference_.host)
                                        : fmt::format("forge login {} --user NAME keeps a password for it", reference_.host);
    for (const AuthChallenge& challenge : parse_challenges(refusal.header("www-authenticate"))) {
        if (challenge.scheme == "basic") {
            if (basic.empty() || used == basic) fail(ErrorKind::io, "{} wants a user and a password; {}", reference_.host, hint);
            authorization_ = basic;
            return;
        }
        if (challenge.scheme != "bearer") continue;
        const Url realm = parse_url(challenge.parameter("realm"));
        if (base_.scheme == "https" && realm.scheme != "https")
            fail(ErrorKind::io, "{} sends for a token to {}, which is not encrypted; that is not followed", reference_.host, realm.origin());
        const std::string asked = challenge.parameter("scope");
        const std::string scope = asked.empty() ? "repository:" + reference_.name + ":pull,push" : asked;
        HttpRequest request;
        request.url = realm.text() + (realm.target.find('?') == std::string::npos ? "?" : "&") + "service=" + url_encode(challenge.parameter("service"));
        for (std::size_t begin = 0; begin < scope.size();) {  // several are separated by spaces
            const std::size_t end = std::min(scope.find(' ', begin), scope.size());
            if (end > begin) request.url += "&scope=" + url_encode(scope.substr(begin, end - begin));
            begin = end + 1;
        }
        request.authorization = basic;
        request.max_body = 1u << 20;
        const HttpAnswer answer = connection.send_retrying(request);
        if (answer.status != 200) fail(ErrorKind::io, "{} gives no token for {} (status {}); {}", realm.origin(), reference_.text(), answer.status, hint);
        using Json = nlohmann::json;
        const Json json = parse_json<Json>(answer.body, realm.origin(), false);
        for (const char* key : {"token", "access_token"})
            if (json.is_object() && json.contains(key) && json[key].is_string()) {
                authorization_ = "Bearer " + json[key].get<std::string>();
                if (authorization_ == used) fail(ErrorKind::io, "{} does not accept its own token; {}", reference_.host, hint);
                return;
            }
        fail(ErrorKind::io, "{} answers without a token", realm.origin());
    }
    fail(ErrorKind::io, "{} refuses, and asks for neither a password nor a token that Forge knows", reference_.host);
}

void OciRegistry::check(const HttpAnswer& answer, const std::string& what) const {
    if (answer.status >= 200 && answer.status < 300) return;
    const std::string said = explanation(answer), why = said.empty() ? "" : ": " + said;
    if (answer.status == 404) fail(ErrorKind::not_found, "{} has no {}{}", reference_.host, what, why);
    if (answer.status == 401 || answer.status == 403)
        fail(ErrorKind::io, "{} does not allow that for {}{}; forge login {} may help", reference_.host, what, why, reference_.host);
    fail(ErrorKind::io, "{} answers with status {} for {}{}", reference_.host, answer.status, what, why);
}

bool OciRegistry::has_blob(HttpConnection& connection, const RemoteDigest& digest, std::uint64_t size) {
    HttpRequest request;
    request.method = "HEAD";
    request.url = url("blobs/" + digest.text());
    request.follow = HttpRequest::Follow::same_host;  // a redirect to where blobs lie: it is there
    const HttpAnswer answer = send(connection, request);
    if (answer.status == 404) return false;
    if (answer.status >= 300 && answer.status < 400) return true;
    check(answer, digest.text());
    const std::string length = answer.header("content-length");
    return length.empty() || length == std::to_string(size);
}

// False: the blob is shared from another repository. True: `session` is where its bytes are to go.
bool OciRegistry::begin_upload(HttpConnection& connection, const RemoteDigest& digest, const std::vector<std::string>& from, std::string& session, std::uint64_t& piece) {
    HttpRequest request;
    request.method = "POST";
    for (std::size_t i = 0;; ++i) {
        const bool mount = i < from.size();
        request.url = url("blobs/uploads/") + (mount ? fmt::format("?mount={}&from={}", url_encode(digest.text()), url_encode(from[i])) : "");
        HttpAnswer answer;
        try {
            answer = send(connection, request);
        } catch (const NetworkError&) {
            throw;
        } catch (const Interrupted&) {
            throw;
        } catch (const Error& error) {
            if (!mount) throw;
            log_debug("{}: {}", from[i], error.what());  // no right to read there
            continue;
        }
        if (mount && answer.status == 201) return false;
        if (mount && answer.status != 202) continue;
        check(answer, "repository " + reference_.name);
        const std::string location = answer.header("location");
        if (location.empty()) fail(ErrorKind::io, "{} does not say where to send a blob", reference_.host);
        session = resolve_url(parse_url(answer.url), location).text();
        std::uint64_t least = 0;
        const std::string minimum = answer.header("oci-chunk-min-length");
        std::from_chars(minimum.data(), minimum.data() + minimum.size(), least);
        piece = std::max(piece, std::min(least, std::uint64_t{1} << 40));
        return true;
    }
}

// After a drop: how many bytes the registry has, or 0 when the upload must begin anew (session is then empty).
std::uint64_t OciRegistry::progress_of(HttpConnection& connection, std::string& session) {
    HttpRequest request;
    request.url = session;
    const HttpAnswer answer = send(connection, request);
    if (answer.status < 200 || answer.status >= 300) {
        session.clear();
        return 0;
    }
    if (const std::string location = answer.header("location"); !location.empty()) session = resolve_url(parse_url(answer.url), location).text();
    return bytes_of_range(answer.header("range"));
}

bool OciRegistry::upload(HttpConnection& connection, const RemoteDigest& digest, const std::filesystem::path& file, std::uint64_t size,
                         const std::vector<std::string>& from, const std::function<void(std::uint64_t)>& sent, std::uint64_t piece) {
    const OpenFile open(file);
    std::string session;
    std::uint64_t there = 0, best = 0;
    const HttpOptions& options = connection.options();
    for (int attempt = 1;;) {
        try {
            if (session.empty()) {
                there = 0;
                if (!begin_upload(connection, digest, from, session, piece)) return false;
            }
            while (there < size) {
                HttpRequest request;
                request.method = "PATCH";
                request.url = session;
                const std::uint64_t count = std::min(piece, size - there);
                request.headers = {{"Content-Type", "application/octet-stream"}, {"Content-Range", fmt::format("{}-{}", there, there + count - 1)}};
                request.file = {open.fd, there, count, sent};
                const HttpAnswer answer = send(connection, request, false);
                throw_if_transient(answer);
                if (answer.status == 404 || answer.status == 416 || answer.status == 400) {  // it has another idea of where we are
                    if (++attempt > options.tries) check(answer, "upload of " + digest.text());
                    there = progress_of(connection, session);
                    if (session.empty()) throw NetworkError(fmt::format("{} ended an upload with status {}", reference_.host, answer.status));
                    continue;
                }
                check(answer, "upload of " + digest.text());
                if (const std::string location = answer.header("location"); !location.empty()) session = resolve_url(parse_url(answer.url), location).text();
                const std::uint64_t said = bytes_of_range(answer.header("range"));  // 0: it does not say
                const std::uint64_t before = there;
                there = said == 0 ? there + count : std::min(size, said);
                if (there > best) {
                    best = there;
                    attempt = 1;
                }
                if (there <= before && ++attempt > options.tries)
                    fail(ErrorKind::io, "{} takes pieces of {} and does not get further than {} bytes", reference_.host, digest.text(), before);
            }
            HttpRequest request;
            request.method = "PUT";
            request.url = session + (session.find('?') == std::string::npos ? "?" : "&") + "digest=" + url_encode(digest.text());
            request.headers = {{"Content-Type", "application/octet-stream"}};
            const HttpAnswer answer = send(connection, request, false);
            throw_if_transient(answer);
            if (answer.status == 404 || answer.status == 416) {  // it ended the upload: finished (and the answer was lost), or forgotten
                session.clear();
                throw NetworkError(fmt::format("{} ended an upload with status {}", reference_.host, answer.status));
            }
            check(answer, "upload of " + digest.text());
            return true;
        } catch (const NetworkError& error) {
            if (attempt >= options.tries) throw;
            log_debug("{}; finding out how much arrived", error.what());
            pause(options, pause_before(options, attempt++, error.wait));
            if (has_blob(connection, digest, size)) return true;  // the answer was lost, not the bytes
            if (!session.empty()) there = progress_of(connection, session);
        }
    }
}

void OciRegistry::put_manifest(const std::string& text) {
    HttpRequest request;
    request.method = "PUT";
    request.url = url("manifests/" + reference_.tag);
    request.headers = {{"Content-Type", "application/vnd.oci.image.manifest.v1+json"}};
    request.body = text;
    const HttpAnswer answer = send(connection_, request);
    check(answer, reference_.text());
    const std::string digest = answer.header("docker-content-digest");
    if (!digest.empty() && digest != "sha256:" + sha256_hex(text))
        fail(ErrorKind::io, "{} kept another manifest than was sent: {} instead of sha256:{}", reference_.host, digest.substr(0, 100), sha256_hex(text));
}

std::string OciRegistry::get_manifest() {
    HttpRequest request;
    request.url = url("manifests/" + reference_.tag);
    request.headers = {{"Accept", kManifestTypes}};
    HttpAnswer answer = send(connection_, request);
    check(answer, reference_.text());
    const std::string digest = answer.header("docker-content-digest");
    if (digest.starts_with("sha256:") && digest != "sha256:" + sha256_hex(answer.body))
        fail(ErrorKind::io, "the manifest of {} arrived with other bytes than {}", reference_.text(), digest.substr(0, 100));
    return std::move(answer.body);
}

Location OciRegistry::locate(HttpConnection& connection, const RemoteDigest& digest) {
    HttpRequest request;
    request.method = "HEAD";
    request.url = url("blobs/" + digest.text());
    request.follow = HttpRequest::Follow::none;
    const HttpAnswer answer = send(connection, request);
    if (answer.status >= 300 && answer.status < 400) {
        const Url there = resolve_url(parse_url(answer.url), answer.header("location"));
        if (base_.scheme == "https" && there.scheme == "http")
            fail(ErrorKind::io, "{} redirects to {}, which is not encrypted; that is not followed", reference_.host, there.origin());
        return {there.text(), there.same_origin(base_) ? authorization() : ""};
    }
    check(answer, digest.text());
    return {answer.url, authorization()};
}

}  // namespace forge
