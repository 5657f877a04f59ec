// A short name for what a model's file holds.
#pragma once

#include <string>
#include <string_view>

namespace forge::server {

// SHA-256 in 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

// SHA-256 of the names, sizes and samples (16 KiB at 64 places, the first and last among them) of a file, or of the
// files of a folder: reading all of a large model would take long. Empty when it cannot be read.
std::string model_digest(const std::string& path);

}  // namespace forge::server
