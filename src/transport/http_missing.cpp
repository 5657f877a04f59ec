// Stands in where libcurl or libcrypto was missing when Forge was built.
#include "transport/http.h"

namespace forge {

struct HttpConnection::Impl {};

bool transport_available() { return false; }

void require_transport() {
    fail(ErrorKind::unsupported,
         "this forge was built without libcurl or libcrypto, so it cannot pull or push; install libcurl4-openssl-dev and libssl-dev "
         "(Debian) or curl (Homebrew) and build it again");
}

HttpConnection::HttpConnection(HttpOptions options) : options_(std::move(options)) { require_transport(); }
HttpConnection::~HttpConnection() = default;
HttpAnswer HttpConnection::exchange(const HttpRequest&, const Url&, bool, const HttpSink&) { require_transport(); return {}; }

}  // namespace forge
