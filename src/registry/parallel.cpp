#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace forge {

void in_parallel(std::size_t count, int connections, const HttpOptions& options,
                 const std::function<void(HttpConnection&, std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::atomic<bool> stopping{false};
    std::mutex mutex;
    std::exception_ptr first;
    HttpOptions own = options;
    own.cancelled = [&] { return stopping.load() || options.cancelled(); };
    const auto run = [&] {
        try {
            HttpConnection connection(own);
            for (std::size_t i; !stopping && (i = next++) < count;) work(connection, i);
        } catch (...) {
            std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();  // those after it were only told to stop
            stopping = true;
        }
    };
    std::vector<std::thread> threads;
    const std::size_t most = std::min(count, static_cast<std::size_t>(std::max(1, connections)));
    for (std::size_t t = 1; t < most; ++t) {
        try {
            threads.emplace_back(run);
        } catch (const std::system_error&) {  // the system gives no more threads: those that there are do it
            break;
        }
    }
    run();
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
}

}  // namespace forge
