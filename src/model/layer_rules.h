// Steps that the families' layer functions are made of: which layers slide, and
// which rotary embedding each kind of layer has.
#pragma once

#include <optional>
#include <vector>

#include "family.h"
#include "rope.h"

namespace forge {

enum class LayerKind : std::uint8_t { full, sliding, linear };

// `layer_types` of a config; nullopt when absent. A kind other than full
// attention and `second`, the family's other kind, is refused by name.
std::optional<std::vector<LayerKind>> layer_types(const ConfigReader& config, std::size_t layers,
                                                  LayerKind second = LayerKind::sliding);
// Layer i is full when (i + 1) % period == 0, else of the other kind.
std::vector<LayerKind> periodic_layers(std::size_t layers, int period, LayerKind other = LayerKind::sliding);
// A key that holds a period or one flag a layer (true = the other kind); absent: `period`.
std::vector<LayerKind> flagged_layers(const GgufKeys& keys, std::string_view key, std::size_t layers, int period, LayerKind other);
// sliding_window: the family's default when absent, 0 (none) when null.
int window_of(const ConfigReader& config, const Family& family);

// The rope of layers of one kind from Hugging Face's old or new spelling.
// `kind` selects the entry when rope_parameters is keyed by layer type.
RopeParams rope_of_config(const ConfigReader& config, const Family& family, LayerKind kind, int head_dim);
// One dictionary (rope_scaling, or an entry of rope_parameters). `top` holds
// partial_rotary_factor and max_position_embeddings when it does not.
RopeParams rope_of_dict(const ConfigReader& dict, const ConfigReader& top, const Family& family, double theta, int head_dim);
// The keys rope.* of GGUF metadata. `suffix` selects the keys of sliding layers
// ("_swa"), to which rope.scaling.* and the file's rope_freqs do not apply.
RopeParams rope_of_metadata(const GgufKeys& keys, const Draft& draft, int head_dim, std::string_view suffix = "");

// Sets kv_layer, window, rope and attention scale of every layer, and the mixer of linear ones.
void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& full,
                const RopeParams& sliding, double scale);
// The common case: one rope for all, scale head_dim^-0.5.
void set_layers(Draft& draft, const std::vector<LayerKind>& kinds, int window, const RopeParams& rope);

// Experts in every layer, or by mlp_only_layers and decoder_sparse_step when `sparse_keys`; such a layer has no
// dense MLP. `width_key` is the key of an expert's width.
void set_experts(const ConfigReader& config, Draft& draft, std::string_view width_key, bool sparse_keys);
// expert_count and its companions of GGUF; nothing when it is absent or 0.
void set_experts(const GgufKeys& keys, Draft& draft);

}  // namespace forge
