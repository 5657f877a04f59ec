"""Names as released checkpoints spell them where today's save_pretrained writes others."""
import re

import numpy as np


def gemma3_names(state):
    """The multimodal wrapper's names: language_model.model.*, vision_tower.*, multi_modal_projector.*."""
    renamed = {}
    for name, value in state.items():
        if name.startswith("model.language_model."):
            name = "language_model.model." + name.removeprefix("model.language_model.")
        renamed[name.removeprefix("model.") if name.startswith("model.") else name] = value
    return renamed


def language_model_names(state):
    """model.* of a text model as model.language_model.*; the head stays at the top."""
    return {re.sub(r"^model\.(?!language_model\.)", "model.language_model.", name): value for name, value in state.items()}


def fused_experts(state):
    """Experts as two 3-D tensors without .weight: gate_up_proj [E, 2I, H] (gate rows first) and down_proj [E, H, I]."""
    groups, renamed = {}, {}
    for name, value in state.items():
        if match := re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name):
            groups.setdefault(match[1], {})[int(match[2]), match[3]] = value
        else:
            renamed[name] = value
    for stem, parts in groups.items():
        experts = range(len(parts) // 3)
        renamed[f"{stem}.gate_up_proj"] = np.stack([np.concatenate([parts[e, "gate"], parts[e, "up"]]) for e in experts])
        renamed[f"{stem}.down_proj"] = np.stack([parts[e, "down"] for e in experts])
    return renamed


def with_ignored(state):
    """Adds tensors that a text engine must skip: a vision tower and a multi-token prediction head."""
    hidden = state["model.language_model.norm.weight"].shape[0]
    ones = lambda: np.ones(hidden, np.float32)  # each its own memory, or safetensors refuses
    extra = {
        "model.visual.merger.norm.weight": ones(),
        "model.visual.blocks.0.attn.proj.weight": np.ones((hidden, 4), np.float32),
        "mtp.fc.weight": np.ones((hidden, 2 * hidden), np.float32),
        "mtp.norm.weight": ones(),
        "mtp.layers.0.input_layernorm.weight": ones(),
    }
    return {**extra, **state}
