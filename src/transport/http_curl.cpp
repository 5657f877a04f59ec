// HTTP through libcurl; the only file that includes it. Proxies come from the environment
// (http_proxy, https_proxy, all_proxy, no_proxy), certificates from the system or from where CURL_CA_BUNDLE,
// SSL_CERT_FILE and SSL_CERT_DIR say.
#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>

#include "base/text.h"
#include "transport/http.h"

namespace forge {

struct HttpConnection::Impl {
    CURL* handle = nullptr;
    char message[CURL_ERROR_SIZE] = {};
};

namespace {

void start_library() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// One exchange in progress, for libcurl's callbacks. Exceptions must not cross C code: they wait in `thrown`.
struct Exchange {
    const HttpRequest& request;
    const HttpSink& sink;
    const HttpOptions& options;
    HttpAnswer answer;
    std::uint64_t body_sent = 0;
    std::chrono::steady_clock::time_point moved = std::chrono::steady_clock::now();
    std::uint64_t moved_bytes = 0;
    bool stalled = false, sink_ended = false, too_long = false, read_failed = false;
    std::exception_ptr thrown;
};

std::size_t on_header(char* text, std::size_t size, std::size_t count, void* user) {
    auto& x = *static_cast<Exchange*>(user);
    std::string_view line(text, size * count);
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // a further answer: 100 Continue, or a proxy's own
        x.answer.headers.clear();
        return size * count;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || x.answer.headers.size() >= 200) return size * count;
    std::string name(line.substr(0, colon));
    for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    x.answer.headers.emplace_back(std::move(name), value);
    return size * count;
}

// The authorities whose signatures count, where the environment names others than the system's.
struct Authorities {
    std::string file, folder;
    static Authorities from_environment() {
        const std::string bundle = environment("CURL_CA_BUNDLE");
        return {bundle.empty() ? environment("SSL_CERT_FILE") : bundle, environment("SSL_CERT_DIR")};
    }
};

struct WriteContext {
    Exchange* exchange;
    CURL* handle;
};

std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* user) {
    const auto& context = *static_cast<WriteContext*>(user);
    Exchange& x = *context.exchange;
    const std::size_t total = size * count;
    long status = 0;
    curl_easy_getinfo(context.handle, CURLINFO_RESPONSE_CODE, &status);
    x.answer.status = static_cast<int>(status);
    if (x.sink && status >= 200 && status < 300) {
        try {
            if (x.sink(x.answer, std::as_bytes(std::span(bytes, total)))) return total;
            x.sink_ended = true;
        } catch (...) {
            x.thrown = std::current_exception();
        }
        return 0;
    }
    if (x.answer.body.size() + total > x.request.max_body) {
        x.too_long = true;
        return 0;
    }
    x.answer.body.append(bytes, total);
    return total;
}

std::size_t on_read(char* to, std::size_t size, std::size_t count, void* user) {
    auto& x = *static_cast<Exchange*>(user);
    const auto& file = x.request.file;
    if (file.fd < 0) {
        const std::size_t n = std::min<std::uint64_t>(size * count, x.request.body.size() - x.body_sent);
        std::memcpy(to, x.request.body.data() + x.body_sent, n);
        x.body_sent += n;
        return n;
    }
    const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(size * count, file.size - x.body_sent));
    if (most == 0) return 0;
    const ssize_t n = ::pread(file.fd, to, most, static_cast<off_t>(file.offset + x.body_sent));
    if (n <= 0) {
        x.read_failed = true;
        return CURL_READFUNC_ABORT;
    }
    x.body_sent += static_cast<std::uint64_t>(n);
    if (file.sent) file.sent(static_cast<std::uint64_t>(n));
    return static_cast<std::size_t>(n);
}

// libcurl rewinds a body when it sends a request again (a kept connection that the server had closed).
int on_seek(void* user, curl_off_t offset, int origin) {
    auto& x = *static_cast<Exchange*>(user);
    if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
    x.body_sent = static_cast<std::uint64_t>(offset);
    return CURL_SEEKFUNC_OK;
}

int on_progress(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent) {
    auto& x = *static_cast<Exchange*>(user);
    const auto now = std::chrono::steady_clock::now();
    const std::uint64_t bytes = static_cast<std::uint64_t>(received + sent) + x.answer.headers.size();
    if (bytes != x.moved_bytes) {
        x.moved_bytes = bytes;
        x.moved = now;
    } else if (now - x.moved > x.options.stall_timeout) {
        x.stalled = true;
        return 1;
    }
    return x.options.cancelled() ? 1 : 0;
}

}  // namespace

