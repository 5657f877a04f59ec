"""The list of tiny checkpoints: one entry a family or quirk.

Sizes are deliberately not round (hidden 72, vocabulary 89, ...) so that vector tails, ragged rows and head counts
that are no power of two are exercised; quantised GGUF files need row lengths that are multiples of their block.
`sensitive` holds configuration changes that must move the logits: the proof that a fixture tests its quirk.
"""
from dataclasses import dataclass, field

from fixturelib import released


@dataclass
class Fixture:
    name: str
    why: str
    config: dict
    storage: str = "bf16"  # type of the stored weights
    shards: int = 1
    zero_centred: bool = False  # norm weights are stored as w of (1 + w)
    dtypes: tuple = ("float32",)  # activations of the reference runs
    sensitive: tuple = ()  # top-level config overrides; a value of DROP removes the key
    transform: object = None  # {name: array} -> {name: array}: released names instead of those saved today
    extra: dict = field(default_factory=dict)  # tensors added: {name: shape}
    gguf: object = None  # a gguf_file.Plan: the fixture is a GGUF file and no folder of safetensors
    mlx: object = None  # a catalogue_mlx.Quantised: the folder is what mlx-lm makes of the checkpoint


DROP = object()


def base(model_type, architecture, **changes):
    """The keys every dense config states."""
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 89,
        "hidden_size": 48,
        "intermediate_size": 44,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "transformers_version": "5.0.0",
    }
    config.update(changes)
    return {k: v for k, v in config.items() if v is not DROP}


def old(config, dtype="bfloat16"):
    """The spelling before transformers 5: torch_dtype instead of dtype."""
    config = dict(config, torch_dtype=dtype, transformers_version="4.46.0")
    del config["dtype"]
    return config


def llama(**changes):
    return base("llama", "LlamaForCausalLM", **changes)


def mistral(**changes):
    return base("mistral", "MistralForCausalLM", **changes)


def qwen2(**changes):
    return base("qwen2", "Qwen2ForCausalLM", rms_norm_eps=1e-6, **changes)


def qwen3(**changes):
    return base("qwen3", "Qwen3ForCausalLM", **{"rms_norm_eps": 1e-6, "head_dim": 14, "num_attention_heads": 4, **changes})


def gemma3(**changes):
    plain = dict(rms_norm_eps=1e-6, head_dim=14, num_attention_heads=4, num_key_value_heads=2, hidden_act=DROP,
                 hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=14, sliding_window=9,
                 num_hidden_layers=4, hidden_size=44, intermediate_size=36, bos_token_id=2, eos_token_id=[1, 106],
                 pad_token_id=0, tie_word_embeddings=DROP)
    return base("gemma3_text", "Gemma3ForCausalLM", **{**plain, **changes})


LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}


