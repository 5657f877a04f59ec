// A plain HTTP client on sockets, and a server on the tiny chat model, for tests.
#pragma once

#include <map>
#include <memory>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/server.h"

namespace forge::test {

using Json = nlohmann::ordered_json;

struct Response {
    int status = 0;   // 0: the connection ended before an answer
    std::map<std::string, std::string> headers;   // names in lower case
    std::string body;
    Json json() const { return Json::parse(body); }
    // The "data:" lines of an event stream, as JSON where they are; [DONE] as a text.
    std::vector<Json> events() const;
    std::vector<Json> lines() const;   // of newline-delimited JSON
};

class Connection {
  public:
    explicit Connection(std::uint16_t port);
    ~Connection();
    Connection(const Connection&) = delete;

    void send(const std::string& bytes);
    std::string read_some();          // empty at the end
    Response read_response();         // chunks joined
    void close();
    bool ended();                     // the other side closed it within a few seconds, and said nothing more

  private:
    int socket_ = -1;
    std::string rest_;
};

std::string request_text(const std::string& method, const std::string& path, const std::string& body = "", const std::string& headers = "");
Response ask(std::uint16_t port, const std::string& method, const std::string& path, const Json& body = nullptr, const std::string& headers = "");

// On any free port, without request logs.
server::ServeOptions tiny_options();
std::unique_ptr<server::ApiServer> tiny_server(const server::ServeOptions& options = tiny_options());

// Tests of one suite share a server; Suite::options() says how it is started.
template <typename Suite>
class SharedServer : public testing::Test {
  public:
    static void SetUpTestSuite() { server_ = tiny_server(Suite::options()).release(); }
    static void TearDownTestSuite() {
        delete server_;
        server_ = nullptr;
    }
    static server::ServeOptions options() { return tiny_options(); }

  protected:
    static std::uint16_t port() { return server_->port(); }

  private:
    static inline server::ApiServer* server_ = nullptr;
};

double metric(std::uint16_t port, const std::string& name);   // the sum over labels
// Waits until a metric has a value; false after `seconds`.
bool becomes(std::uint16_t port, const std::string& name, double value, double seconds);

}  // namespace forge::test
