#!/usr/bin/env python3
"""Writes tests/golden/quant/affine.safetensors: what mlx.core.quantize makes of one small matrix.

Per bits B, group size G and scale dtype T (f32, bf16, f16): "T.B.G.codes" as bytes,
"T.B.G.scales" and "T.B.G.biases". "weights" is the matrix, exact in every T; its rows hold
ordinary numbers, one sign only, an extreme of either sign, a constant and zeros.

usage: quant_golden.py TARGET.safetensors        (needs numpy and mlx[cpu]; made with mlx 0.32.4)
"""

import json
import struct
import sys

import mlx.core as mx
import numpy as np

TYPES = {"f32": mx.float32, "bf16": mx.bfloat16, "f16": mx.float16}
NAMES = {"f32": "F32", "bf16": "BF16", "f16": "F16"}
COLS = 128


def matrix() -> np.ndarray:
    rng = np.random.default_rng(20)
    rows = [
        rng.standard_normal(COLS) * 0.1,
        rng.uniform(0.5, 1.5, COLS),
        -rng.uniform(0.5, 1.5, COLS),
    ]
    for extreme in (3.0, -3.0):
        row = rng.standard_normal(COLS) * 0.2
        row[::32] = extreme
        rows.append(row)
    rows += [np.full(COLS, 0.75), np.zeros(COLS)]
    # Eight significant bits: the same numbers in every dtype.
    mantissa, exponent = np.frexp(np.array(rows, np.float32))
    return np.ldexp(np.rint(mantissa * 256) / 256, np.maximum(exponent, -6)).astype(np.float32)


def raw(array: mx.array) -> bytes:
    return bytes(memoryview(array.view(mx.uint8)))


def main(target: str) -> None:
    weights = matrix()
    for kind in TYPES.values():
        assert (np.array(mx.array(weights).astype(kind).astype(mx.float32)) == weights).all()
    tensors = {"weights": ("F32", list(weights.shape), weights.tobytes())}
    for name, kind in TYPES.items():
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                codes, scales, biases = mx.quantize(
                    mx.array(weights).astype(kind), group_size=group, bits=bits
                )
                key = f"{name}.{bits}.{group}"
                tensors[key + ".codes"] = ("U32", list(codes.shape), raw(codes))
                tensors[key + ".scales"] = (NAMES[name], list(scales.shape), raw(scales))
                tensors[key + ".biases"] = (NAMES[name], list(biases.shape), raw(biases))
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(
            struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