bool transport_available() { return true; }
void require_transport() {}

HttpConnection::HttpConnection(HttpOptions options) : options_(std::move(options)), impl_(std::make_unique<Impl>()) {
    start_library();
    impl_->handle = curl_easy_init();
    if (!impl_->handle) fail(ErrorKind::internal, "libcurl could not be started");
}

HttpConnection::~HttpConnection() {
    if (impl_ && impl_->handle) curl_easy_cleanup(impl_->handle);
}

HttpAnswer HttpConnection::exchange(const HttpRequest& request, const Url& url, bool with_authorization, const HttpSink& sink) {
    if (options_.cancelled()) throw Interrupted();
    if (with_authorization && url.scheme == "http" && !url.loopback())
        fail("a token or password is only sent over https (or to this machine itself), and {} is http", shown_url(url.origin()));
    CURL* handle = impl_->handle;
    curl_easy_reset(handle);  // keeps the connection
    Exchange x{request, sink, options_, {}, 0, std::chrono::steady_clock::now(), 0, false, false, false, false, nullptr};
    WriteContext write{&x, handle};
    const std::string text = url.text();
    impl_->message[0] = 0;

    struct List {
        curl_slist* head = nullptr;
        ~List() { curl_slist_free_all(head); }
        void add(const std::string& line) {
            for (const char c : line)
                if (c == '\r' || c == '\n') fail("a header of a request holds a line break");
            head = curl_slist_append(head, line.c_str());
        }
    } lines;
    for (const auto& [name, value] : request.headers) lines.add(name + ": " + value);
    if (with_authorization) lines.add("Authorization: " + request.authorization);
    lines.add("Accept-Encoding: identity");  // sizes, ranges and digests are of the bytes themselves
    lines.add("Expect:");

    const bool with_body = request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
    curl_easy_setopt(handle, CURLOPT_URL, text.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    const Authorities authorities = Authorities::from_environment();
    if (!authorities.file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, authorities.file.c_str());
    if (!authorities.folder.empty()) curl_easy_setopt(handle, CURLOPT_CAPATH, authorities.folder.c_str());
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, impl_->message);
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "forge/" FORGE_VERSION_TEXT);
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
    curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, lines.head);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &x);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &write);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &x);
    if (with_body) {
        curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
        curl_easy_setopt(handle, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(handle, CURLOPT_READDATA, &x);
        curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(handle, CURLOPT_SEEKDATA, &x);
        // On a kept connection that breaks, libcurl would send the body again by itself: it must first be
        // found out how much of it arrived.
        if (request.file.fd >= 0) curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
        const std::uint64_t size = request.file.fd >= 0 ? request.file.size : request.body.size();
        curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
    } else if (request.method == "HEAD") {
        curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    }
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());

    const CURLcode code = curl_easy_perform(handle);
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    x.answer.status = static_cast<int>(status);
    x.answer.url = text;
    if (x.thrown) std::rethrow_exception(x.thrown);
    if (code == CURLE_OK || x.sink_ended) return std::move(x.answer);
    if (options_.cancelled()) throw Interrupted();
    const std::string where = shown_url(text);
    if (x.too_long) fail(ErrorKind::io, "{} answers with more than the {} bytes that are taken", where, request.max_body);
    if (x.read_failed) fail(ErrorKind::io, "a file that was being sent to {} could not be read to its end", where);
    if (x.stalled)
        throw NetworkError(fmt::format("{}: nothing moved for {:.0f} seconds", where, static_cast<double>(options_.stall_timeout.count()) / 1e3));
    const char* reason = impl_->message[0] ? impl_->message : curl_easy_strerror(code);
    switch (code) {
        case CURLE_PEER_FAILED_VERIFICATION:
            fail(ErrorKind::io, "{}: the server's certificate is not accepted ({}); if an authority of your own signed it, let SSL_CERT_FILE name a file with that authority's certificate",
                 where, reason);
        case CURLE_SSL_CACERT_BADFILE:
            fail(ErrorKind::io, "{} cannot be reached: the certificates in {} cannot be read ({})", where,
                 authorities.file.empty() ? "the system's store" : authorities.file, reason);
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_URL_MALFORMAT:
        case CURLE_OUT_OF_MEMORY:  // trying again would not help
            fail(ErrorKind::io, "{} cannot be reached: {}", where, reason);
        default: throw NetworkError(fmt::format("{} cannot be reached: {}", where, reason));
    }
}

}  // namespace forge
