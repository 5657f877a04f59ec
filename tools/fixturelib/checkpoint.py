"""Checkpoint folders: config.json and one or several safetensors files."""
import json
import os

import torch
from safetensors.torch import save_file

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def to_torch(state, storage):
    """float32 arrays rounded to the storage type."""
    return {name: torch.from_numpy(value).to(TORCH[storage]).contiguous() for name, value in state.items()}


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
