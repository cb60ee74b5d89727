#!/usr/bin/env python3
"""Writes a random checkpoint in FP8 with the shape of a folder that `moeflux synth` wrote.

    moeflux synth --like qwen3-30b-a3b -o shape --layers 1
    benchmarks/fp8_model.py shape OUT --layers 8 [--mxfp8]

Only Qwen3-MoE's names are known. Matrices have scales of blocks of 128 x 128 in F32, or of 1 x 32
in a byte with --mxfp8; the embedding, the head, routers and norms are BF16.
"""
import argparse
import json
import os
import random
import shutil
import struct

NUMBERS = random.Random(1)
PIECE = 1 << 22
# No NaN, whose codes have all bits.
FINITE = bytes({0x7F: 0x7E, 0xFF: 0xFE}.get(code, code) for code in range(256))
CODES = NUMBERS.randbytes(PIECE).translate(FINITE)
HALVES = b"".join(struct.pack("<f", NUMBERS.gauss(0, 0.02))[2:] for _ in range(PIECE // 4))
ONES = struct.pack("<f", 1.0)[2:]
SCALE = struct.pack("<f", 2.0**-13)


def matrix(name, rows, cols, mxfp8):
    yield name + ".weight", "F8_E4M3", [rows, cols], CODES
    if mxfp8:
        yield name + ".weight_scale_inv", "U8", [rows, cols // 32], bytes([127 - 13])
    else:
        yield name + ".weight_scale_inv", "F32", [-(-rows // 128), -(-cols // 128)], SCALE


def tensors(config, mxfp8):
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    head = config["head_dim"]
    yield "model.embed_tokens.weight", "BF16", [vocab, hidden], HALVES
    yield "lm_head.weight", "BF16", [vocab, hidden], HALVES
    yield "model.norm.weight", "BF16", [hidden], ONES
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm, width in (("input_layernorm", hidden), ("post_attention_layernorm", hidden),
                            ("self_attn.q_norm", head), ("self_attn.k_norm", head)):
            yield at + norm + ".weight", "BF16", [width], ONES
        queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
        for part, rows, cols in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden),
                                 ("o", hidden, queries)):
            yield from matrix(f"{at}self_attn.{part}_proj", rows, cols, mxfp8)
        yield at + "mlp.gate.weight", "BF16", [config["num_experts"], hidden], HALVES
        inner = config["moe_intermediate_size"]
        for expert in range(config["num_experts"]):
            of = f"{at}mlp.experts.{expert}."
            yield from matrix(of + "gate_proj", inner, hidden, mxfp8)
            yield from matrix(of + "up_proj", inner, hidden, mxfp8)
            yield from matrix(of + "down_proj", hidden, inner, mxfp8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape")
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--mxfp8", action="store_true")
    options = parser.parse_args()
    with open(os.path.join(options.shape, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.pop("quantization", None)
    config["num_hidden_layers"] = options.layers
    method, block = ("mxfp8", [1, 32]) if options.mxfp8 else ("fp8", [128, 128])
    config["quantization_config"] = {"quant_method": method, "weight_block_size": block}
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    shutil.copy(os.path.join(options.shape, "tokenizer.json"), options.out)
    header, at = {}, 0
    for name, dtype, shape, _ in tensors(config, options.mxfp8):
        size = {"F8_E4M3": 1, "U8": 1, "BF16": 2, "F32": 4}[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with open(os.path.join(options.out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, numbers in tensors(config, options.mxfp8):
            begin, end = header[name]["data_offsets"]
            left = end - begin
            block = numbers if len(numbers) >= PIECE // 4 else numbers * (PIECE // len(numbers))
            while left > 0:
                left -= file.write(block[:left])


if __name__ == "__main__":
    main()
