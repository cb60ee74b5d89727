#!/usr/bin/env python3
"""Adds GGML's types of one and two bits to tests/golden/formats/ggml_blocks.safetensors.

Ternary types are decoded by llama.cpp's Python package. It has no decoder of Q1_0 and Q2_0 (0.19):
their numbers are computed here from the definition in ggml-quants.c, in numpy.
Usage: low_bit_blocks.py tests/golden/formats/ggml_blocks.safetensors (gguf 0.19, safetensors)
"""
import json
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants
from safetensors.numpy import load_file, save_file

ROWS, COLS = 16, 256
# Name, numbers and bytes of a block, where its scale lies.
TYPES = [
    ("q1_0", 128, 18, 0),
    ("q2_0", 64, 18, 0),
    ("q2_0_128", 128, 34, 0),
    ("tq1_0", 256, 54, 52),
    ("tq2_0", 256, 66, 64),
]
SCALES = [0.0, -0.0, 6e-8, -6e-8, 60000.0, -60000.0, -0.75, 1.0]


def fields(codes, bits):
    """Fields of `bits` bits of the bytes [..., n], lowest first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((codes[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*codes.shape[:-1], -1)


def decode(name, blocks):
    if name.startswith("tq"):
        return quants.dequantize(blocks, GGMLQuantizationType[name.upper()])
    d = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    if name == "q1_0":
        return np.where(fields(blocks[..., 2:], 1) != 0, d, -d)
    return (fields(blocks[..., 2:], 2).astype(np.float32) - np.float32(1)) * d


def main():
    path = sys.argv[1]
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    tensors = load_file(path)
    random = np.random.default_rng(41)
    for name, elements, size, at in TYPES:
        count = ROWS * COLS // elements
        blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
        blocks[0], blocks[1] = 0, 255
        blocks[2] = np.arange(size)
        scales = random.normal(0, 0.05, count)
        scales[: len(SCALES)] = SCALES
        blocks[:, at : at + 2] = scales.astype(np.float16)[:, None].view(np.uint8)
        tensors[name + ".bytes"] = blocks.reshape(-1).view(np.int32)
        tensors[name + ".values"] = decode(name, blocks).astype(np.float32).reshape(ROWS, COLS)
    save_file(tensors, path, header["__metadata__"])


main()
