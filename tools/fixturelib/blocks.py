"""Rows of quantised blocks: the gguf package's quantisers where they exist, else random valid blocks.

A random block reaches every code and scale that its format can hold, which a quantiser's output does not.
Each maker returns bytes [blocks, block_bytes] whose values have about the wanted standard deviation and mean 0.
Layouts: docs/formats (GGUF block types).
"""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf import quants


def half(values):
    return np.asarray(values, np.float16).reshape(-1, 1).view(np.uint8)


def octets(rng, blocks, count):
    return rng.integers(0, 256, (blocks, count), dtype=np.uint8)


def jitter(rng, blocks, value):
    """Block scales differ by up to a third, so that using a neighbour's scale shows."""
    return value * rng.uniform(0.75, 1.33, blocks)


def pack_six_bit(scales, mins):
    """The 12 bytes of Q4_K and Q5_K from eight 6-bit scales and eight 6-bit mins (blocks, 8)."""
    low = (scales[:, :4] & 63) | ((scales[:, 4:] >> 4) << 6)
    middle = (mins[:, :4] & 63) | ((mins[:, 4:] >> 4) << 6)
    high = (scales[:, 4:] & 15) | ((mins[:, 4:] & 15) << 4)
    return np.concatenate([low, middle, high], axis=1).astype(np.uint8)


def q2_k(rng, n, std):
    scales = rng.integers(3, 16, (n, 16))
    mins = np.clip(scales + rng.integers(-1, 2, (n, 16)), 0, 15)
    d = jitter(rng, n, std / (1.12 * 9.5))  # codes 0..3 have deviation 1.12, sub-scales average 9.5
    return np.concatenate([(scales | (mins << 4)).astype(np.uint8), octets(rng, n, 64), half(d), half(1.5 * d)], 1)


def q3_k(rng, n, std):
    d = jitter(rng, n, std / (2.3 * 18.5))
    return np.concatenate([octets(rng, n, 32), octets(rng, n, 64), octets(rng, n, 12), half(d)], 1)


def scaled_min(rng, n, std, levels):
    """Scales, mins, d and dmin of Q4_K and Q5_K: mins cancel the mean of unsigned codes."""
    scales = rng.integers(12, 64, (n, 8))
    mins = np.clip(scales + rng.integers(-3, 4, (n, 8)), 0, 63)
    d = jitter(rng, n, std / (levels / 12**0.5 * 38))
    return pack_six_bit(scales, mins), half(d), half(d * (levels - 1) / 2)


def q4_k(rng, n, std):
    packed, d, dmin = scaled_min(rng, n, std, 16)
    return np.concatenate([d, dmin, packed, octets(rng, n, 128)], 1)


def q5_k(rng, n, std):
    packed, d, dmin = scaled_min(rng, n, std, 32)
    return np.concatenate([d, dmin, packed, octets(rng, n, 32), octets(rng, n, 128)], 1)


def q6_k(rng, n, std):
    scales = rng.integers(-127, 128, (n, 16)).astype(np.int8).view(np.uint8)
    d = jitter(rng, n, std / (18.5 * 73))
    return np.concatenate([octets(rng, n, 128), octets(rng, n, 64), scales, half(d)], 1)


def iq4_nl(rng, n, std):
    return np.concatenate([half(jitter(rng, n, std / 69)), octets(rng, n, 16)], 1)


def iq4_xs(rng, n, std):
    return np.concatenate([half(jitter(rng, n, std / (69 * 18.5))), octets(rng, n, 2), octets(rng, n, 4), octets(rng, n, 128)], 1)


def mxfp4(rng, n, std):
    exponent = 128 + np.round(np.log2(std / 6.0)) + rng.integers(-1, 2, n)  # doubled codes have deviation about 6
    return np.concatenate([exponent.astype(np.uint8).reshape(-1, 1), octets(rng, n, 16)], 1)


def nvfp4(rng, n, std):
    exponent = np.round(np.log2(std / 3.0)) + 7 + rng.integers(-1, 1, (n, 4))  # UE4M3: exponent bias 7, 3 mantissa bits
    scale = (np.clip(exponent, 1, 14).astype(np.uint8) << 3) | rng.integers(0, 8, (n, 4), dtype=np.uint8)
    return np.concatenate([scale, octets(rng, n, 32)], 1)


MAKERS = {Type.Q2_K: q2_k, Type.Q3_K: q3_k, Type.Q4_K: q4_k, Type.Q5_K: q5_k, Type.Q6_K: q6_k,
          Type.IQ4_NL: iq4_nl, Type.IQ4_XS: iq4_xs, Type.MXFP4: mxfp4, Type.NVFP4: nvfp4}


def encode(weight, kind, seed):
    """(bytes [rows, row_bytes], float32 values) of a float32 matrix in a block type."""
    if kind in MAKERS:
        elements, size = GGML_QUANT_SIZES[kind]
        rows, width = weight.shape
        if width % elements:
            raise ValueError(f"a row of {width} values does not divide into {kind.name} blocks of {elements}")
        rng = np.random.default_rng(seed)
        packed = MAKERS[kind](rng, rows * width // elements, float(weight.std()))
        assert packed.shape[1] == size, (kind, packed.shape, size)
        packed = packed.reshape(rows, -1)
    else:
        packed = quants.quantize(weight, kind)
    return packed, quants.dequantize(packed, kind).astype(np.float32).reshape(weight.shape)
