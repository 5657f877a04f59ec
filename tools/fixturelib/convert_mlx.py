"""Convert a checkpoint with mlx-lm and run the result: convert_mlx.py CHECKPOINT OUT SETTINGS.json

A process of its own, because mlx-lm lives in another Python environment. SETTINGS: {"quantise": fields of Quantised or null,
"greedy": [[ids]], "new": n, "forced": [ids]}. Writes OUT (when quantised) and OUT.npz with the float32 logits of the forced
ids and, for each prompt, the greedy tokens with the logits before each.
"""
import copy
import itertools
import json
import pathlib
import sys

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map_with_path
from mlx_lm import utils
from mlx_lm.convert import mixed_quant_predicate_builder
from mlx_lm.models.cache import make_prompt_cache


def every_format():
    """Predicate that gives each module the next of all formats."""
    formats = [{"group_size": g, "bits": b, "mode": "affine"} for b in (1, 2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
    formats += [{"group_size": 32, "bits": 4, "mode": "mxfp4"}, {"group_size": 32, "bits": 8, "mode": "mxfp8"},
                {"group_size": 16, "bits": 4, "mode": "nvfp4"}]
    # Narrow codes lose most of a matrix: the embedding and the head get wide ones.
    order = itertools.cycle(formats)
    wide = {"model.embed_tokens": formats[15], "lm_head": formats[18]}
    return lambda path, module: dict(wide.get(path) or next(order))


def cast(model, dtype):
    keep = getattr(model, "cast_predicate", lambda name: True)
    model.update(tree_map_with_path(
        lambda name, value: value.astype(dtype) if keep(name) and mx.issubdtype(value.dtype, mx.floating) else value,
        model.parameters()))


def quantise(model, config, settings):
    predicate = None
    if settings["recipe"] == "every":
        predicate = every_format()
    elif settings["recipe"]:
        predicate = mixed_quant_predicate_builder(settings["recipe"], model, settings["group"])
    cast(model, getattr(mx, settings["types"]))
    return utils.quantize_model(model, copy.deepcopy(config), settings["group"], settings["bits"], mode=settings["mode"],
                                global_scale=settings["global_scale"], quant_predicate=predicate)


def multiply_with_global_scales():
    """MLX's CPU backend has no product with a global scale: take the matrices apart instead."""
    plain = mx.gather_qmm

    def gather_qmm(x, w, scales, biases=None, *, global_scale=None, sorted_indices=False, rhs_indices, transpose, **format):
        if global_scale is None:
            return plain(x, w, scales, biases, rhs_indices=rhs_indices, transpose=transpose, sorted_indices=sorted_indices, **format)
        matrices = mx.dequantize(w, scales, biases, **format).astype(mx.float32) * (global_scale / 2688)[:, None, None]
        return mx.gather_mm(x, matrices.swapaxes(-1, -2), rhs_indices=rhs_indices, sorted_indices=sorted_indices)

    mx.gather_qmm = gather_qmm


def logits_of(model, ids):
    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


def greedy(model, ids, new):
    cache = make_prompt_cache(model)
    rows, tokens = [], []
    step = ids
    for _ in range(new):
        row = np.array(model(mx.array([step]), cache=cache)[0, -1].astype(mx.float32))
        rows.append(row)
        tokens.append(int(row.argmax()))
        step = tokens[-1:]
    return np.array(tokens), np.stack(rows)


def main():
    source, out, settings = sys.argv[1:]
    mx.set_default_device(mx.cpu)
    multiply_with_global_scales()
    with open(settings, encoding="utf-8") as file:
        settings = json.load(file)
    folder = pathlib.Path(source)
    if settings["quantise"]:
        model, config = utils.load_model(folder, lazy=True)
        model, config = quantise(model, config, settings["quantise"])
        utils.save_model(out, model)
        utils.save_config(config, pathlib.Path(out) / "config.json")
        folder = pathlib.Path(out)
    model, _ = utils.load_model(folder)
    model.set_dtype(mx.float32)
    result = {"forced": logits_of(model, settings["forced"])}
    for number, ids in enumerate(settings["greedy"]):
        result[f"tokens{number}"], result[f"rows{number}"] = greedy(model, ids, settings["new"])
    np.savez(out + ".npz", **result)


if __name__ == "__main__":
    main()
