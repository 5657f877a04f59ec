#include "store/reference.h"

#include <filesystem>

#include "base/error.h"
#include "store/store.h"

namespace forge {

namespace fs = std::filesystem;

std::string resolve_model(const std::string& reference) {
    std::error_code ignored;
    if (fs::exists(reference, ignored)) return reference;
    for (const char* scheme : {"hf:", "oci:", "http:", "https:"})
        if (reference.starts_with(scheme))
            fail(ErrorKind::unsupported, "{}: models cannot be fetched by name yet; download the model and give the path of its file or folder", reference);
    const auto name = ModelName::parse(reference);
    if (!name) fail(ErrorKind::not_found, "there is no file or folder {}", reference);
    const Store store = Store::open();
    const fs::path manifest = store.manifest_path(*name);
    if (fs::exists(manifest, ignored)) return manifest.string();
    fail(ErrorKind::not_found, "there is no file or folder {}, and no model {} in the store ({}); `forge list` shows what there is", reference,
         name->text(), store.root().string());
}

}  // namespace forge
