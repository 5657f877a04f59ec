#!/usr/bin/env python3
"""Writes tests/data/model/rope.json: rotary frequencies as transformers computes them.

Each case is a config.json text (both spellings occur), the layer kind where
frequencies differ by it, and the f32 inverse frequencies and the factor of cos
and sin. Needs torch and transformers 5.
"""
import json
import pathlib

import torch
from transformers import AutoConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA = dict(model_type="llama", hidden_size=256, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
             intermediate_size=512, vocab_size=100, max_position_embeddings=131072)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)

CASES = {
    "default-10000": dict(LLAMA),
    "default-500000-head-128": dict(LLAMA, head_dim=128, rope_theta=500000.0),
    "default-1e6-new-spelling": dict(LLAMA, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "linear-old-spelling": dict(LLAMA, rope_theta=100000.0, rope_scaling=dict(type="linear", factor=3.0)),
    "linear-half-rotary": dict(LLAMA, rope_parameters=dict(rope_type="linear", factor=3.0, rope_theta=10000.0,
                                                           partial_rotary_factor=0.5)),
    "llama-3.1": dict(LLAMA, head_dim=128, rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    "llama-3.2": dict(LLAMA, rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    "llama3-no-original": dict(LLAMA, max_position_embeddings=4096, rope_parameters=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_theta=500000.0)),
    "yarn": dict(LLAMA, head_dim=128, rope_theta=1e6, rope_scaling=dict(YARN)),
    "yarn-betas-no-truncate": dict(LLAMA, rope_parameters=dict(YARN, rope_theta=150000.0, beta_fast=24.0,
                                                               beta_slow=2.0, truncate=False)),
    "yarn-mscale": dict(LLAMA, rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=1.2)),
    "yarn-attention-factor": dict(LLAMA, rope_scaling=dict(YARN, attention_factor=0.83, beta_fast=0)),
    "yarn-half-rotary": dict(LLAMA, head_dim=128, rope_parameters=dict(YARN, rope_theta=1e6,
                                                                       partial_rotary_factor=0.5)),
    "yarn-short-original": dict(LLAMA, max_position_embeddings=64, rope_scaling=dict(
        rope_type="yarn", factor=2.0, original_max_position_embeddings=16)),
    "yarn-null-factor": dict(LLAMA, max_position_embeddings=65536, rope_scaling=dict(YARN, factor=None)),
}

GEMMA = dict(model_type="gemma3_text", hidden_size=256, num_attention_heads=4, num_key_value_heads=2,
             num_hidden_layers=6, intermediate_size=512, vocab_size=100, head_dim=128)
GEMMA_CASES = {
    "gemma3-defaults": dict(GEMMA),
    "gemma3-4b": dict(GEMMA, rope_scaling=dict(rope_type="linear", factor=8.0), rope_theta=1e6,
                      rope_local_base_freq=20000.0),
    "gemma3-keyed": dict(GEMMA, rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=2.0, rope_theta=500000.0),
        sliding_attention=dict(rope_type="default", rope_theta=12345.0))),
}


def floats(tensor):
    """Shortest decimals that give the same f32 back."""
    assert tensor.dtype == torch.float32
    return [float(str(value)) for value in tensor.numpy()]


def load(config):
    # through the loader, so that the old spelling is converted as for a checkpoint
    config = json.loads(json.dumps(config))
    kind = config.pop("model_type")
    return AutoConfig.for_model(kind, **config)


def main():
    out = []
    for name, config in CASES.items():
        rope = LlamaRotaryEmbedding(load(config))
        out.append(dict(name=name, config=config, kind="full_attention", inv_freq=floats(rope.inv_freq),
                        scale=float(rope.attention_scaling)))
    for name, config in GEMMA_CASES.items():
        rope = Gemma3RotaryEmbedding(load(config))
        for kind in ("full_attention", "sliding_attention"):
            out.append(dict(name=name, config=config, kind=kind,
                            inv_freq=floats(getattr(rope, kind + "_inv_freq")),
                            scale=float(getattr(rope, kind + "_attention_scaling"))))
    path = pathlib.Path(__file__).parent.parent / "tests/data/model/rope.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in out) + "\n]\n")
    print(f"{path}: {len(out)} cases")


if __name__ == "__main__":
    main()
