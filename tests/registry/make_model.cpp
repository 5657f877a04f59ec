// make_model NAME:TAG FILE...: puts a model of these files into the store, for tests of push and pull.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "base/paths.h"
#include "formats/forge_manifest.h"
#include "store/store.h"

int main(int argc, char** argv) {
    try {
        using namespace forge;
        const Store store = Store::open();
        const auto name = ModelName::parse(argc > 1 ? argv[1] : "");
        if (!name || argc < 3) return 2;
        const StoreLock in_use = store.use();
        Manifest manifest;
        manifest.origin = "huggingface";
        manifest.layout = "rows";
        manifest.model = {{"name", name->name}};
        manifest.provenance = nlohmann::ordered_json::object();
        for (int i = 2; i < argc; ++i) {
            const std::string content = read_file(argv[i]);
            ManifestBlob blob;
            blob.role = "file";
            blob.name = std::filesystem::path(argv[i]).filename().string();
            blob.digest = store.put(content);
            blob.bytes = content.size();
            manifest.blobs.push_back(blob);
        }
        store.write_manifest(*name, manifest.dump());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
