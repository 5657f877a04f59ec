"""Folders quantised by mlx-lm. Rows are whole groups here, so sizes are rounder than in the other lists."""
from dataclasses import dataclass

from fixturelib import released
from fixturelib.catalogue import DROP, Fixture, gemma3, llama, mistral, old, qwen2, qwen3
from fixturelib.catalogue_mixed import GEMMA4_ROPE, gemma4, mixtral, qwen3_5, qwen3_moe, qwen3_next


@dataclass
class Quantised:
    """What mlx-lm is asked for. recipe: one of its mixed ones, or "every" for each module a width and mode of its own."""

    bits: int = None
    group: int = None
    mode: str = "affine"
    recipe: str = None
    global_scale: bool = False
    types: str = "bfloat16"  # of what is not quantised, and of affine scales and biases


WIDE = dict(head_dim=16, num_attention_heads=4, num_key_value_heads=2, hidden_size=64)
DELTA = dict(hidden_size=64, head_dim=32, num_attention_heads=3, num_key_value_heads=1, linear_num_key_heads=2,
             linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=16, num_hidden_layers=4)
SHARED = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32)


def dense_family():
    yield Fixture(
        "llama-4bit-g64", "4 bits, groups of 64 along rows of 64 and 192; tied: the quantised embedding is the head too",
        old(llama(num_attention_heads=4, num_key_value_heads=2, hidden_size=64, intermediate_size=192, rope_theta=10000.0)),
        mlx=Quantised(4, 64))
    yield Fixture(
        "mistral-8bit-f16", "8 bits, groups of 32, f16 scales, untied, no window",
        old(mistral(head_dim=16, num_attention_heads=6, num_key_value_heads=2, hidden_size=96, intermediate_size=160,
                    sliding_window=None, rope_theta=10000.0, tie_word_embeddings=False), "float16"),
        storage="f16", mlx=Quantised(8, 32, types="float16"))
    yield Fixture(
        "qwen2-3bit", "3 bits (codes straddle words), groups of 32, linear biases beside quantisation biases",
        old(qwen2(num_attention_heads=6, num_key_value_heads=2, hidden_size=96, intermediate_size=224, rope_theta=10000.0,
                  use_sliding_window=False)), mlx=Quantised(3, 32))
    yield Fixture(
        "qwen3-mixed-3-6", "recipe mixed_3_6: every module listed, wider v_proj and down_proj on some layers, wide head",
        old(qwen3(**WIDE, intermediate_size=96, num_hidden_layers=5, rope_theta=10000.0, tie_word_embeddings=False)),
        mlx=Quantised(3, 32, recipe="mixed_3_6"))
    yield Fixture(
        "qwen3-every-format", "each module another format: 1, 2, 3, 4, 5, 6, 8 bits by groups of 32, 64, 128, mxfp4, mxfp8, nvfp4; f32 scales",
        old(qwen3(head_dim=32, num_attention_heads=4, num_key_value_heads=2, hidden_size=128, intermediate_size=128,
                  num_hidden_layers=4, rope_theta=10000.0, tie_word_embeddings=False), "float32"),
        storage="f32", mlx=Quantised(4, 32, recipe="every", types="float32"))
    yield Fixture(
        "gemma3-6bit", "6 bits, groups of 32, norms as w of (1 + w), window and global layers",
        old(gemma3(**{**WIDE, "intermediate_size": 96}, query_pre_attn_scalar=16, sliding_window_pattern=3, rope_theta=1000000.0,
                   rope_local_base_freq=10000.0, tie_word_embeddings=True)),
        zero_centred=True, mlx=Quantised(6, 32))


