// One table an architecture: how its config or metadata is spelled, which
// tensors it has and what is odd about it. A new dense model is one file in
// families/ with such a table and a test; nothing else asks for names.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "config_reader.h"
#include "formats/model_file.h"
#include "model/spec.h"
#include "model/names.h"

namespace forge {

// A length that a tensor's shape is made of.
enum class Extent : std::uint8_t {
    one, hidden,
    q_rows,         // q_width, twice that when a gate follows each query head
    q_width,        // n_heads * head_dim
    kv_width,       // n_kv_heads * head_dim
    head_dim,
    ffn_width,
    conv_channels, conv_kernel,              // gated DeltaNet
    delta_value, delta_heads, delta_v_dim,   // n_v_heads * v_dim, n_v_heads, v_dim
    experts, expert_width, shared_width,     // mixture of experts
    ple_width,
};

enum class Need : std::uint8_t {
    required,
    optional,            // used when the file has it
    with_attention_bias, // required when the config says attention_bias, else optional
    with_mlp_bias,
};

// Which layers a tensor belongs to.
enum class When : std::uint8_t {
    always,
    attention,
    own_keys,      // attention that writes its cache
    own_values,    // and has a value projection
    delta,
    dense,         // a dense MLP
    experts,
    shared_expert,
    per_layer,     // the model has per-layer embeddings
};

// One tensor of a layer. A matrix is [rows, cols]; a vector has `rows` elements.
// The roles expert_* name one expert's matrix: "{}" in a name is its number, a
// name without it is a tensor [experts, rows, cols].
struct TensorRow {
    Role role;
    std::string_view hf;    // after "<prefix>layers.N."
    std::string_view gguf;  // after "blk.N."
    Extent rows;
    std::optional<Extent> cols;  // nullopt: a vector (norm weight, bias), bound as f32
    Need need = Need::required;
    When when = When::always;
};

// Another place for the rows of one or several roles, in this order. Used when
// the roles' own tensors are absent.
struct Alternative {
    std::string_view hf, gguf;  // empty: the format has none
    std::vector<Role> parts;
    bool by_key_head = false;   // DeltaNet: the parts' rows alternate, key head by key head
};

// A spelling of the family: model_type of config.json or general.architecture.
struct Spelling {
    std::string_view name;
    bool wrapper = false;        // Hugging Face: the text model is nested in text_config
    bool interleaved_qk = false; // GGUF: q and k rows are stored for interleaved rotation
    bool tiled_heads = false;    // GGUF: DeltaNet value heads are stored key head fastest
};

// Values for keys that a config leaves out (the reference's class defaults).
// nullopt: the key must be there.
struct ConfigDefaults {
    std::optional<int> hidden, width, layers, heads, vocab, context;
    std::optional<int> kv_heads;          // nullopt: as many as heads
    std::optional<int> head_dim;          // nullopt: hidden / heads
    double eps = 1e-6;
    std::string_view activation_key = "hidden_act";
    std::string_view activation = "silu";
    bool tied = false;
    std::vector<std::int32_t> stop_ids;
    // Of families that have them:
    int window = 4096;
    int experts = 0, experts_per_token = 0, expert_width = 0, shared_width = 0;
    bool normalise_experts = true;
    int ple_width = 0;
    double rotary_share = 1;              // partial_rotary_factor
};

// A key whose value would change the results in a way that is not implemented:
// anything but absent, null, false, 0 (or `accepted`) is refused.
struct RefusedKey {
    std::string_view key, why;
    std::string_view accepted;  // one more value, as JSON text
};

struct Draft;
class GgufKeys;

struct Family {
    std::string_view name;  // for people: ModelSpec::architecture
    std::vector<Spelling> model_types;
    std::vector<Spelling> gguf_archs;
    ConfigDefaults defaults;
    NormKind hf_norm = NormKind::two_rounding, gguf_norm = NormKind::two_rounding;
    bool qk_norm = false;
    bool scaled_embedding = false;  // by sqrt(hidden)
    std::vector<TensorRow> tensors;
    std::vector<Alternative> alternatives;
    std::vector<RefusedKey> refused_config;
    std::vector<RefusedKey> refused_metadata;  // keys after "<arch>."
    bool partial_default_rope = false;  // the default rope type honours partial_rotary_factor
    // Everything that differs from layer to layer or from family to family:
    // windows, ropes, attention scale, softcaps. The dimensions are already there.
    void (*layers_from_config)(const ConfigReader& config, Draft& draft) = nullptr;
    void (*layers_from_metadata)(const GgufKeys& keys, Draft& draft) = nullptr;

    bool has(Role role) const;
    const TensorRow* row(Role role) const;
};

// A descriptor in the making, with what only binding needs to know.
struct Draft {
    const ModelFile* file = nullptr;
    const Family* family = nullptr;
    Spelling spelling;
    Names names;
    ModelSpec spec;
    bool attention_bias = false, mlp_bias = false;  // stated by the config
    bool tied = false;       // no head tensor is expected
    NormKind norm = NormKind::two_rounding;
    int prediction_layers = 0;  // further layers in the file that are not run
    int unpermute = 0;       // leading rows of a q/k head that are stored interleaved; 0 = none
};

// Metadata keys "<arch>.<key>", with the same checks as ConfigReader.
class GgufKeys {
  public:
    GgufKeys(const Metadata& meta, std::string arch) : meta_(meta), arch_(std::move(arch)) {}
    const Metadata& meta() const { return meta_; }
    std::string name(std::string_view key) const { return arch_ + "." + std::string(key); }
    std::string where(std::string_view key) const { return meta_.source + ": " + name(key); }
    bool has(std::string_view key) const { return meta_.has(name(key)); }
    std::optional<int> count(std::string_view key, Range range) const;
    int required_count(std::string_view key, Range range) const;
    std::optional<double> number(std::string_view key) const;
    // Scalar or array of one value a layer.
    std::vector<int> counts(std::string_view key, std::size_t layers, Range range, int absent) const;
    [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

  private:
    const Metadata& meta_;
    std::string arch_;
};

std::span<const Family> families();
// Error naming the unknown spelling and listing the known ones.
const Family& family_of_model_type(const std::string& model_type, const std::string& where, Spelling& spelling);
const Family& family_of_gguf(const std::string& arch, const std::string& where, Spelling& spelling);

std::int64_t extent(Extent what, const ModelSpec& spec, const LayerSpec& layer);
bool applies(When when, const ModelSpec& spec, std::size_t index);

// The tables' building blocks (families/common.cpp).
std::vector<TensorRow> decoder_tensors();  // Llama's names: norms, q, k, v, o, gate, up, down and optional biases
std::vector<Alternative> decoder_alternatives();  // attn_qkv of GGUF
std::vector<TensorRow> qk_norm_tensors();
// Router, experts and a shared expert under Qwen's names.
void add_expert_tensors(Family& family);
std::vector<RefusedKey> decoder_refused_config();
std::vector<RefusedKey> decoder_refused_metadata();
void require(std::vector<TensorRow>& rows, std::initializer_list<Role> roles);

// One file each.
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family gemma3_family();
Family mixtral_family();
Family qwen3_moe_family();
Family qwen3_next_family();
Family qwen35_family();
Family qwen35_moe_family();
Family gemma4_family();
Family gemma4_unified_family();

}  // namespace forge