def llama_family():
    nine = dict(num_attention_heads=9, num_key_value_heads=3)
    yield Fixture(
        "llama-gqa-tied", "9 query and 3 key heads (no power of two), tied head, new rope_parameters spelling",
        llama(**nine, hidden_size=72, intermediate_size=60, rope_parameters={"rope_type": "default", "rope_theta": 100000.0}),
        dtypes=("float32", "bfloat16", "float16"),
        sensitive=({"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
                   {"num_key_value_heads": 3, "rms_norm_eps": 0.05}))
    yield Fixture(
        "llama-headdim-bias", "head_dim is not hidden/heads; biases on q, k, v, o and the MLP; untied; old spelling; f32",
        old(llama(hidden_size=42, intermediate_size=36, head_dim=10, attention_bias=True, mlp_bias=True, rope_theta=500000.0,
                  rope_scaling=None, tie_word_embeddings=False, rms_norm_eps=1e-6), "float32"),
        storage="f32", sensitive=({"attention_bias": False}, {"mlp_bias": False}, {"rope_theta": 5000.0}))
    yield Fixture(
        "llama-rope-linear", "linear position scaling in the old spelling ({type, factor}); f16",
        old(llama(rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 2.5}), "float16"),
        storage="f16", dtypes=("float32", "float16"), sensitive=({"rope_scaling": None},))
    yield Fixture(
        "llama-rope-llama3", "llama3 frequency bands: kept, blended and divided frequencies all occur; old spelling",
        old(llama(rope_theta=10000.0, rope_scaling=LLAMA3_ROPE, num_attention_heads=4, num_key_value_heads=4, hidden_size=56)),
        sensitive=({"rope_scaling": None},
                   {"rope_scaling": {**LLAMA3_ROPE, "high_freq_factor": 12.0}}))
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    yield Fixture(
        "llama-rope-yarn", "yarn with its defaults (beta 32 and 1, truncated, attention factor 0.1 ln 4 + 1)",
        llama(max_position_embeddings=256, rope_parameters=yarn, num_attention_heads=4, hidden_size=56),
        sensitive=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                   {"rope_parameters": {**yarn, "attention_factor": 1.0}}))
    mscale = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "original_max_position_embeddings": 32,
              "beta_fast": 4.0, "beta_slow": 0.5, "mscale": 2.0, "mscale_all_dim": 0.8, "truncate": False}
    yield Fixture(
        "llama-rope-yarn-mscale", "yarn with mscale and mscale_all_dim, own betas, truncate false",
        llama(max_position_embeddings=256, rope_parameters=mscale, num_attention_heads=4, hidden_size=56),
        sensitive=({"rope_parameters": {**mscale, "truncate": True}},
                   {"rope_parameters": {**mscale, "beta_fast": 2.0}},
                   {"rope_parameters": {k: v for k, v in mscale.items() if not k.startswith("mscale")}}))
    attention = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "attention_factor": 0.75,
                 "original_max_position_embeddings": 32, "beta_fast": 8, "beta_slow": 1}
    yield Fixture(
        "llama-rope-yarn-attention-factor", "yarn with a given attention_factor below one and integer betas",
        old(llama(max_position_embeddings=128, num_attention_heads=4, hidden_size=56, rope_theta=10000.0, rope_scaling=attention)),
        sensitive=({"rope_scaling": {k: v for k, v in attention.items() if k != "attention_factor"}},))
    yield Fixture(
        "llama-sparse-sharded", "three shards with an index; key heads, head_dim, theta and eps left to the defaults; f16",
        old(llama(num_key_value_heads=DROP, head_dim=None, rms_norm_eps=DROP, tie_word_embeddings=DROP,
                  max_position_embeddings=256, eos_token_id=[2, 7], hidden_size=48, intermediate_size=76), "float16"),
        storage="f16", shards=3)
    yield Fixture(
        "llama-tied-own-head", "tied by config, yet lm_head.weight is there and differs: the tensor wins",
        llama(num_hidden_layers=1, rope_theta=10000.0), extra={"lm_head.weight": (89, 48)})
    yield Fixture(
        "mistral-window", "window of 11 keys in every layer, prompts several times longer; head_dim not hidden/heads",
        old(mistral(head_dim=14, sliding_window=11, rope_theta=10000.0, tie_word_embeddings=False)),
        dtypes=("float32", "bfloat16"), sensitive=({"sliding_window": None}, {"sliding_window": 12}))
    yield Fixture(
        "mistral-full", "sliding_window null is full attention; f16 storage",
        old(mistral(sliding_window=None, rope_theta=1000000.0, tie_word_embeddings=False, hidden_size=48), "float16"),
        storage="f16", sensitive=({"sliding_window": 48},))


def qwen_family():
    yield Fixture(
        "qwen2-bias", "biases on q, k, v only; a sliding_window that use_sliding_window false switches off",
        old(qwen2(rope_theta=1000000.0, use_sliding_window=False, sliding_window=16, max_window_layers=1)),
        dtypes=("float32", "bfloat16"), sensitive=({"use_sliding_window": True},))
    yield Fixture(
        "qwen2-window-layers", "no layer_types: layers from max_window_layers on slide (2 of 4), untied",
        old(qwen2(num_hidden_layers=4, hidden_size=48, intermediate_size=44, rope_theta=10000.0,
                  use_sliding_window=True, sliding_window=10, max_window_layers=2, tie_word_embeddings=False)),
        sensitive=({"max_window_layers": 1}, {"max_window_layers": 3}, {"use_sliding_window": False}))
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    yield Fixture(
        "qwen2-layer-types", "layer_types wins over max_window_layers; new spelling; f16",
        qwen2(num_hidden_layers=3, hidden_size=48, use_sliding_window=True, sliding_window=13,
              max_window_layers=28, layer_types=kinds, dtype="float16",
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        storage="f16", sensitive=({"layer_types": ["full_attention"] * 3}, {"layer_types": kinds[::-1][1:] + kinds[:1]}))
    yield Fixture(
        "qwen3-tied", "q and k norms per head, heads*head_dim is not hidden, tied",
        old(qwen3(rope_theta=1000000.0, attention_bias=False, use_sliding_window=False, sliding_window=None,
                  max_window_layers=2)),
        dtypes=("float32", "bfloat16", "float16"), sensitive=({"rope_theta": 10000.0},))
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 48}
    yield Fixture(
        "qwen3-bias-window-yarn", "attention biases, sliding from layer 1 on, yarn, untied, two shards; f32",
        qwen3(attention_bias=True, use_sliding_window=True, sliding_window=10, max_window_layers=1,
              tie_word_embeddings=False, rope_parameters=yarn, dtype="float32", hidden_size=36, intermediate_size=44,
              max_position_embeddings=192),
        storage="f32", shards=2,
        sensitive=({"attention_bias": False}, {"max_window_layers": 0}, {"use_sliding_window": False},
                   {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}))


