#!/usr/bin/env python3
"""Hold folders of `forge quantize` against those of mlx-lm: tensors byte for byte, config, and mlx-lm's logits from both.

Needs a Python with mlx-lm, and the checkpoints that `make_fixtures.py --sources DIR` keeps.

  compare_quantize.py build/dev/bin/forge DIR tests/data/models-mlx
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np
from mlx_lm import utils

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from fixturelib.convert_mlx import logits_of, multiply_with_global_scales

IDS = [5, 17, 3, 88, 41, 7, 23, 60, 12, 34, 2, 71, 9, 50, 33, 28]


def flags(settings):
    """The command line for a fixture's settings; None when they have no spelling."""
    if settings["recipe"] == "every":
        return None
    if settings["recipe"]:
        return ["--recipe", settings["recipe"], "--group", str(settings["group"])]
    out = ["--mode", settings["mode"]]
    if settings["bits"]:
        out += ["--bits", str(settings["bits"]), "--group", str(settings["group"])]
    return out + (["--global-scale"] if settings["global_scale"] else [])


def raw(path):
    """{name: (shape, type, bytes)}"""
    tensors = {}
    for name, value in mx.load(str(path)).items():
        plain = value.view(mx.uint16) if value.dtype in (mx.bfloat16, mx.float16) else value
        tensors[name] = (tuple(value.shape), str(value.dtype), np.array(plain).tobytes())
    return tensors


def logits(folder):
    model, _ = utils.load_model(pathlib.Path(folder))
    model.set_dtype(mx.float32)
    return logits_of(model, IDS)


def compare(forge, source, settings, expected):
    wanted = flags(settings)
    if wanted is None:
        return "no spelling"
    with tempfile.TemporaryDirectory() as work:
        made = pathlib.Path(work) / "made"
        subprocess.run([forge, "quantize", "-q", str(source), "-o", str(made), *wanted], check=True, capture_output=True)
        ours, theirs = raw(made / "model.safetensors"), raw(expected / "model.safetensors")
        problems = [f"only in {who}: {sorted(names)[:3]}" for who, names in
                    (("ours", ours.keys() - theirs.keys()), ("theirs", theirs.keys() - ours.keys())) if names]
        differing = [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]]
        if differing:
            problems.append(f"{len(differing)} tensors differ: {sorted(differing)[:4]}")
        with open(made / "config.json", encoding="utf-8") as a, open(expected / "config.json", encoding="utf-8") as b:
            mine, other = json.load(a)["quantization"], json.load(b)["quantization"]
        if mine != other:
            problems.append(f"quantization differs: {sorted(set(map(str, mine.items())) ^ set(map(str, other.items())))[:4]}")
        a, b = logits(made), logits(expected)
        if not np.array_equal(a, b):
            problems.append(f"logits differ by {np.abs(a - b).max() / np.abs(b).max():.1e} of the largest")
    return "; ".join(problems) or f"{len(theirs)} tensors equal, logits equal"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forge")
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("expected", type=pathlib.Path)
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    multiply_with_global_scales()
    for settings in sorted(args.sources.glob("*.json")):
        name = settings.stem
        with open(settings, encoding="utf-8") as file:
            print(f"{name:28}", compare(args.forge, args.sources / name, json.load(file), args.expected / name), flush=True)


if __name__ == "__main__":
    main()
