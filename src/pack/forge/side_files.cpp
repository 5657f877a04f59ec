#include "side_files.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t most_bytes = std::uintmax_t{256} << 20;  // the largest published vocabularies take some 40 MB

bool is_licence(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name.starts_with("license") || name.starts_with("licence");
}

bool is_wanted(const std::string& name) {
    if (name.starts_with(".") || name.ends_with(".index.json")) return false;
    const fs::path extension = fs::path(name).extension();
    return extension == ".json" || extension == ".jinja" || extension == ".model" || extension == ".tiktoken" || name.find(".model.v") != std::string::npos ||
           name == "merges.txt" || name == "vocab.txt";
}

}  // namespace

std::vector<SideFile> side_files(const fs::path& folder) {
    std::vector<SideFile> files;
    const auto list = [&](const fs::path& where, const std::string& prefix) {
        std::error_code reason;
        for (fs::directory_iterator it(where, reason), end; !reason && it != end; it.increment(reason)) {
            const std::string name = it->path().filename().string();
            std::error_code ignored;
            if (!fs::is_regular_file(it->path(), ignored) || fs::file_size(it->path(), ignored) > most_bytes) continue;
            const bool licence = prefix.empty() && is_licence(name);
            if (licence || is_wanted(name)) files.push_back({prefix + name, it->path(), licence});
        }
        if (reason) fail(ErrorKind::io, "cannot list {}: {}", where.string(), reason.message());
    };
    list(folder, "");
    const fs::path templates = folder / "additional_chat_templates";
    std::error_code ignored;
    if (fs::is_directory(templates, ignored)) list(templates, "additional_chat_templates/");
    std::sort(files.begin(), files.end(), [](const SideFile& a, const SideFile& b) { return a.name < b.name; });
    return files;
}

}  // namespace forge
