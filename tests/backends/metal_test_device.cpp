// The Metal backend over the emulator.
#include <cstdlib>
#include <filesystem>
#include <set>

#include "backends/metal.h"
#include "backends/registry.h"
#include "test_device.h"

namespace forge::test {

std::string test_device(std::string* reason) {
    if (!metal_available(reason)) return "";
    register_device({"metal", -1, metal_available, [](ThreadPool&, int) { return make_metal_backend(); }});
    return "metal";
}

// Emulated threads are slow and so is their compiler: one model of each kind, all with FORGE_LONG=1.
bool quick() {
    const char* value = std::getenv("FORGE_LONG");
    return !value || *value != '1';
}
bool in_sample(const std::string& model) {
    static const std::set<std::string> sample{"llama-gqa-tied", "gguf-llama-q4_0", "gguf-qwen3-kquants", "gemma3-new", "mixtral", "qwen3.5-moe", "gemma4-experts"};
    return !quick() || sample.count(model) > 0;
}

std::string smollm2_file() {
    const char* folder = std::getenv("FORGE_TEST_MODELS");
    if (!folder) return "";
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        const std::string name = file.path().filename().string();
        if (name.starts_with("smollm2-135m") && name.ends_with(".gguf")) return file.path().string();
    }
    return "";
}

}  // namespace forge::test
