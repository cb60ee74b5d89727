#!/usr/bin/env python3
"""Draws models with random options of config.json and compares moeflux with transformers.

A draw begins with a model of tests/golden/models and gives some keys of its config other values
from random_config_options.py, or none. Weights are random: norms are not 1, biases not 0. The
logits that transformers computes in float64 must be met in every position, or an option be refused
by its name. Positions that a change of the weights by a few parts in a million moves are left out:
there a router or an index has two choices.

Half of the configs are written as transformers saves them, a quarter in the words before
transformers 5, a fifth leave out keys that have a default.

A draw that differs is repeated with fewer options, and its folder is kept in WORK_FOLDER.

With --gguf the program reads the GGUF file that llama.cpp's converter makes of the checkpoint.

usage: random_configs.py MOEFLUX WORK_FOLDER [FAMILY...] [--seeds FIRST:END:STEP] [--list]
           [--gguf LLAMA_CPP]
       (transformers 5.24, torch 2.11, safetensors)
"""
import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import traceback

import torch
import transformers
from safetensors.torch import load_file, save_file

from golden_models import (NO_AUTO, SEEING, SMALL_VISION, TEXT_PREFIX, TEXTS, in_float64, load)
from random_config_gguf import Converter, given
from random_config_options import ABSENT, FAMILIES, PER_LAYER, Draw, Follows

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/models"
NUM_TOKENS = 40
TOLERANCE = 1e-3  # of the largest logit of a position
TIED = 3e-4  # what a change of weights moves where nothing is near a choice
WIDTH = re.compile("size|dim|rank|heads|num_|n_|_mult|model_type|eps|rope|token_id|count|expand|"
                   "layers|step")
COMPUTED = re.compile("transformers_version|architectures|dtype|model_type|.*_token_id")


def base_config(family):
    config = json.loads((MODELS / family / "config.json").read_text())
    return {key: value for key, value in config.items()
            if not key.startswith("_") and key != "transformers_version"}


def drawn(family, seed, keep=None):
    """A config and what has been changed in it; `keep`: the only keys that may change."""
    draw = Draw(random.Random(f"{family} {seed}"), base_config(family))
    share = draw.one(0.1, 0.25, 0.5)
    changes = {}
    for key, values in FAMILIES[family].items():
        draw.random.seed(f"{family} {seed} {key}")  # whatever the other keys are
        chosen = draw.random.random() < share and (keep is None or key in keep)
        value = values(draw) if callable(values) else draw.one(*values)
        wrong = key in PER_LAYER and len(draw.config.get(key) or []) != draw.layers
        if not chosen and not wrong and not isinstance(values, Follows):
            continue
        if draw.config.get(key, ABSENT) == value:
            continue
        changes[key] = value
        if value is ABSENT:
            draw.config.pop(key, None)
        else:
            draw.config[key] = value
    for key in PER_LAYER.difference(FAMILIES[family]).intersection(draw.config):
        if len(draw.config[key] or []) != draw.layers:
            draw.config[key] = (draw.config[key] * draw.layers)[:draw.layers]
    return draw.config, changes


def without_some(config, seed):
    """Leaves out keys that say no width or count, in whose place classes have defaults."""
    chosen = random.Random(f"absent {seed}")
    return {key: value for key, value in config.items()
            if WIDTH.search(key) or chosen.random() < 0.75}


def in_old_words(config):
    """rope_theta and rope_scaling in the place of rope_parameters, as before transformers 5."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict) or any(isinstance(v, dict) or v is None for v in rope.values()):
        return config
    rope = dict(rope)
    old = {key: value for key, value in config.items() if key != "rope_parameters"}
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            old[key] = rope.pop(key)
    old["rope_scaling"] = rope if rope.get("rope_type", "default") != "default" else None
    return old


def randomise(module, seed, has_groups):
    """Numbers that matter everywhere and are far from what a model is initialised with."""
    generator = torch.Generator().manual_seed(seed)
    kept = module.state_dict()
    tensors = dict(module.named_parameters())
    tensors |= {name: buffer for name, buffer in module.named_buffers() if name in kept}
    for name, tensor in sorted(tensors.items()):
        noise = torch.randn(tensor.shape, generator=generator)
        if not tensor.is_floating_point():
            if name.endswith("tid2eid"):
                rows = noise.shape[0]
                picks = [torch.randperm(8, generator=generator)[:noise.shape[1]]
                         for _ in range(rows)]
                tensor.data = torch.stack(picks).to(tensor.dtype)
            continue
        if tensor.dim() < 2 or "conv" in name or "scale" in name:
            noise = tensor.data.float().nan_to_num(0.0, 0.0, 0.0).clamp(-4, 4) + 0.25 * noise
        elif "embed" not in name:
            wide = re.search(r"[.](q_proj|k_proj|q_b_proj|wq_b|gate|router)[.]", name + ".")
            noise *= (2.0 if wide else 1.0) / tensor.shape[-1] ** 0.5
        if name.endswith("balancing_biases"):
            noise[-1] = -1.0  # as ZAYA1 has it in transformers, whatever a file says
        if has_groups and "bias" in name:
            noise = noise.abs()  # experts outside of the groups count as 0 in transformers
        tensor.data = noise.to(tensor.dtype)


def with_pairs_together(tensor, heads, width):
    """Rows of heads whose last `width` are halves of pairs, as Hy4's published ones are."""
    rows = tensor.unflatten(0, (heads, -1))
    turning = rows[:, -width:].unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
    return torch.cat([rows[:, :-width], turning], 1).flatten(0, 1).contiguous()