def mixture_family():
    yield Fixture(
        "mixtral-2bit", "block_sparse_moe.switch_mlp, 2 bits, the router too",
        old(mixtral(**WIDE, intermediate_size=96, num_local_experts=4, num_experts_per_tok=2, rope_theta=10000.0, sliding_window=None,
                    tie_word_embeddings=False)), mlx=Quantised(2, 32))
    yield Fixture(
        "qwen3-moe-mxfp4", "mxfp4 with 8-bit affine routers (listed without a mode), stacked experts, a dense layer",
        old(qwen3_moe(**WIDE, intermediate_size=96, num_hidden_layers=3, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True,
                      decoder_sparse_step=1, mlp_only_layers=[0], moe_intermediate_size=32, rope_theta=10000.0)),
        mlx=Quantised(mode="mxfp4"))
    yield Fixture(
        "qwen3-next-4bit", "grouped projections whose quantised rows are taken apart, [C, 4, 1] convolution, norms shifted by one",
        old(qwen3_next(**{**DELTA, **SHARED}, rope_theta=10000.0, partial_rotary_factor=0.25, norm_topk_prob=True, intermediate_size=96,
                       mlp_only_layers=[1], decoder_sparse_step=1, full_attention_interval=4)),
        zero_centred=True, mlx=Quantised(4, 32))


def wrapped(model_type, text, **changes):
    vision = {"model_type": f"{model_type}_vision", "depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8,
              "out_hidden_size": 40, "patch_size": 4, "num_position_embeddings": 16}
    config = {"model_type": model_type, "text_config": text, "vision_config": vision, "tie_word_embeddings": True, "dtype": "bfloat16"}
    return {**config, **changes}


def hybrid_family():
    text = qwen3_5(**{**DELTA, "intermediate_size": 96}, architectures=DROP, full_attention_interval=2)
    wrapper = wrapped("qwen3_5", text, architectures=["Qwen3_5ForConditionalGeneration"])
    for name, why, settings in (
            ("qwen3.5-8bit", "8 bits in groups of 32; language_model.model. names, wrapper without vision tensors", Quantised(8, 32)),
            ("qwen3.5-mxfp8", "the same in mxfp8", Quantised(mode="mxfp8"))):
        yield Fixture(name, why, wrapper, zero_centred=True, mlx=settings,
                      transform=lambda state: released.with_ignored(released.language_model_names(state)))
    moe = wrapped("qwen3_5_moe", qwen3_5("qwen3_5_moe_text", **{**DELTA, **SHARED}, architectures=DROP, intermediate_size=DROP,
                                         tie_word_embeddings=False, full_attention_interval=4),
                  architectures=["Qwen3_5MoeForConditionalGeneration"], tie_word_embeddings=False)
    for name, why, settings in (
            ("qwen3.5-moe-4bit", "4 bits in groups of 32; fused experts taken apart and stacked; shared expert with an 8-bit gate", Quantised(4, 32)),
            ("qwen3.5-moe-mixed-4-6", "recipe mixed_4_6, routers in the narrow width", Quantised(4, 32, recipe="mixed_4_6")),
            ("qwen3.5-moe-nvfp4", "nvfp4 with a global scale for each expert", Quantised(mode="nvfp4", global_scale=True))):
        yield Fixture(name, why, moe, zero_centred=True, mlx=settings,
                      transform=lambda state: released.with_ignored(released.fused_experts(released.language_model_names(state))))


def gemma4_family():
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    wide = dict(head_dim=16, global_head_dim=32, hidden_size=64, intermediate_size=96, rope_parameters=GEMMA4_ROPE)
    per_layer = gemma4(**wide, num_hidden_layers=5, layer_types=kinds, num_kv_shared_layers=2, use_double_wide_mlp=True,
                       hidden_size_per_layer_input=32, num_key_value_heads=1, attention_k_eq_v=False, enable_moe_block=False)
    yield Fixture("gemma4-per-layer-5bit", "5 bits; groups of the per-layer table cross layers; keys of sharing layers dropped", per_layer,
                  mlx=Quantised(5, 32))
    experts = gemma4(**wide, num_hidden_layers=3, layer_types=kinds[:1] + kinds[:2], hidden_size_per_layer_input=0, attention_k_eq_v=True,
                     num_global_key_value_heads=1, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=32,
                     num_kv_shared_layers=0, use_double_wide_mlp=False)
    yield Fixture("gemma4-experts-mxfp4", "mxfp4, experts.switch_glu names, router.proj in 8 bits", experts, mlx=Quantised(mode="mxfp4"))
    yield Fixture("gemma4-experts-4bit", "the same in 4 bits", experts, mlx=Quantised(4, 32))


def all_fixtures():
    families = (dense_family, mixture_family, hybrid_family, gemma4_family)
    return [fixture for family in families for fixture in family()]
