// The same exchange with a registry for several blobs at once.
#pragma once

#include <cstddef>
#include <functional>

#include "transport/http.h"

namespace forge {

// Calls work(connection, i) for every i < count, from at most `connections` threads, each with a connection of
// its own. Returns when all are done; the first Error ends the others and is thrown here.
void in_parallel(std::size_t count, int connections, const HttpOptions& options,
                 const std::function<void(HttpConnection&, std::size_t)>& work);

}  // namespace forge
