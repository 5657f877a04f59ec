"""Random weights for tiny models, scaled so that every part of the model shows in the logits."""
import re

import numpy as np

# Standard deviation of y = W x for x of unit mean square, by the last part of the projection's name.
# q and k make scores spread by a few units (attention neither uniform nor one-hot); o and down are larger
# because averaging over positions and gating shrink what they read.
GAINS = {
    "q_proj": 1.5, "k_proj": 1.5, "v_proj": 1.0, "o_proj": 1.6,
    "gate_proj": 1.3, "up_proj": 1.3, "down_proj": 1.8, "gate_up_proj": 1.3,
    "lm_head": 3.0,
}
EMBEDDING_STD = 0.35
# Gemma multiplies embeddings by sqrt(hidden) and norms what each block adds: with the values above the current
# token's own embedding would win every tied logit, so embeddings are smaller and the added parts larger.
SANDWICH_EMBEDDING_STD = 0.09
SANDWICH_CENTRE = 2.0


def norm_centre(leaf, sandwich):
    if leaf in ("q_norm", "k_norm"):
        return 1.4
    if sandwich and leaf.startswith("post_"):
        return SANDWICH_CENTRE
    return 1.1


def fill(name, shape, rng, zero_centred, sandwich):
    """float32 values for one tensor; zero_centred: norm weights are stored as w of (1 + w)."""
    leaf = name.removesuffix(".weight").removesuffix(".bias").rsplit(".", 1)[-1]
    noise = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith(".bias"):
        return np.float32(0.3) * noise
    if leaf.endswith("norm"):
        centre = norm_centre(leaf, sandwich)
        return np.float32(centre - 1.0 if zero_centred else centre) + np.float32(0.2) * noise
    if leaf == "embed_tokens":
        return np.float32(SANDWICH_EMBEDDING_STD if sandwich else EMBEDDING_STD) * noise
    return noise * np.float32(GAINS.get(leaf, 1.0) / np.sqrt(shape[-1]))


def random_state(shapes, seed, zero_centred):
    """{name: float32 array} for {name: shape}; a tensor's values depend on the seed and its name alone."""
    sandwich = any("pre_feedforward" in name for name in shapes)
    state = {}
    for name, shape in shapes.items():
        key = [seed] + [ord(c) for c in re.sub(r"^(model\.)?(language_model\.)?(model\.)?", "", name)]
        state[name] = fill(name, shape, np.random.default_rng(key), zero_centred, sandwich)
    return state