def gemma_family():
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    keyed = {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    yield Fixture(
        "gemma3-new", "layer_types and rope_parameters keyed by layer kind, linear scaling on the global layer only",
        gemma3(layer_types=kinds, rope_parameters=keyed, _sliding_window_pattern=6),
        zero_centred=True, dtypes=("float32", "bfloat16"),
        sensitive=({"layer_types": kinds[:1] * 4}, {"sliding_window": 10},
                   {"rope_parameters": {**keyed, "full_attention": keyed["sliding_attention"]}},
                   {"rope_parameters": {**keyed, "sliding_attention": keyed["full_attention"]}}))
    yield Fixture(
        "gemma3-old", "sliding_window_pattern 3, rope_local_base_freq, flat rope_scaling for global layers, final softcap, "
        "query_pre_attn_scalar not head_dim; f32",
        old(gemma3(sliding_window_pattern=3, rope_theta=500000.0, rope_local_base_freq=2000.0, num_key_value_heads=1,
                   rope_scaling={"rope_type": "linear", "factor": 8.0}, query_pre_attn_scalar=33, hidden_size=36, head_dim=10,
                   attn_logit_softcapping=None, final_logit_softcapping=5.0, tie_word_embeddings=True), "float32"),
        storage="f32", zero_centred=True,
        sensitive=({"sliding_window_pattern": 2}, {"rope_local_base_freq": DROP}, {"rope_theta": 5000.0},
                   {"rope_scaling": None}, {"query_pre_attn_scalar": 10},
                   {"final_logit_softcapping": None}))
    yield Fixture(
        "gemma3-defaults", "layer pattern 6, both thetas and window rules left to the defaults; 7 layers, f16 storage",
        old(gemma3(num_hidden_layers=7, hidden_size=36, intermediate_size=28, head_dim=10, query_pre_attn_scalar=10,
                   tie_word_embeddings=True), "float16"),
        storage="f16", zero_centred=True,
        sensitive=({"sliding_window_pattern": 7}, {"rope_theta": 10000.0}, {"rope_local_base_freq": 100000.0}))
    text = gemma3(num_attention_heads=DROP, num_key_value_heads=DROP, head_dim=10, hidden_size=40,
                  query_pre_attn_scalar=10, hidden_activation=DROP, rms_norm_eps=DROP, num_hidden_layers=3,
                  sliding_window_pattern=2, architectures=DROP, dtype=DROP, transformers_version=DROP,
                  rope_scaling={"rope_type": "linear", "factor": 8.0}, eos_token_id=DROP, bos_token_id=DROP,
                  pad_token_id=DROP)
    vision = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    yield Fixture(
        "gemma3-wrapper", "multimodal wrapper: text_config nested and sparse, language_model.model. names, vision tensors to skip",
        {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text,
         "vision_config": vision, "mm_tokens_per_image": 1, "boi_token_index": 120, "eoi_token_index": 121,
         "image_token_index": 122, "eos_token_id": [1, 106], "torch_dtype": "bfloat16", "transformers_version": "4.50.0"},
        zero_centred=True, transform=released.gemma3_names,
        sensitive=({"text_config": {**text, "sliding_window_pattern": 6}},
                   {"text_config": {**text, "rope_scaling": None}}))


def all_fixtures():
    return [fixture for family in (llama_family, qwen_family, gemma_family) for fixture in family()]
