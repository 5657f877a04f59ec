"""Checkpoint folders: config.json and one or several safetensors files."""
import json
import os

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import save_file

Q8_0 = GGMLQuantizationType.Q8_0
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def to_torch(state, storage):
    """float32 arrays rounded to the storage type; q8_0 is float32 of values that Q8_0 holds exactly."""
    if storage == "q8_0":
        state, storage = {name: q8_0_values(value) for name, value in state.items()}, "f32"
    return {name: torch.from_numpy(value).to(TORCH[storage]).contiguous() for name, value in state.items()}


def q8_0_values(value):
    """Matrices rounded to Q8_0; quantising them again changes nothing, since a block's largest code stays 127."""
    if value.ndim < 2 or value.shape[-1] % 32:
        return value
    return gguf.quants.dequantize(gguf.quants.quantize(value, Q8_0), Q8_0).astype(np.float32).reshape(value.shape)


def write_config(folder, config):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out, indent=2)
        out.write("\n")


def write_tensors(folder, tensors, shards):
    """One model.safetensors, or `shards` files of about equal tensor counts with the index beside them."""
    meta = {"format": "pt"}
    if shards == 1:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata=meta)
        return
    names = list(tensors)
    per_shard = -(-len(names) // shards)
    weight_map = {}
    for number in range(shards):
        part = names[number * per_shard : (number + 1) * per_shard]
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        save_file({n: tensors[n] for n in part}, os.path.join(folder, file), metadata=meta)
        weight_map.update({n: file for n in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    parameters = sum(t.numel() for t in tensors.values())
    index = {"metadata": {"total_parameters": parameters, "total_size": total}, "weight_map": weight_map}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump(index, out, indent=2)
        out.write("\n")
