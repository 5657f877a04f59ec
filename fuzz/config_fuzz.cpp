// config.json as anyone may write it -> a descriptor or an Error, nothing else.
// Seeds: the config.json files of tests/data/models and models-mixed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "model/bind.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    forge::ModelFile file;
    file.format = forge::ModelFormat::huggingface;
    file.path = "fuzz";
    file.config = nlohmann::ordered_json::parse(data, data + size, nullptr, false);
    if (file.config.is_discarded()) return 0;
    // A second document for the other file that is read.
    if (file.config.is_object() && file.config.contains("generation_config"))
        file.generation_config = file.config["generation_config"];
    try {
        const forge::ModelSpec spec = forge::read_spec(file);
        // What callers rely on without looking again.
        for (const forge::LayerSpec& layer : spec.layers) {
            if (layer.mixer != forge::MixerKind::attention) continue;
            const forge::AttentionSpec& a = layer.attention;
            if (a.n_kv_heads < 1 || a.n_heads % a.n_kv_heads != 0 || a.head_dim % 2 != 0 || a.window < 0)
                std::abort();
            if (a.rope < 0 || static_cast<std::size_t>(a.rope) >= spec.ropes.size()) std::abort();
            if (spec.ropes[static_cast<std::size_t>(a.rope)].inv_freq.size() >
                static_cast<std::size_t>(a.head_dim / 2))
                std::abort();
            if (!(a.scale > 0) || (layer.feed_forward.width < 1 && layer.feed_forward.moe.experts < 1))
                std::abort();
        }
    } catch (const forge::Error&) {
    }
    return 0;
}
