// Where Forge keeps things: XDG folders on Linux, ~/Library on macOS; FORGE_HOME
// puts data and cache under one folder (docs/environment.md).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace forge {

std::filesystem::path cache_folder();  // tuning records, downloaded test models
std::filesystem::path data_folder();   // the model store, chat history
std::filesystem::path config_folder();  // credentials of forge login

// Writes a file beside its target and renames it into place (fsync before).
void write_file_atomically(const std::filesystem::path& target, std::string_view content);
// Whole file as bytes; Error names the path.
std::string read_file(const std::filesystem::path& path);

}  // namespace forge
