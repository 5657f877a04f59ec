// What the files of this room share about the file system.
#pragma once

#include <filesystem>

namespace forge::store_files {

void make_folders(const std::filesystem::path& folder);
// Makes renames within a folder durable.
void flush_folder(const std::filesystem::path& folder);

}  // namespace forge::store_files
