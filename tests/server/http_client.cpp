#include "http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tiny_chat.h"

namespace forge::test {

std::vector<Json> Response::events() const {
    std::vector<Json> out;
    std::istringstream in(body);
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("data: ", 0) != 0) continue;
        const std::string data = line.substr(6);
        out.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    }
    return out;
}

std::vector<Json> Response::lines() const {
    std::vector<Json> out;
    std::istringstream in(body);
    for (std::string line; std::getline(in, line);)
        if (!line.empty()) out.push_back(Json::parse(line));
    return out;
}

Connection::Connection(std::uint16_t port) {
    signal(SIGPIPE, SIG_IGN);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) throw std::runtime_error("no connection");
    timeval limit{60, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

Connection::~Connection() { close(); }

void Connection::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
}

void Connection::send(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, 0);
        if (n <= 0) return;
        at += static_cast<std::size_t>(n);
    }
}

std::string Connection::read_some() {
    char buffer[65536];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : std::string();
}

bool Connection::ended() {
    timeval limit{5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte;
    const ssize_t n = rest_.empty() ? ::recv(socket_, &byte, 1, 0) : 1;
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

Response Connection::read_response() {
    Response r;
    const auto more = [&] {
        const std::string piece = read_some();
        rest_ += piece;
        return !piece.empty();
    };
    const auto line = [&]() -> std::string {
        while (rest_.find("\r\n") == std::string::npos)
            if (!more()) throw std::runtime_error("the connection ended in a line: " + rest_);
        const std::size_t end = rest_.find("\r\n");
        std::string text = rest_.substr(0, end);
        rest_.erase(0, end + 2);
        return text;
    };
    const auto bytes = [&](std::size_t n) {
        while (rest_.size() < n)
            if (!more()) throw std::runtime_error("the connection ended in a body");
        std::string text = rest_.substr(0, n);
        rest_.erase(0, n);
        return text;
    };
    if (rest_.empty() && !more()) return r;
    r.status = std::stoi(line().substr(9));
    for (std::string text = line(); !text.empty(); text = line()) {
        std::string name = text.substr(0, text.find(':'));
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        r.headers[name] = text.substr(text.find(':') + 2);
    }
    if (r.status == 100) return read_response();
    if (r.headers.count("content-length")) {
        r.body = bytes(std::stoul(r.headers["content-length"]));
    } else if (r.headers.count("transfer-encoding")) {
        for (;;) {
            const std::size_t size = std::stoul(line(), nullptr, 16);
            r.body += bytes(size);
            line();
            if (size == 0) break;
        }
    } else {
        while (more()) {}
        r.body = std::move(rest_);
        rest_.clear();
    }
    return r;
}

std::string request_text(const std::string& method, const std::string& path, const std::string& body, const std::string& headers) {
    std::string text = method + " " + path + " HTTP/1.1\r\n";
    if (headers.find("Host:") == std::string::npos) text += "Host: localhost\r\n";
    text += headers;
    if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + body;
}

Response ask(std::uint16_t port, const std::string& method, const std::string& path, const Json& body, const std::string& headers) {
    Connection c(port);
    c.send(request_text(method, path, body.is_null() ? "" : body.dump(), headers));
    return c.read_response();
}

server::ServeOptions tiny_options() {
    server::ServeOptions o;
    o.models.push_back({"tiny", tiny_chat_model(), {"other-name"}});
    o.port = 0;
    o.load.threads = 1;
    o.load.ctx = 512;
    o.load.parallel = 4;
    o.load.chunk = 64;
    o.log_requests = false;
    return o;
}

std::unique_ptr<server::ApiServer> tiny_server(const server::ServeOptions& options) { return std::make_unique<server::ApiServer>(options); }

double metric(std::uint16_t port, const std::string& name) {
    std::istringstream in(ask(port, "GET", "/metrics").body);
    double sum = 0;
    for (std::string line; std::getline(in, line);) {
        const std::size_t end = line.find_first_of(" {");
        if (line[0] != '#' && line.substr(0, end) == name) sum += std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
}

bool becomes(std::uint16_t port, const std::string& name, double value, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
        if (metric(port, name) == value) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

}  // namespace forge::test
