// model.forge: the blobs of one model and its manifest in one file (docs/format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace forge {

struct ContainedBlob {
    Digest digest;
    std::uint64_t offset = 0, bytes = 0;  // offset: a multiple of 16 KiB
};

struct Container {
    std::string_view manifest;  // within the file
    std::vector<ContainedBlob> blobs;
    std::uint64_t manifest_offset = 0;
};

std::string container_header();  // 16 KiB
// Manifest, directory and trailer, for a file whose blobs end at `end`.
std::string container_tail(std::string_view manifest, std::span<const ContainedBlob> blobs, std::uint64_t end);
Container read_container(std::span<const std::byte> bytes, const std::string& source);

}  // namespace forge
