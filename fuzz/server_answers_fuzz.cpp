// What hubs and registries answer. The first byte says as what the rest is read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "transport/hub_answers.h"
#include "transport/hub_choose.h"
#include "transport/http.h"
#include "transport/oci_registry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace forge;
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        switch (data[0] % 8) {
            case 0: {
                std::vector<HubFile> files;
                read_tree_answer(text, "x", files);
                for (const HubFile& file : files)
                    if (!is_safe_repo_path(file.path)) std::abort();
                break;
            }
            case 1: read_revision_answer(text, "x"); break;
            case 2: files_of_index(text, "x"); break;
            case 3: OciManifest::parse(OciManifest::parse(text, "x").dump(), "x"); break;
            case 4: parse_challenges(text); break;
            case 5: next_page(text); break;
            case 6: {
                HttpAnswer answer;
                answer.body = text;
                explanation(answer);
                break;
            }
            default: {
                const Url url = resolve_url(parse_url("https://example.org/a?b"), text);
                if (parse_url(url.text()).text() != url.text()) std::abort();
            }
        }
    } catch (const Error&) {
    }
    return 0;
}
