// forge serve: models behind HTTP, speaking the APIs that people's tools already speak.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace forge::server {

struct ServedModelName {
    std::string name, path;
    std::vector<std::string> aliases;
};

struct ServeOptions {
    std::vector<ServedModelName> models;
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;
    LoadOptions load;                        // ctx, parallel, ...
    int max_queue = 64;
    std::size_t prefix_bytes = std::size_t{1} << 30;   // caches of finished sequences, for each model
    std::vector<std::string> keys;           // none: no key is asked for
    std::vector<std::string> origins;        // pages of these origins may ask ("*": of any)
    std::vector<std::string> hosts;          // names, besides loopback and `host`, under which it is reached
    bool log_json = false, log_requests = true;
    std::chrono::seconds idle_unload{-1};    // -1: never
    std::string slot_folder;                 // where /slots saves and restores; empty: nowhere
    std::chrono::seconds stall{120};         // /health fails when work waits and no step ended for so long
    std::size_t max_body = std::size_t{32} << 20;
};

// The name that a path gives a model: the file's or folder's, without .gguf.
std::string model_name(const std::string& path);

// Runs from construction to destruction. Loads the first model before it listens.
class ApiServer {
  public:
    explicit ApiServer(const ServeOptions& options);
    ~ApiServer();

    std::uint16_t port() const;
    std::string url() const;
    // Takes no new requests, lets those in progress end for at most `grace`, then cancels them.
    void drain(std::chrono::milliseconds grace);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge::server
