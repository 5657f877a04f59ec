// What the hub answers, read with distrust: sizes, digests and paths are checked before any use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/remote_digest.h"

namespace forge {

struct HubFile {
    std::string path;
    std::uint64_t size = 0;
    RemoteDigest digest;  // SHA-256 of large files, git's name of small ones; its hex is the file's ETag
};

// api/models/NAME/revision/REVISION: the commit. `where` names the answer in messages.
std::string read_revision_answer(std::string_view text, const std::string& where);
// api/models/NAME/tree/COMMIT?recursive=true: the files of one page, appended. Error where two have one path.
void read_tree_answer(std::string_view text, const std::string& where, std::vector<HubFile>& files);
// The URL of rel="next" in a Link header, if any.
std::optional<std::string> next_page(std::string_view link_header);
// An ETag without W/ and quotes.
std::string plain_etag(std::string_view etag);

}  // namespace forge
