#!/usr/bin/env python3
"""Compares DeepSeek-V4.1's Engram of deepseek_v41_golden.py, and a golden of it, with SGLang's.

The module is the file srt/layers/engram.py of SGLang's wheel, unchanged. It computes on the CPU in
its own PyTorch paths; the other modules that it imports have stand-ins here. The rows of n-grams
are compared in one piece, in pieces and token by token. Then come the sizes of the published
tables, rows read from a table in FP8, the gate, and the golden's logits with this module.

usage: deepseek_v41_engram.py GOLDEN_FOLDER SGLANG_FOLDER
       (sglang 0.5.23's wheel, unpacked: SGLANG_FOLDER has sglang/; torch 2.11, safetensors, numpy)
"""
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import types
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file

OWN = ("torch", "numpy", "safetensors", "sympy", "mpmath", "networkx", "triton")
SEED = 4
BLOCK = 32  # columns of a table in FP8 that share a scale


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that have whatever name is asked for."""

    NAMES = ("sglang", "mlx", "mlx_lm", "msgspec")

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] not in self.NAMES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: mock.MagicMock(name=name)
        return module

    def exec_module(self, module):
        """Nothing to run."""


class Struct:
    """msgspec.Struct as EngramLayout uses it."""

    def __init_subclass__(cls, **options):
        super().__init_subclass__()

    def __init__(self, **fields):
        self.__dict__.update(fields)


class Linear(torch.nn.Module):
    """ReplicatedLinear without a quantisation: its result and a bias that is not there."""

    def __init__(self, columns, rows, **options):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(rows, columns), requires_grad=False)

    def forward(self, x):
        return torch.nn.functional.linear(x.to(self.weight.dtype), self.weight), None


def load_engram(folder):
    """The published module."""
    sys.meta_path.insert(0, StandIns())
    sys.modules.setdefault("msgspec", importlib.import_module("msgspec")).Struct = Struct
    path = pathlib.Path(folder) / "sglang" / "srt" / "layers" / "engram.py"
    spec = importlib.util.spec_from_file_location("published_engram", path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch("torch.cuda.is_available", return_value=False):
        spec.loader.exec_module(module)
    module.ReplicatedLinear = Linear
    module.FP8_BLOCK_SIZE = BLOCK
    module.MM_PAD_SHIFT_VALUE = 1 << 24
    module.MODE_DECODE, module.MODE_VERIFY, module.MODE_EXTEND = 0, 1, 2
    module._cuda_kernels = lambda tensor: False
    module.is_cuda = lambda: False
    parallel = types.SimpleNamespace(tp_size=1, tp_rank=0, attn_dp_size=1)
    module.get_parallel = lambda: parallel
    switch = types.SimpleNamespace(get=lambda: False)
    module.envs = types.SimpleNamespace(SGLANG_OPT_DSV41_ENGRAM_PEER_SHARDS=switch,
                                        SGLANG_ENABLE_DSV41_ENGRAM_HOST_TABLE=switch,
                                        SGLANG_OPT_ENGRAM_EXTEND_HASH=switch)
    return module


def batch(positions, decode):
    """A forward batch of one request, in slot 0."""
    count = len(positions)
    mode = types.SimpleNamespace(is_idle=lambda: False, is_extend=lambda: not decode,
                                 is_decode=lambda: decode, is_target_verify=lambda: False)
    return types.SimpleNamespace(
        forward_mode=mode, positions=torch.tensor(positions), req_pool_indices=torch.tensor([0]),
        extend_seq_lens=torch.tensor([count]), extend_start_loc=torch.tensor([0]),
        extend_seq_lens_cpu=[count], engram_history=None,
        out_cache_loc=torch.ones(count, dtype=torch.int64), engram_staged_rows=None)


def make_hasher(module, config, layout):
    """Its tokens are their own codes, as the golden's are."""
    codes = config.engram_compressed_vocab_size
    module.build_compressed_token_map = lambda tokenizer: (list(range(codes)), codes)
    hasher = module.EngramHasher(layout, None, config.engram_pad_token_id, codes)
    hasher.init_history(1, "cpu")
    return hasher


def rows_of(hasher, tokens, sizes, decode=False):
    """Its rows [layer, token, column] of the tokens in pieces of so many."""
    found, at = [], 0
    hasher.history.zero_()
    for size in sizes:
        piece = tokens[at:at + size]
        positions = list(range(at, at + len(piece)))
        found.append(hasher(torch.tensor(piece), batch(positions, decode)))
        at += len(piece)
    return torch.cat(found).numpy().swapaxes(0, 1)


