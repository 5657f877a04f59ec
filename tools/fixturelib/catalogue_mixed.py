"""Models whose layers differ: experts, linear attention, shared caches. They live in a folder of their own."""
from dataclasses import dataclass

from fixturelib import released
from fixturelib.catalogue import DROP, Fixture, base, old



@dataclass
class Converted:
    """A GGUF made by llama.cpp's converter, for architectures that it rearranges."""

    type: str = "bf16"
    options: tuple = ()


HEADS = dict(head_dim=12, num_attention_heads=4, num_key_value_heads=2)
DELTA = dict(head_dim=24, num_attention_heads=3, num_key_value_heads=1, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=12, linear_value_head_dim=10, linear_conv_kernel_dim=4, num_hidden_layers=4,
             hidden_size=40, intermediate_size=36, rms_norm_eps=1e-6)
MROPE = {"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
         "mrope_section": [1, 1, 1]}
GEMMA4_ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
               "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}


def mixtral(**changes):
    return base("mixtral", "MixtralForCausalLM", **{**HEADS, "intermediate_size": 28, **changes})


def qwen3_moe(**changes):
    return base("qwen3_moe", "Qwen3MoeForCausalLM", **{
        **HEADS, "rms_norm_eps": 1e-6, "moe_intermediate_size": 20, "tie_word_embeddings": False, **changes})


def qwen3_next(**changes):
    return base("qwen3_next", "Qwen3NextForCausalLM", **{
        **DELTA, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 10, **changes})


def qwen3_5(model_type="qwen3_5_text", **changes):
    return base(model_type, "Qwen3_5ForCausalLM", **{**DELTA, "rope_parameters": MROPE, **changes})


def gemma4(**changes):
    plain = dict(head_dim=12, global_head_dim=20, num_attention_heads=4, num_key_value_heads=2, hidden_act=DROP,
                 hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, sliding_window=9, num_hidden_layers=4,
                 hidden_size=44, intermediate_size=36, final_logit_softcapping=6.0, tie_word_embeddings=True,
                 bos_token_id=2, eos_token_id=[1, 106], pad_token_id=0, vocab_size_per_layer_input=89)
    return base("gemma4_text", "Gemma4ForCausalLM", **{**plain, **changes})


def mixture_family():
    yield Fixture(
        "mixtral", "two of four experts in every layer, block_sparse_moe names (w1, w2, w3), untied",
        old(mixtral(num_local_experts=4, num_experts_per_tok=2, rope_theta=1000000.0, sliding_window=None,
                    tie_word_embeddings=False)),
        dtypes=("float32", "bfloat16"), sensitive=({"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}))
    yield Fixture(
        "qwen3-moe", "dense first layer (mlp_only_layers), then three of six experts, weights renormalised",
        old(qwen3_moe(num_hidden_layers=3, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[0], rope_theta=10000.0)),
        dtypes=("float32", "bfloat16"), sensitive=({"norm_topk_prob": False}, {"num_experts_per_tok": 2}))
    yield Fixture(
        "qwen3-moe-every-second", "decoder_sparse_step 2, norm_topk_prob absent (false), num_local_experts spelling, window, "
        "two shards",
        qwen3_moe(num_hidden_layers=4, num_local_experts=5, num_experts_per_tok=2, decoder_sparse_step=2, hidden_size=40,
                  use_sliding_window=True, sliding_window=10,
                  rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        shards=2, sensitive=({"norm_topk_prob": True}, {"use_sliding_window": False}))


def hybrid_family():
    yield Fixture(
        "qwen3-next", "grouped in_proj_qkvz and in_proj_ba, gated attention on every fourth layer, shared expert, a dense layer, "
        "partial rotary 0.25 by default",
        old(qwen3_next(mlp_only_layers=[1], rope_theta=10000.0, norm_topk_prob=True, decoder_sparse_step=1)),
        zero_centred=True, dtypes=("float32", "bfloat16"),
        sensitive=({"partial_rotary_factor": 0.5}, {"norm_topk_prob": False}))
    kinds = ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"]
    yield Fixture(
        "qwen3.5-text", "separate in_proj_*, three value heads a key head, layer_types, interleaved mrope that is plain for text; f32",
        qwen3_5(num_hidden_layers=5, layer_types=kinds, linear_num_value_heads=6, hidden_size=32, intermediate_size=28,
                dtype="float32", head_dim=20),
        storage="f32", zero_centred=True,
        sensitive=({"rope_parameters": {**MROPE, "partial_rotary_factor": 0.5}},
                   {"rope_parameters": {**MROPE, "rope_theta": 100.0}}))
    text = qwen3_5(architectures=DROP, full_attention_interval=2, mamba_ssm_dtype="float32", attn_output_gate=True)
    vision = {"model_type": "qwen3_5_vision", "depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8,
              "out_hidden_size": 40, "patch_size": 4, "num_position_embeddings": 16}
    yield Fixture(
        "qwen3.5-wrapper", "wrapper with text_config, model.language_model. names, vision and prediction-head tensors to skip, "
        "full_attention_interval 2; tied at the top",
        {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text,
         "vision_config": vision, "image_token_id": 80, "video_token_id": 81, "vision_start_token_id": 82,
         "vision_end_token_id": 83, "tie_word_embeddings": True, "dtype": "bfloat16"},
        zero_centred=True, dtypes=("float32", "bfloat16"),
        transform=lambda state: released.with_ignored(released.language_model_names(state)))
    moe = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=10,
               tie_word_embeddings=False, intermediate_size=DROP, linear_num_value_heads=2)
    yield Fixture(
        "qwen3.5-moe", "experts as fused 3-D tensors, shared expert with a gate, as many value as key heads",
        {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
         "text_config": {**qwen3_5("qwen3_5_moe_text", **moe, architectures=DROP)},
         "vision_config": {**vision, "model_type": "qwen3_5_moe_vision"}, "tie_word_embeddings": False,
         "dtype": "bfloat16"},
        zero_centred=True, dtypes=("float32", "bfloat16"),
        transform=lambda state: released.with_ignored(released.fused_experts(released.language_model_names(state))))


def gemma4_family():
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    yield Fixture(
        "gemma4-per-layer", "per-layer embeddings, last two layers share caches and have double MLPs, larger global heads, "
        "proportional rotation, final softcap",
        gemma4(num_hidden_layers=5, layer_types=kinds, num_kv_shared_layers=2, use_double_wide_mlp=True,
               hidden_size_per_layer_input=6, num_key_value_heads=1),
        dtypes=("float32", "bfloat16"),
        sensitive=({"sliding_window": 10}, {"final_logit_softcapping": None},
                   {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                                                           "rope_theta": 1000000.0}}}))
    yield Fixture(
        "gemma4-experts", "dense MLP plus experts in every layer, keys used as values on global layers with fewer heads",
        gemma4(num_hidden_layers=3, layer_types=kinds[:1] + kinds[:2], hidden_size_per_layer_input=0, attention_k_eq_v=True,
               num_global_key_value_heads=1, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=20),
        dtypes=("float32", "bfloat16"), sensitive=({"top_k_experts": 1}, {"top_k_experts": 3}, {"sliding_window": 10}))
    yield Fixture(
        "gemma4-layer-config", "per_layer_config instead of the global_* keys, given rope_parameters with another fraction, "
        "no softcap",
        gemma4(num_hidden_layers=2, layer_types=kinds[:2], hidden_size_per_layer_input=0, final_logit_softcapping=None,
               global_head_dim=DROP, per_layer_config={"1": {"head_dim": 16, "num_key_value_heads": 1}},
               rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.4,
                                                   "rope_theta": 20000.0}}))


