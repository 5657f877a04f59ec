#include "transport/oci_reference.h"

#include <algorithm>

#include "base/error.h"
#include "transport/url.h"

namespace forge {
namespace {

constexpr std::string_view kWanted = "oci:HOST/NAME:TAG is wanted, as in oci:ghcr.io/ada/llama:q4";

bool is_one_of(char c, std::string_view more, bool upper) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (upper && c >= 'A' && c <= 'Z') || more.find(c) != std::string_view::npos;
}

// What the distribution specification allows: [a-z0-9]+ joined by single '.', '_' or '-' runs, between '/'.
bool is_repository(std::string_view name) {
    if (name.empty() || name.size() > 255) return false;
    for (std::size_t begin = 0; begin <= name.size();) {
        const std::size_t end = std::min(name.find('/', begin), name.size());
        const std::string_view word = name.substr(begin, end - begin);
        if (word.empty() || !is_one_of(word.front(), "", false) || !is_one_of(word.back(), "", false)) return false;
        if (!std::all_of(word.begin(), word.end(), [](char c) { return is_one_of(c, "._-", false); })) return false;
        if (word.find("..") != std::string_view::npos) return false;
        begin = end + 1;
    }
    return true;
}

bool is_tag(std::string_view tag) {
    return !tag.empty() && tag.size() <= 128 && is_one_of(tag.front(), "_", true) &&
           std::all_of(tag.begin(), tag.end(), [](char c) { return is_one_of(c, "._-", true); });
}

}  // namespace

bool is_oci_reference(std::string_view text) { return text.starts_with("oci:"); }

std::string OciReference::store_name() const {
    std::string place = host;
    std::replace(place.begin(), place.end(), ':', '_');
    return place + "/" + name + ":" + tag;
}

OciReference parse_oci_reference(std::string_view text) {
    const std::string whole(text.substr(0, 400));
    if (!is_oci_reference(text)) fail("{} is no reference to a registry: {}", whole, kWanted);
    text.remove_prefix(4);
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) fail("{}: {}", whole, kWanted);
    OciReference reference;
    const Url url = parse_url("https://" + std::string(text.substr(0, slash)));
    reference.host = url.port == 443 ? url.host : url.host + ":" + std::to_string(url.port);
    std::string_view rest = text.substr(slash + 1);
    if (const std::size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
        reference.tag = std::string(rest.substr(colon + 1));
        rest = rest.substr(0, colon);
    }
    reference.name = std::string(rest);
    if (!is_repository(reference.name)) fail("{}: \"{}\" is no name of a repository: lower-case words joined by '/' are", whole, reference.name);
    if (!is_tag(reference.tag)) fail("{}: \"{}\" is no tag", whole, reference.tag);
    return reference;
}

}  // namespace forge
