"""Random weights for tiny models, scaled so that every part of the model shows in the logits."""
import re

import numpy as np

# Standard deviation of y = W x for x of unit mean square, by the last part of the projection's name.
# q and k make scores spread by a few units (attention neither uniform nor one-hot); o and down are larger
# because averaging over positions and gating shrink what they read.
GAINS = {
    "q_proj": 1.5, "k_proj": 1.5, "v_proj": 1.0, "o_proj": 1.6,
    "gate_proj": 1.3, "up_proj": 1.3, "down_proj": 1.8, "gate_up_proj": 1.3,
    "w1": 1.3, "w3": 1.3, "w2": 1.8,  # Mixtral's gate, up, down
    "gate": 1.5,  # routers
    "in_proj_qkv": 1.3, "in_proj_qkvz": 1.3, "out_proj": 2.0,
    "per_layer_input_gate": 1.3, "per_layer_projection": 1.6,
    "lm_head": 3.0,
}
EMBEDDING_STD = 0.35
# Gemma multiplies embeddings by sqrt(hidden) and norms what each block adds: with the values above the current
# token's own embedding would win every tied logit, so embeddings are smaller and the added parts larger.
SANDWICH_EMBEDDING_STD = 0.09
SANDWICH_CENTRE = 2.0
# Vectors and odd ones, by the last part of the name: value = centre + deviation * noise.
SPECIAL = {
    "A_log": (0.3, 0.7), "dt_bias": (-2.0, 0.7),  # decays from a few tokens to a few dozen
    "conv1d": (0.0, 0.6),
    "layer_scalar": (0.85, 0.1), "scale": (1.0, 0.2), "per_expert_scale": (1.0, 0.25),
    "proj": (0.0, 2.0),  # Gemma 4's router reads activations already divided by sqrt(hidden)
    "embed_tokens_per_layer": (0.0, 0.3),
}
NORM = re.compile(r"norm(_\d)?$")


def norm_centre(leaf, names):
    """The plain weight's mean; Gemma 4 does not scale its scores by 1/sqrt(head_dim), so its q and k stay small."""
    if leaf in ("q_norm", "k_norm"):
        return 0.8 if any("layer_scalar" in n for n in names) else 1.4
    if leaf.startswith("post_") and any("pre_feedforward" in n for n in names):
        return SANDWICH_CENTRE
    return 1.1


def fill(name, shape, rng, zero_centred, names):
    """float32 values for one tensor; zero_centred: norm weights are stored as w of (1 + w)."""
    leaf = name.removesuffix(".weight").removesuffix(".bias").rsplit(".", 1)[-1]
    noise = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith(".bias"):
        return np.float32(0.3) * noise
    if leaf in SPECIAL:
        centre, deviation = SPECIAL[leaf]
        return np.float32(centre) + np.float32(deviation) * noise
    if NORM.search(leaf):
        shift = 1.0 if zero_centred and "linear_attn.norm" not in name else 0.0  # the gated norm is always plain
        return np.float32(norm_centre(leaf, names) - shift) + np.float32(0.2) * noise
    if leaf == "embed_tokens":
        sandwich = any("pre_feedforward" in n for n in names)
        return np.float32(SANDWICH_EMBEDDING_STD if sandwich else EMBEDDING_STD) * noise
    return noise * np.float32(GAINS.get(leaf, 1.0) / np.sqrt(shape[-1]))


def random_state(shapes, seed, zero_centred):
    """{name: float32 array} for {name: shape}; a tensor's values depend on the seed and its name alone."""
    state = {}
    for name, shape in shapes.items():
        key = [seed] + [ord(c) for c in re.sub(r"^(model\.)?(language_model\.)?(model\.)?", "", name)]
        state[name] = fill(name, shape, np.random.default_rng(key), zero_centred, shapes)
    return state
