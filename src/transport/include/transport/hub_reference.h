// hf:ORG/NAME[@REVISION][:SELECT]: a model on the Hugging Face hub. SELECT chooses one of several
// GGUF files, by what its name ends with (Q4_K_M) or by the whole name.
#pragma once

#include <string>
#include <string_view>

namespace forge {

struct HubReference {
    std::string repo;               // "org/name", or "name" of the oldest ones
    std::string revision = "main";  // branch, tag or commit
    std::string select;

    std::string text() const;
};

bool is_hub_reference(std::string_view text);  // begins with hf:
HubReference parse_hub_reference(std::string_view text);

}  // namespace forge
