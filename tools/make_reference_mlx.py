#!/usr/bin/env python3
"""Write a reference file: what mlx-lm computes in float32 for an MLX folder (docs/references.md).

`forge eval MODEL --reference FILE` replays it. float32, because MLX's CPU backend rounds every partial sum of a quantised
product to 16 bits in 16-bit types. Needs: pip install mlx-lm "mlx[cpu]" numpy.

  make_reference_mlx.py MLX_DIR -o ref.jsonl --prompt "The capital of France is" --text passage.txt
"""
import argparse
import json
import os
import pathlib

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

FORMAT = "forge-reference-1"
TOP = 8


def top_of(row, count):
    order = np.argsort(-row, kind="stable")[:count]
    return [[int(i), round(float(row[i]), 6)] for i in order]


def rows_of(model, ids, cache=None):
    return np.array(model(mx.array([ids]), cache=cache)[0].astype(mx.float32))


def greedy(model, ids, new, prompt):
    cache = make_prompt_cache(model)
    tokens, tops, step = [], [], ids
    for _ in range(new):
        row = rows_of(model, step, cache)[-1]
        tops.append(top_of(row, TOP))
        tokens.append(int(row.argmax()))
        step = tokens[-1:]
    return dict(kind="greedy", prompt=prompt, ids=ids, tokens=tokens, top=tops)


def forced(model, ids):
    logits = rows_of(model, ids)[:-1].astype(np.float64)
    peak = logits.max(-1, keepdims=True)
    normal = peak[:, 0] + np.log(np.exp(logits - peak).sum(-1))
    nll = normal - logits[np.arange(len(ids) - 1), ids[1:]]
    return dict(kind="forced", prompt=None, ids=ids, top=[top_of(row, TOP) for row in logits], nll=[round(float(v), 6) for v in nll])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="MLX folder with a tokenizer")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--new", type=int, default=48, help="greedy tokens per prompt")
    parser.add_argument("--positions", type=int, default=192, help="positions of a --text that are scored")
    parser.add_argument("--prompt", action="append", default=[], help="greedy: raw text")
    parser.add_argument("--text", action="append", default=[], help="forced: a UTF-8 file")
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    model, tokenizer = mlx_lm.load(args.model)
    model.set_dtype(mx.float32)
    records = [greedy(model, list(tokenizer.encode(text)), args.new, text) for text in args.prompt]
    for path in args.text:
        ids = list(tokenizer.encode(pathlib.Path(path).read_text(encoding="utf-8")))[: args.positions + 1]
        records.append(forced(model, ids))
    name = os.path.basename(args.model.rstrip("/"))
    lines = [dict(format=FORMAT, engine=f"mlx-lm {mlx_lm.__version__}", dtype="float32", model=name), *records]
    with open(args.output + ".tmp", "w", encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    os.replace(args.output + ".tmp", args.output)


if __name__ == "__main__":
    main()
