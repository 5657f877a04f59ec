"""The list of tiny GGUF files. References are computed on the dequantised weights."""
from gguf import GGMLQuantizationType as Type

from fixturelib.catalogue import LLAMA3_ROPE, Fixture, gemma3, llama, qwen2, qwen3
from fixturelib.gguf_file import Plan

# Row lengths are multiples of 32: hidden 96, heads * head_dim 96, intermediate 64.
BLOCK32 = dict(hidden_size=96, intermediate_size=64, num_attention_heads=6, num_key_value_heads=2)
# K-quants need multiples of 256.
BLOCK256 = dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
                num_key_value_heads=1)


def one_type(kind):
    return {"*.weight": kind}


def gguf_files():
    yield Fixture(
        "gguf-llama-f32", "permuted q and k rows, llama3 scaling as the rope_freqs tensor, untied head, all F32",
        llama(num_attention_heads=9, num_key_value_heads=3, rope_theta=10000.0, hidden_size=54, intermediate_size=42,
              rope_scaling=LLAMA3_ROPE, tie_word_embeddings=False),
        gguf=Plan("llama", one_type(Type.F32), rope_freqs=True))
    yield Fixture(
        "gguf-llama-bias-linear", "biases of q and k permuted too, o and MLP biases, linear scaling key, fused attn_qkv; F16",
        llama(attention_bias=True, mlp_bias=True, rope_theta=10000.0, rope_scaling={"rope_type": "linear", "factor": 4.0}),
        gguf=Plan("llama", one_type(Type.F16), fuse_qkv=True,
                  metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}))
    yield Fixture(
        "gguf-llama-q4_0", "Q4_0 everywhere, tied embedding included",
        llama(**BLOCK32, rope_theta=10000.0), gguf=Plan("llama", one_type(Type.Q4_0)), dtypes=("float32", "bfloat16"))
    yield Fixture(
        "gguf-llama-q4_1", "Q4_1 matrices, Q8_0 embedding, separate Q4_1 output",
        llama(**BLOCK32, rope_theta=10000.0, tie_word_embeddings=False),
        gguf=Plan("llama", {"token_embd.weight": Type.Q8_0, "*.weight": Type.Q4_1}))
    yield Fixture(
        "gguf-llama-yarn-q8_0", "Q8_0 with yarn scaling from metadata",
        llama(**{**BLOCK32, "num_attention_heads": 3, "num_key_value_heads": 1}, rope_theta=10000.0, max_position_embeddings=256,
              rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
        gguf=Plan("llama", one_type(Type.Q8_0),
                  metadata={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                            "rope.scaling.original_context_length": 64}))
    yield Fixture(
        "gguf-qwen2-q5_0", "Q5_0 with q, k, v biases",
        qwen2(**BLOCK32, rope_theta=1000000.0), gguf=Plan("qwen2", one_type(Type.Q5_0)))
    yield Fixture(
        "gguf-qwen2-q5_1", "Q5_1, untied, BF16 embedding",
        qwen2(**BLOCK32, rope_theta=10000.0, tie_word_embeddings=False),
        gguf=Plan("qwen2", {"token_embd.weight": Type.BF16, "*.weight": Type.Q5_1}))
    yield Fixture(
        "gguf-qwen3-bf16", "q and k norms, heads*head_dim not hidden, BF16",
        qwen3(rope_theta=1000000.0, num_hidden_layers=2), gguf=Plan("qwen3", one_type(Type.BF16)))
    yield Fixture(
        "gguf-qwen3-mixed32", "a different 32-element type for every matrix: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL F16",
        qwen3(hidden_size=96, intermediate_size=64, head_dim=32, rope_theta=1000000.0),
        gguf=Plan("qwen3", {"token_embd.weight": Type.Q5_0, "*.attn_q.weight": Type.Q4_0, "*.attn_k.weight": Type.F16,
                            "*.attn_v.weight": Type.Q5_1, "*.attn_output.weight": Type.IQ4_NL,
                            "*.ffn_gate.weight": Type.Q4_1, "*.ffn_up.weight": Type.IQ4_NL,
                            "*.ffn_down.weight": Type.Q8_0}))
    yield Fixture(
        "gguf-qwen3-fp4", "MXFP4 and NVFP4, second-level scales beside some NVFP4 matrices",
        qwen3(hidden_size=64, intermediate_size=128, head_dim=32, rope_theta=1000000.0),
        gguf=Plan("qwen3", {"token_embd.weight": Type.Q8_0, "*.ffn_*": Type.MXFP4, "*.weight": Type.NVFP4},
                  second_scale=("*.attn_q.weight", "*.attn_output.weight")))
    yield Fixture(
        "gguf-gemma3-q8_0", "norms stored with +1, pattern 6 implied, two thetas, linear scaling on global layers",
        gemma3(num_hidden_layers=6, hidden_size=64, intermediate_size=64, head_dim=8, query_pre_attn_scalar=8,
               rope_theta=500000.0, rope_local_base_freq=10000.0, tie_word_embeddings=True,
               rope_scaling={"rope_type": "linear", "factor": 8.0}),
        zero_centred=True, dtypes=("float32", "bfloat16"),
        gguf=Plan("gemma3", one_type(Type.Q8_0),
                  metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}))
    yield Fixture(
        "gguf-gemma3-f16", "sliding_window_pattern key, local theta key, final softcap, F16",
        gemma3(num_hidden_layers=3, rope_theta=500000.0, rope_local_base_freq=2000.0, sliding_window_pattern=2,
               final_logit_softcapping=6.0, tie_word_embeddings=True),
        zero_centred=True,
        gguf=Plan("gemma3", one_type(Type.F16),
                  metadata={"rope.freq_base_swa": 2000.0, "attention.sliding_window_pattern": 2,
                            "final_logit_softcapping": 6.0}))
    yield Fixture(
        "gguf-llama-kquants", "every K-quant in one layer: Q4_K q, Q2_K k, Q6_K v, Q3_K o, Q5_K gate, IQ4_XS up, Q4_K down",
        llama(**BLOCK256, rope_theta=10000.0),
        gguf=Plan("llama", {"token_embd.weight": Type.Q6_K, "*.attn_q.weight": Type.Q4_K, "*.attn_k.weight": Type.Q2_K,
                            "*.attn_v.weight": Type.Q6_K, "*.attn_output.weight": Type.Q3_K,
                            "*.ffn_gate.weight": Type.Q5_K, "*.ffn_up.weight": Type.IQ4_XS,
                            "*.ffn_down.weight": Type.Q4_K}))
    yield Fixture(
        "gguf-qwen3-kquants", "the same types on other matrices: Q3_K q, Q5_K k, Q4_K v, Q6_K o, Q2_K gate, Q3_K up, Q6_K down",
        qwen3(**{**BLOCK256, "hidden_size": 256, "head_dim": 64}, rope_theta=1000000.0),
        gguf=Plan("qwen3", {"token_embd.weight": Type.Q4_K, "*.attn_q.weight": Type.Q3_K, "*.attn_k.weight": Type.Q5_K,
                            "*.attn_v.weight": Type.Q4_K, "*.attn_output.weight": Type.Q6_K,
                            "*.ffn_gate.weight": Type.Q2_K, "*.ffn_up.weight": Type.Q3_K,
                            "*.ffn_down.weight": Type.Q6_K}))
