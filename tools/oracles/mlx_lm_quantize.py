#!/usr/bin/env python3
"""Quantises a checkpoint with `moeflux quantize` and with mlx-lm (PyPI: `mlx[cpu]`, `mlx-lm`), and
compares the files, their perplexities and mlx-lm's logits of ours.

Usage: mlx_lm_quantize.py MOEFLUX MODEL TEXT WORK [TYPE [GROUP_SIZE]]
TYPE is affine-4 by default, groups are of 64. WORK is an empty folder or a new one. Logits are all
of the first 256 tokens of TEXT, in f32. The exit status is 1 when mlx-lm's logits of our
file differ from ours by more than 1e-3, or the perplexities by more than a thousandth.
"""

import pathlib
import re
import subprocess
import sys

import mlx.core as mx
from mlx_lm import convert

from mlx_lm_logits import checkpoint, logits_of_mlx, logits_of_moeflux, tensors_of

TOKENS = 256
LOGITS_TOLERANCE = 1e-3
PERPLEXITY_TOLERANCE = 1e-3


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[1]}: {done.stderr.strip()}")
    return done.stdout + done.stderr


def perplexity(program, folder, text):
    flags = ("--precision", "f32", "-ctk", "f32", "-ctv", "f32")
    out = run(program, "perplexity", "-m", folder, "-f", text, *flags)
    found = re.search(r"perplexity:?\s+([0-9.]+)", out)
    return float(found.group(1)) if found else sys.exit(f"no perplexity in: {out}")


def main():
    program, model, text, work = (pathlib.Path(a).absolute() for a in sys.argv[1:5])
    kind = sys.argv[5] if len(sys.argv) > 5 else "affine-4"
    group = int(sys.argv[6]) if len(sys.argv) > 6 else 64
    mx.set_default_device(mx.cpu)
    ours, theirs = work / "moeflux", work / "mlx-lm"
    work.mkdir(parents=True, exist_ok=True)
    run(program, "quantize", "-m", model, "-o", ours, "--type", kind, "--group-size", str(group))
    mode, _, bits = kind.partition("-")
    settings = {"q_bits": int(bits), "q_group_size": group} if bits else {"q_mode": mode}
    checkpoint(model, "", work / "published")
    convert(str(work / "published"), str(theirs), quantize=True, **settings)

    a, b = tensors_of(ours), tensors_of(theirs)
    same = [k for k in a if k in b and a[k].dtype == b[k].dtype and mx.array_equal(a[k], b[k])]
    print(f"tensors: {len(a)} ours, {len(b)} of mlx-lm, {len(same)} equal bit for bit")
    print("others:", sorted(set(a) ^ set(b) | set(a) - set(same)) or "none")

    ppl = [perplexity(program, folder, text) for folder in (ours, theirs, model)]
    print(f"perplexity: {ppl[0]} ours, {ppl[1]} mlx-lm's conversion, {ppl[2]} the source")
    listed = run(program, "tokenize", "-m", ours, "-f", text, "--ids")
    tokens = [int(t) for t in re.findall(r"\d+", listed)[:TOKENS]]
    of_mlx = logits_of_mlx(ours, tokens)
    far = 0
    for device in ("reference", "cpu"):
        difference = abs(of_mlx - logits_of_moeflux(program, ours, tokens, device, work)).max()
        print(f"mlx-lm's logits of our file, {device}: {difference:.1e} of {of_mlx.std():.2f}")
        far += difference > LOGITS_TOLERANCE
    far += abs(ppl[0] / ppl[1] - 1) > PERPLEXITY_TOLERANCE
    return int(far > 0)


if __name__ == "__main__":
    sys.exit(main())
