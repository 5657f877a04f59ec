// oci:HOST[:PORT]/NAME[:TAG]: a model in an OCI registry.
#pragma once

#include <string>
#include <string_view>

namespace forge {

struct OciReference {
    std::string host;  // with the port, if any
    std::string name;  // lower case, words joined by '/'
    std::string tag = "latest";

    std::string text() const { return "oci:" + host + "/" + name + ":" + tag; }
    // NAME:TAG of the store under which a pulled model is kept: the host's ':' becomes '_'.
    std::string store_name() const;
};

bool is_oci_reference(std::string_view text);  // begins with oci:
OciReference parse_oci_reference(std::string_view text);

}  // namespace forge
