"""GGUF files from the tensors of a checkpoint: names, permuted rows, shifted norms, metadata, block types."""
import fnmatch
import os
import re
from dataclasses import dataclass, field

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from fixturelib import blocks

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


@dataclass
class Plan:
    arch: str
    types: dict  # GGUF name pattern -> type of matrices; the first match counts
    metadata: dict = field(default_factory=dict)  # keys after "arch."
    rope_freqs: bool = False  # llama3 scaling travels as a tensor
    second_scale: tuple = ()  # name patterns that get a NAME.scale tensor
    fuse_qkv: bool = False


def gguf_name(arch, name):
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    table = {**NAMES, **SANDWICH} if arch == "gemma3" else NAMES
    stem, suffix = name.rsplit(".", 1)
    if match := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem):
        return f"blk.{match[1]}.{table[match[2]]}.{suffix}"
    return f"{table[stem]}.{suffix}"


def interleave_rows(rows, heads):
    """Half-split rows of each head to pairs: new row 2i+j of a head is old row j*half+i."""
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def split_rows(rows, heads):
    """The inverse of interleave_rows."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def llama3_divisors(config, head_dim):
    """rope_freqs [head_dim/2]: what each plain frequency is divided by under llama3 scaling."""
    scaling = config["rope_scaling"]
    inverse = config["rope_theta"] ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelength = 2 * np.pi / inverse
    original = scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def pick_type(plan, name):
    for pattern, kind in plan.types.items():
        if fnmatch.fnmatch(name, pattern):
            return kind
    return Type.F32


def write(folder, fixture, state, seed):
    """Write model.gguf; returns the state a reader that follows the format must end up with."""
    plan, config = fixture.gguf, fixture.config
    q_heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // q_heads
    writer = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), plan.arch)
    add_metadata(writer, plan, config, head_dim)
    exact, pending = {}, {}
    for number, (name, value) in enumerate(state.items()):
        target = gguf_name(plan.arch, name)
        heads = {"attn_q": q_heads, "attn_k": kv_heads}.get(target.split(".")[-2]) if plan.arch == "llama" else None
        if heads:
            value = interleave_rows(value, heads)
        if plan.arch == "gemma3" and target.endswith("norm.weight"):
            value = (value + np.float32(1)).astype(np.float32)
        # The converter's rule: vectors and everything not named .weight stay F32.
        kind = pick_type(plan, target) if value.ndim == 2 and target.endswith(".weight") else Type.F32
        packed, value = pack(value, kind, [seed, number])
        pending[target] = (packed, kind)
        if any(fnmatch.fnmatch(target, p) for p in plan.second_scale):
            scale = np.float32(0.75 + 0.01 * number)
            pending[target.removesuffix("weight") + "scale"] = (np.array([scale], np.float32), Type.F32)
            value = value * scale
        if heads:
            value = split_rows(value, heads)
        if plan.arch == "gemma3" and target.endswith("norm.weight"):
            value = value - np.float32(1)
        exact[name] = value
    if plan.fuse_qkv:
        fuse_qkv(pending)
    if plan.rope_freqs:
        pending["rope_freqs.weight"] = (llama3_divisors(config, head_dim), Type.F32)
    for name, (packed, kind) in pending.items():
        writer.add_tensor(name, np.ascontiguousarray(packed), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return exact


def pack(value, kind, seed):
    """(array for the writer, exact float32 values)"""
    if kind == Type.F32:
        return value.astype(np.float32), value.astype(np.float32)
    if kind == Type.F16:
        return value.astype(np.float16), value.astype(np.float16).astype(np.float32)
    return blocks.encode(value, kind, seed)


def fuse_qkv(pending):
    """attn_qkv instead of attn_q, attn_k, attn_v where all three have one type: rows of q, then k, then v."""
    for layer in {n.split(".")[1] for n in pending if n.startswith("blk.")}:
        for suffix in ("weight", "bias"):
            parts = [f"blk.{layer}.attn_{c}.{suffix}" for c in "qkv"]
            if all(p in pending for p in parts) and len({pending[p][1] for p in parts}) == 1:
                taken = [pending.pop(p) for p in parts]
                pending[f"blk.{layer}.attn_qkv.{suffix}"] = (np.concatenate([t[0] for t in taken]), taken[0][1])


def add_metadata(writer, plan, config, head_dim):
    arch = plan.arch
    writer.add_name("tiny random model")
    writer.add_type("model")
    writer.add_quantization_version(2)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    if config.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch == "llama":
        writer.add_rope_dimension_count(head_dim)
    if arch == "gemma3":
        writer.add_sliding_window(config["sliding_window"])
    writer.add_tokenizer_model("none")
    for key, value in plan.metadata.items():
        name = f"{arch}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
