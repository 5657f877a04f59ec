// Bytes at a place of an open file, all of them or an Error (io) that names `path`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace forge {

void write_at(int fd, const std::filesystem::path& path, std::uint64_t offset, std::span<const std::byte> bytes);
void read_at(int fd, const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> bytes);

}  // namespace forge
