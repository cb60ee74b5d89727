#!/usr/bin/env python3
"""Makes the gemma4 golden checkpoint say what its golden run computed.

The script that drew the random checkpoint also drew the model's buffers, among them the embedding
scale, which a checkpoint does not store: the golden run multiplied embeddings by 7.84375 where the
model means sqrt(64) = 8. This rewrites embed_tokens as float32 times 7.84375 / 8, which is exact.

usage: gemma4_fixture.py SOURCE.safetensors TARGET.safetensors
"""
import json
import struct
import sys

import numpy as np

RATIO = np.float32(7.84375 / 8.0)
NAME = "model.embed_tokens.weight"


def main(source: str, target: str) -> None:
    with open(source, "rb") as file:
        image = file.read()
    (header_bytes,) = struct.unpack("<Q", image[:8])
    header = json.loads(image[8 : 8 + header_bytes])
    data = image[8 + header_bytes :]
    pieces, end, out = [], 0, {}
    for name, entry in header.items():
        if name == "__metadata__":
            out[name] = entry
            continue
        begin, stop = entry["data_offsets"]
        piece, dtype = data[begin:stop], entry["dtype"]
        if name == NAME and dtype == "BF16":
            bits = np.frombuffer(piece, np.uint16).astype(np.uint32) << 16
            piece, dtype = (bits.view(np.float32) * RATIO).tobytes(), "F32"
        offsets = [end, end + len(piece)]
        out[name] = {"dtype": dtype, "shape": entry["shape"], "data_offsets": offsets}
        pieces.append(piece)
        end += len(piece)
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(pieces))


if __name__ == "__main__":
    main(*sys.argv[1:])