def converted_family():
    equal = dict(linear_key_head_dim=16, linear_value_head_dim=16)  # GGUF readers need both to be the same
    yield Fixture(
        "gguf-mixtral", "arch llama with experts, q and k rows permuted; router F32, the rest BF16",
        mixtral(num_local_experts=4, num_experts_per_tok=2, rope_theta=1000000.0, tie_word_embeddings=False),
        gguf=Converted())
    yield Fixture(
        "gguf-qwen3moe", "stacked experts, always renormalised; BF16",
        qwen3_moe(num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, rope_theta=10000.0), gguf=Converted())
    yield Fixture(
        "gguf-qwen3moe-q8_0", "stacked experts in Q8_0",
        qwen3_moe(num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, rope_theta=10000.0, hidden_size=64, head_dim=16,
                  num_key_value_heads=1, moe_intermediate_size=32, tie_word_embeddings=True),
        storage="q8_0", gguf=Converted("q8_0"))
    yield Fixture(
        "gguf-qwen3next", "value heads grouped by key head, ssm_ba fused, norms with +1; BF16",
        qwen3_next(**equal, rope_theta=10000.0, norm_topk_prob=True), zero_centred=True,
        gguf=Converted(options=("--no-mtp",)))
    yield Fixture(
        "gguf-qwen35", "value heads tiled over key heads (6 over 2), ssm_a already -exp(A_log); BF16",
        qwen3_5(**{**equal, "linear_num_value_heads": 6}, architectures=["Qwen3_5ForCausalLM"]), zero_centred=True,
        gguf=Converted(options=("--no-mtp",)))
    yield Fixture(
        "gguf-qwen35-q8_0", "the same in Q8_0: columns of ssm_out move as whole blocks",
        qwen3_5(linear_key_head_dim=32, linear_value_head_dim=32, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                full_attention_interval=2, head_dim=32),
        zero_centred=True, storage="q8_0", gguf=Converted("q8_0", ("--no-mtp",)))
    yield Fixture(
        "gguf-qwen35moe", "shared expert, fused or split expert tensors as the converter writes them; BF16",
        qwen3_5("qwen3_5_moe_text", **{**equal, "hidden_size": 32}, architectures=["Qwen3_5MoeForCausalLM"], num_experts=5,
                num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=10,
                tie_word_embeddings=False, intermediate_size=DROP),
        zero_centred=True, gguf=Converted(options=("--no-mtp",)))
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    yield Fixture(
        "gguf-gemma4", "per-layer embeddings, shared caches, rope_freqs for the proportional rotation; BF16",
        gemma4(num_hidden_layers=5, layer_types=kinds, num_kv_shared_layers=2, use_double_wide_mlp=True,
               hidden_size_per_layer_input=6, num_key_value_heads=1, hidden_size=36,
               rope_parameters=GEMMA4_ROPE), gguf=Converted())
    yield Fixture(
        "gguf-gemma4-experts", "fused gate and up experts with per-expert scales, no attn_v on global layers; BF16",
        gemma4(num_hidden_layers=3, layer_types=kinds[:1] + kinds[:2], hidden_size_per_layer_input=0, attention_k_eq_v=True,
               num_global_key_value_heads=1, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=20,
               rope_parameters=GEMMA4_ROPE), gguf=Converted())


def all_fixtures():
    families = (mixture_family, hybrid_family, gemma4_family, converted_family)
    return [fixture for family in families for fixture in family()]