def publish(folder, config):
    """Hy4's rows in the published order, which transformers does not read."""
    if config["model_type"] != "hy_v4":
        return
    heads = {"q_b_proj.weight": config["num_attention_heads"], "kv_a_proj_with_mqa.weight": 1,
             "indexer.wq_b.weight": config["index_n_heads"], "indexer.wk.weight": 1,
             "indexer.k_norm.weight": 1, "indexer.k_norm.bias": 1, "kv_a_proj_with_mqa.bias": 1}
    tensors = load_file(folder / "model.safetensors")
    for saved, published in {"hc_pre.hc_head.": "hc_head.", "linear_gate": "gate_proj",
                             "hc_pre.hc_attn_layer.": "hc_attn_layer.hc_pre.",
                             "hc_pre.hc_mlp_layer.": "hc_mlp_layer.hc_pre."}.items():
        tensors = {name if "self_attn" in name else name.replace(saved, published): tensor
                   for name, tensor in tensors.items()}
    for name in tensors:
        for part, count in heads.items():
            if name.endswith(part):
                tensors[name] = with_pairs_together(tensors[name], count,
                                                    config["qk_rope_head_dim"])
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def write_model(folder, config, seed):
    """Random weights under the names that are published, bf16."""
    model_type = config["model_type"]
    torch.manual_seed(seed)
    own = transformers.AutoConfig.from_pretrained(folder) if model_type not in SEEING else None
    if model_type in TEXTS:
        model = TEXTS[model_type][0]._from_config(own)
    elif model_type in SEEING:
        whole = transformers.AutoConfig.for_model(
            SEEING[model_type], text_config=dict(config), vision_config=SMALL_VISION)
        model = transformers.AutoModelForImageTextToText.from_config(whole)
    else:
        auto = NO_AUTO.get(model_type)
        model = auto(own) if auto else transformers.AutoModelForCausalLM.from_config(own)
    groups = (config.get(key) or 1 for key in ("n_group", "num_expert_group"))
    randomise(model, seed, max(groups) > 1)
    model.bfloat16().save_pretrained(folder / "saved")
    tensors = load_file(folder / "saved/model.safetensors")
    if model_type in TEXTS:
        tensors = {TEXT_PREFIX + name: tensor for name, tensor in tensors.items()}
        embedding = tensors[TEXT_PREFIX + "embed_tokens.weight"]
        tensors["lm_head.weight"] = torch.randn_like(embedding) / embedding.shape[1] ** 0.5
    tensors = {name: tensor for name, tensor in tensors.items()
               if not re.search("audio|vision|modal|visual|patch_merger|projector|mm_proj", name)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    saved = json.loads((folder / "saved/config.json").read_text())
    shutil.rmtree(folder / "saved")
    if seed % 2 == 0:  # what transformers writes, defaults and all
        saved = saved.get("text_config", saved) | {"model_type": model_type}
        (folder / "config.json").write_text(json.dumps(saved))


def reference(folder, tokens, shifts):
    """Logits, and the greatest change of each position by small changes of the weights."""
    with in_float64(), torch.no_grad():
        model = load(folder, torch.float64)
        logits = model(input_ids=tokens[None], use_cache=False).logits[0].float()
        kept = {name: tensor.clone() for name, tensor in model.named_parameters()}
        moved = torch.zeros(len(tokens))
        for shift in range(shifts):
            generator = torch.Generator().manual_seed(shift)
            for name, tensor in model.named_parameters():
                noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                tensor.data = kept[name] * (1 + 3e-6 * noise)
            other = model(input_ids=tokens[None], use_cache=False).logits[0].float()
            moved = moved.maximum(distance(other, logits))
    return logits, moved


def distance(logits, expected):
    return (logits - expected).abs().amax(1) / expected.abs().amax(1).clamp_min(1e-9)


def run(program, folder, model, tokens, seed):
    device = ["--device", "reference"] if seed % 3 == 0 else ["--device", "cpu", "--precision",
                                                              "f32"]
    chunk = ["--tune", "prefill-chunk=7"] if seed % 3 == 1 else []
    command = [program, "logits", "-m", str(model), *device, "--cache-type-k", "f32",
               "--cache-type-v", "f32", "-t", "1", *chunk,
               "--tokens", ",".join(map(str, tokens.tolist())),
               "-o", str(folder / "ours.safetensors")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return None, "HANGS"
    if done.returncode in (0, 1, 2) and done.returncode:
        return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "SILENT"
    if done.returncode:
        return None, f"CRASHES with {done.returncode}: {done.stderr[-300:]}"
    return load_file(folder / "ours.safetensors")["logits"], done.stderr.strip()


class Subject:
    """The program and, where it reads GGUF files, what makes them."""

    def __init__(self, program, converter=None):
        self.program, self.converter = program, converter

    def logits(self, folder, architectures, tokens, seed):
        model = folder
        if self.converter:
            try:
                model = self.converter.convert(folder, architectures, seed)
            except Exception as error:  # an option that the converter does not know
                at = traceback.extract_tb(error.__traceback__)[-1]
                return None, (f"UNCONVERTED {pathlib.Path(at.filename).name}:{at.lineno} "
                              f"{type(error).__name__}: {str(error)[:150]}")
        return run(self.program, folder, model, tokens, seed)


def judge(subject, folder, config, seed):
    """A word, and what there is to say about it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written = in_old_words(config) if seed % 4 == 1 else config
    written = without_some(written, seed) if seed % 5 == 3 else written
    written = given(written) if subject.converter else written
    (folder / "config.json").write_text(json.dumps(written))
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, config["vocab_size"], (NUM_TOKENS,), generator=generator)
    try:
        write_model(folder, written, seed)
        expected, moved = reference(folder, tokens, 1)
    except Exception as error:  # options that do not go together
        return "invalid", f"{type(error).__name__}: {str(error)[:150]}"
    if not expected.isfinite().all():
        return "invalid", "not finite"
    publish(folder, config)
    logits, said = subject.logits(folder, config["architectures"], tokens, seed)
    if logits is None and said.startswith("UNCONVERTED"):
        return "unconverted", said
    if logits is None:
        return ("DEFECT" if said.startswith(("HANGS", "CRASHES", "SILENT")) else "refused"), said
    if logits.shape != expected.shape:
        return "DIFFERS", f"shape {tuple(logits.shape)}, not {tuple(expected.shape)}"
    apart = distance(logits, expected)
    cosine = torch.nn.functional.cosine_similarity(logits.double(), expected.double())
    bad = ~((apart <= TOLERANCE) & (cosine >= 0.999999))
    if bad.any():  # ties are looked for where it matters
        _, moved = reference(folder, tokens, 8)
    bad &= moved < TIED
    far = f"{apart[moved < TIED].max().item() if (moved < TIED).any() else 0:.1e}"
    if not bad.any():
        return "same", f"{far}, {int((moved >= TIED).sum())} ties {said}".strip()
    return "DIFFERS", f"{far} in {int(bad.sum())} positions, from {bad.nonzero()[0].item()} {said}"


def smallest(subject, folder, family, seed, changes, verdict):
    """The changes that suffice for the verdict."""
    needed = set(changes)
    for key in list(changes):
        config, left = drawn(family, seed, needed - {key})
        if key not in left and judge(subject, folder, config, seed)[0] == verdict:
            needed -= {key}
    config, left = drawn(family, seed, needed)
    return left, judge(subject, folder, config, seed)[1]


def refused_by(said, changes):
    """The changes that a message names."""
    return [key for key, value in changes.items() if key in said or (
        isinstance(value, dict) and any(word in said for word in value))]


def examine(subject, folder, family, seed):
    """A draw until it runs: what is refused is put back. The last verdict and all refusals."""
    keep, refusals = None, []
    while True:
        config, changes = drawn(family, seed, keep)
        verdict, said = judge(subject, folder, config, seed)
        if verdict in ("same", "invalid", "DIFFERS", "DEFECT"):
            break
        refusals.append(said.replace(f"{folder}: ", ""))
        named, last = refused_by(said, changes), keep
        if subject.converter and (not named or verdict != "refused"):  # whose file has other names
            named = smallest(subject, folder, family, seed, changes, verdict)[0]
        keep = set(changes) - set(named)
        if not named or keep == last:
            if not subject.converter and not refused_by(said, config | base_config(family)):
                verdict = "UNNAMED"
            break
    if verdict in ("DIFFERS", "DEFECT"):
        changes, said = smallest(subject, folder, family, seed, changes, verdict)
    elif verdict != "UNNAMED":
        shutil.rmtree(folder)
    return verdict, said, changes, refusals


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--seeds", default="0:8")
    parser.add_argument("--list", action="store_true", help="keys of each family without options")
    parser.add_argument("--gguf", metavar="LLAMA_CPP", help="folder of llama.cpp's sources")
    options = parser.parse_args()
    if options.list:
        for family, table in FAMILIES.items():
            print(family, *sorted(key for key in base_config(family)
                                  if key not in table and not COMPUTED.fullmatch(key)))
        return
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    subject = Subject(options.program, options.gguf and Converter(options.gguf))
    for family in options.families or FAMILIES:
        words = collections.Counter()
        for seed in range(*map(int, options.seeds.split(":"))):
            folder = options.work / f"{family}-{seed}"
            verdict, said, changes, refusals = examine(subject, folder, family, seed)
            words.update([verdict] + ["refused"] * len(refusals))
            print(family, seed, verdict, said, {} if verdict == "same" else changes, *refusals,
                  sep=" | ", flush=True)
        print("=", family, dict(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
