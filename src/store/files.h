// What the files of this room share about the file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

namespace forge::store_files {

void make_folders(const std::filesystem::path& folder);
// Makes renames within a folder durable.
void flush_folder(const std::filesystem::path& folder);

// Bytes of a file, or of all files in a folder.
std::uint64_t bytes_at(const std::filesystem::path& path);
// Reads a file front to back; false when it cannot be read or `take` has seen enough.
bool read_pieces(const std::filesystem::path& path, const std::function<bool(std::span<const std::byte>)>& take);
bool has_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes);
bool has_bytes_of(const std::filesystem::path& path, const std::filesystem::path& other);

}  // namespace forge::store_files
