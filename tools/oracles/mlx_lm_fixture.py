#!/usr/bin/env python3
"""Writes tests/golden/formats/mlx_lm_*: checkpoints of tests/golden/models as mlx-lm (PyPI:
`mlx[cpu]`, `mlx-lm`) converts them at 4 bits, and its logits of them in f32.

Usage: mlx_lm_fixture.py
"""

import pathlib
import shutil
import tempfile

import mlx.core as mx
import numpy
from mlx_lm import convert

from mlx_lm_logits import GROUP_SIZE, ROOT, checkpoint, logits_of_mlx

# Keys and values of heads in matrices of their own; routers of other bits, beside a delta rule.
FAMILIES = ["deepseek_v3", "qwen3_next"]


def main():
    mx.set_default_device(mx.cpu)
    for family in FAMILIES:
        source = ROOT / "tests" / "golden" / "models" / family
        out = ROOT / "tests" / "golden" / "formats" / f"mlx_lm_{family}"
        out.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            published, folder = pathlib.Path(work) / "published", pathlib.Path(work) / "mlx-lm"
            checkpoint(source, "", published)
            convert(str(published), str(folder), quantize=True, q_bits=4, q_group_size=GROUP_SIZE)
            for name in ("config.json", "model.safetensors"):
                shutil.copy(folder / name, out)
            tokens = mx.load(str(source / "golden.safetensors"))["tokens"]
            logits = logits_of_mlx(folder, [int(t) for t in numpy.array(tokens)])
        golden = {"tokens": tokens, "logits": mx.array(logits)}
        mx.save_safetensors(str(out / "golden.safetensors"), golden)


if __name__ == "__main__":
    main()
