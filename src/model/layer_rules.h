// Steps that the families' layer functions are made of: which layers slide, and
// which rotary embedding each kind of layer has.
#pragma once

#include <optional>
#include <vector>

#include "family.h"
#include "rope.h"

namespace forge {

enum class LayerKind : std::uint8_t { full, sliding };

// `layer_types` of a config; nullopt when absent. Kinds other than full and
// sliding attention are refused by name.
std::optional<std::vector<LayerKind>> layer_types(const ConfigReader& config, std::size_t layers);
// Layer i is full when (i + 1) % period == 0.
std::vector<LayerKind> periodic_layers(std::size_t layers, int period);

// The rope of layers of one kind from Hugging Face's old or new spelling.
// `kind` selects the entry when rope_parameters is keyed by layer type.
RopeParams rope_of_config(const ConfigReader& config, LayerKind kind, int head_dim);
// One dictionary (rope_scaling, or an entry of rope_parameters). `top` holds
// theta, partial_rotary_factor and max_position_embeddings when it does not.
RopeParams rope_of_dict(const ConfigReader& dict, const ConfigReader& top, double theta, int head_dim);
// The keys rope.* of GGUF metadata. `scaling`: whether rope.scaling.* and the
// file's rope_freqs apply (Gemma 3: not on sliding layers).
RopeParams rope_of_metadata(const GgufKeys& keys, const Draft& draft, double theta, bool scaling);

// Sets kv_layer, window, rope and attention scale of every layer.
void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& full,
                const RopeParams& sliding, double scale);
// The common case: one rope for all, scale head_dim^-0.5.
void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& rope);

}  // namespace forge
