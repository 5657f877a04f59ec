#!/usr/bin/env python3
"""Write tests/data/quant/mlx_encode.json: rows and the planes that MLX's CPU backend makes of them.

Needs: pip install "mlx[cpu]" numpy. Rows are wide and odd on purpose: zeros, constants, one sign, ties, tiny and huge values.
"""
import argparse
import json

import mlx.core as mx
import numpy as np

COLS = 128
DTYPES = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}


def rows(rng):
    normal = rng.standard_normal((6, COLS)).astype(np.float32)
    odd = np.stack([
        np.zeros(COLS), np.full(COLS, 0.37), np.abs(normal[0]) + 1, -np.abs(normal[1]) - 0.5,
        np.round(normal[2] * 4) / 4, normal[3] * 1e-5, np.where(np.arange(COLS) % 7 == 0, normal[4], 0),
        np.linspace(-6, 6, COLS), np.repeat([0.25, -0.5, 0.75, -1.25], COLS // 4), np.full(COLS, -1e-8),
    ]).astype(np.float32)
    return np.concatenate([normal * 0.02, normal * np.float32(3), odd])


def raw(array):
    """Hexadecimal bytes of an mlx array."""
    if array.dtype in (mx.bfloat16, mx.float16):
        array = array.view(mx.uint16)
    return np.array(array).tobytes().hex()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="tests/data/quant/mlx_encode.json")
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    values = rows(np.random.default_rng(5))
    formats = [("affine", b, g) for b in (1, 2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
    formats += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
    cases = []
    for number, (mode, bits, group) in enumerate(formats):
        for name, dtype in DTYPES.items():
            if mode == "affine" and number % 3 != list(DTYPES).index(name):
                continue  # every width in every type, a third of the groups each
            w = mx.array(values).astype(dtype)
            for scaled in (False, True) if mode == "nvfp4" else (False,):
                extra = {}
                if scaled:
                    extra = {"global_scale": mx.abs(w).max().astype(mx.float32)}
                planes = mx.quantize(w, group_size=group, bits=bits, mode=mode, **extra)
                case = dict(mode=mode, bits=bits, group=group, type=name, codes=raw(planes[0]), scales=raw(planes[1]))
                if mode == "affine":
                    case["biases"] = raw(planes[2])
                if scaled:
                    case["largest"] = float(extra["global_scale"])
                cases.append(case)
    rows_of = {name: raw(mx.array(values).astype(dtype)) for name, dtype in DTYPES.items()}
    with open(args.output, "w", encoding="utf-8") as out:
        json.dump({"cols": COLS, "count": len(values), "rows": rows_of, "cases": cases}, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main()