def compare_rows(module, golden, config, tokens):
    hasher = make_hasher(module, config, module.EngramLayout.from_config(config))
    ours = golden.engram_rows(tokens)
    count = len(tokens)
    for name, sizes, decode in (("in one piece", [count], False),
                                ("in pieces", [1, 2, 7, count - 10], False),
                                ("token by token", [1] * count, True)):
        theirs = rows_of(hasher, tokens, sizes, decode)
        print(f"rows {name}: {(theirs != ours).sum()} of {ours.size} differ")
        assert (theirs == ours).all()
    return ours


def compare_sizes(module):
    """Rows that the tables of the published model need, by its primes."""
    root = pathlib.Path(__file__).parents[2]
    path = root / "src" / "model" / "families" / "configs" / "deepseek-v4.1-flash.json"
    text = json.loads(path.read_text())
    config = types.SimpleNamespace(**text.get("text_config", text))
    layout = module.EngramLayout.from_config(config)
    needed = [layout.column_bounds(i)[-1] for i in range(len(layout.layer_ids))]
    print(f"rows of the published tables: {needed}")
    assert needed == config.engram_num_embeddings


def compare_table(module, layout):
    """Rows of a table in e4m3 with a power of two for each block of columns."""
    generator = torch.Generator().manual_seed(SEED)
    # SGLang wants exactly the rows that hashes reach; the golden's table has a few more.
    count, dim = layout.column_bounds(0)[-1], layout.head_dim
    table = module.EngramEmbedding(count, dim, 1, layout.column_bounds(0))
    codes = torch.randn((count, dim), generator=generator).to(torch.float8_e4m3fn)
    exponents = torch.randint(-9, 3, (count, dim // BLOCK), generator=generator)
    table.weight.copy_(codes)
    table.scale.copy_((exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu))
    wanted = torch.randint(0, count, (50, 6), generator=generator)
    theirs = table(wanted).float()
    scales = torch.exp2(exponents.float()).repeat_interleave(BLOCK, 1)
    assert torch.equal(theirs, (codes.float() * scales)[wanted])
    print("rows of a table in FP8: the same")


def make_engrams(module, config, layout, weights):
    """Its module of each layer with the golden's numbers, in float64."""
    engrams = {}
    for layer in layout.layer_ids:
        with mock.patch.object(module, "EngramEmbedding", torch.nn.Identity):
            engram = module.Engram(config, layer, layout)
        engram.embed.staged_by_scheduler = False
        name = f"layers.{layer}.engram"
        table = weights[f"{name}.embed.weight"].double()
        engram.embed_rows = lambda ids, batch, cp, table=table: table[ids]
        engram.wkv.weight.data = weights[f"{name}.wkv.weight"].double()
        engram.q_weight.data = weights[f"{name}.q_weight"].double()
        engram.k_weight.data = weights[f"{name}.k_weight"].double()
        engrams[name] = engram
    return engrams


def main(golden_folder, sglang_folder):
    module = load_engram(sglang_folder)
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    golden = importlib.import_module("deepseek_v41_golden")
    config = types.SimpleNamespace(**golden.TEXT)
    layout = module.EngramLayout.from_config(config)
    folder = pathlib.Path(golden_folder)
    weights = load_file(folder / "model.safetensors")
    stored = load_file(folder / "golden.safetensors")
    tokens = stored["tokens"].tolist()
    compare_rows(module, golden, config, tokens)
    compare_sizes(module)
    compare_table(module, layout)

    engrams = make_engrams(module, config, layout, weights)
    worst = [0.0]

    class Published(golden.Program):
        """The numpy program with SGLang's Engram."""

        def engram(self, p, streams, rows):
            own = super().engram(p, streams, rows)
            theirs = engrams[p](torch.from_numpy(streams), torch.from_numpy(rows),
                                input_ids=torch.tensor(tokens)).numpy()
            worst[0] = max(worst[0], np.abs(theirs - own).max() / np.abs(own).max())
            return theirs

    numbers = {name: golden.to_bf16(values.float().numpy()) for name, values in weights.items()}
    logits = Published(numbers).run(tokens)[0]
    off = np.abs(logits - stored["logits"].numpy()).max()
    print(f"gate: off by {worst[0]:.1e} of the largest number; the golden's logits: by {off:.1e}")
    assert worst[0] < 1e-6 and off < 1e-4


if __name__ == "__main__":
    main(*sys.argv[1:])
