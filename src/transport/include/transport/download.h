// Downloads of known size and digest, over several connections, resumed after drops.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "transport/http.h"
#include "transport/partial_download.h"

namespace forge {

struct Location {
    std::string url;
    std::string authorization;  // for that URL, or ""
};

struct DownloadOptions {
    HttpOptions http;
    int connections = 8;
    std::uint64_t range = 8u << 20;  // bytes a request asks for; at most `connections` ranges lie beside the file
    std::function<void(std::uint64_t)> found = [](std::uint64_t) {};     // once: bytes that were on disk already
    std::function<void(std::uint64_t)> received = [](std::uint64_t) {};  // from several threads
};

// Fills `file` from where `locate` says; it is asked again when a location has expired (401, 403, 410).
// Returns when the digest is right. Wrong bytes are thrown away and asked for once more, then Error;
// after Interrupted and NetworkError, or when the process is killed, what arrived is kept and found again.
// `what` names the file in messages.
void download(PartialDownload& file, const std::string& what, const std::function<Location(HttpConnection&)>& locate, const DownloadOptions& options);

}  // namespace forge
