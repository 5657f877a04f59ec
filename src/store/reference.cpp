#include "store/reference.h"

#include <filesystem>

#include "base/error.h"
#include "transport/hub_cache.h"
#include "transport/oci_reference.h"

namespace forge {

namespace fs = std::filesystem;

std::string resolve_model(const std::string& reference) {
    std::error_code ignored;
    if (fs::exists(reference, ignored)) return reference;
    // What was pulled is opened without a network; nothing is fetched that was not asked for.
    if (is_hub_reference(reference)) return find_in_hub_cache(HubCache::from_environment(), parse_hub_reference(reference)).string();
    if (is_oci_reference(reference)) {
        const OciReference remote = parse_oci_reference(reference);
        const Store store = Store::open();
        const auto pulled = ModelName::parse(remote.store_name());
        if (pulled && store.read_manifest(*pulled)) return store.manifest_path(*pulled).string();
        fail(ErrorKind::not_found, "{} is not in the store ({}); forge pull {} fetches it", remote.text(), store.root().string(), remote.text());
    }
    for (const char* scheme : {"http:", "https:"})
        if (reference.starts_with(scheme))
            fail(ErrorKind::unsupported, "{}: a model is not opened by its address; forge pull takes hf:ORG/NAME and oci:HOST/NAME, or download the file and give its path", reference);
    const auto name = ModelName::parse(reference);
    if (!name) fail(ErrorKind::not_found, "there is no file or folder {}", reference);
    const Store store = Store::open();
    const fs::path manifest = store.manifest_path(*name);
    if (fs::exists(manifest, ignored)) return manifest.string();
    fail(ErrorKind::not_found, "there is no file or folder {}, and no model {} in the store ({}); `forge list` shows what there is", reference,
         name->text(), store.root().string());
}

ModelName stored_model(const Store& store, const std::string& reference) {
    const auto name = ModelName::parse(is_oci_reference(reference) ? parse_oci_reference(reference).store_name() : reference);
    if (name && store.read_manifest(*name)) return *name;
    std::error_code ignored;
    if (is_hub_reference(reference) || fs::exists(reference, ignored))
        fail(ErrorKind::not_found, "{0} is not in the store; forge pack {0} -o NAME puts it there", reference);
    fail(ErrorKind::not_found, "there is no model {} in the store ({}); `forge list` shows what there is", name ? name->text() : reference, store.root().string());
}

}  // namespace forge
