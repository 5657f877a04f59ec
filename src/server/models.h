// The models that a server offers by name: loaded on first use, unloaded when idle for long.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/text_service.h"
#include "server/server.h"

namespace forge::server {

// A loaded model.
struct Served {
    Served(std::string model_name, std::shared_ptr<const TextModel> model, int max_queue, std::size_t prefix_bytes)
        : name(std::move(model_name)), sampling(default_sampling(model->engine()->file())), service(std::move(model), max_queue, prefix_bytes) {}
    std::string name;
    SamplingOptions sampling;             // the model's own recommendation
    TextService service;
    double load_seconds = 0;
    std::chrono::system_clock::time_point loaded_at = std::chrono::system_clock::now();
    std::atomic<std::int64_t> keep_seconds{-1};   // unloaded after so long without use; -1: as the server says

    // What a request says of it, if it does; negative: for ever.
    void keep(std::optional<double> seconds) {
        if (seconds) keep_seconds = static_cast<std::int64_t>(*seconds < 0 || *seconds > INT32_MAX ? INT32_MAX : *seconds);
    }
};

// Another thread loads the model: whoever serves others, too, waits for it without a thread (Models::when_loaded).
struct StillLoading { std::string model; };

class Models {
  public:
    Models(const ServeOptions& options);
    ~Models();   // cancels what runs

    // The model of that name (empty: the first), loaded. ApiError 404 when there is none of that name,
    // 503 when it does not fit in memory beside the ones in use. load_seconds: 0 when it was loaded. Throws StillLoading
    // where another thread loads it.
    std::shared_ptr<Served> get(const std::string& name, double* load_seconds = nullptr);
    // The same, and waits.
    std::shared_ptr<Served> get_and_wait(const std::string& name);
    // Calls `action` when the loading in progress has ended, with what it failed with or null; at once when there is
    // none; before the end, with a 503, when the server stops. It must not take long. QueueFull when too many wait and
    // it is not `urgent`.
    using Loaded = std::function<void(std::exception_ptr)>;
    void when_loaded(const std::string& name, Loaded action, bool urgent = false);
    // The name as the list of models has it; ApiError 404.
    const ServedModelName& resolve(const std::string& name) const;
    std::shared_ptr<Served> loaded(const std::string& name) const;   // null when it is not
    void unload(const std::string& name);    // when nothing uses it any more
    const std::vector<ServedModelName>& names() const { return names_; }
    std::vector<std::shared_ptr<Served>> all_loaded() const;
    // Until it is unloaded if nobody uses it; nothing when it stays.
    std::optional<std::int64_t> seconds_left(const std::string& name) const;
    void close();

  private:
    struct Place {
        std::shared_ptr<Served> served;
        bool loading = false;
        std::vector<Loaded> waiting;   // for the loading
        std::chrono::steady_clock::time_point last_use;
    };
    std::size_t index(const std::string& name) const;
    std::shared_ptr<Served> load(std::size_t index);
    void retire(Place& place);
    void clean();
    bool unload_idle_but(std::size_t kept);
    static bool busy(const Served& served);

    ServeOptions options_;
    std::vector<ServedModelName> names_;
    std::vector<std::unique_ptr<Place>> places_;
    mutable std::mutex mutex_;
    std::list<std::shared_ptr<Served>> retired_;   // destroyed by the cleaner when nobody uses them
    std::condition_variable wake_;
    bool closing_ = false;
    std::thread cleaner_;
};

}  // namespace forge::server
