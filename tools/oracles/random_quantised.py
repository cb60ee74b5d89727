#!/usr/bin/env python3
"""Draws models with random options and stores their matrices in random quantised formats.

A model of random_configs.py is written twice: with matrices as other tools store them, by the
formats' definitions, and with the numbers that those mean, as F32. Both must give the same logits.
Some matrices are left alone, and named in the list that the format has for them. Bits, groups,
orders, zero points and scales' types are drawn for a model, and for single modules where a format
has overrides.

usage: random_quantised.py MOEFLUX WORK_FOLDER [FAMILY...] [--seeds FIRST:END:STEP]
           [--formats NAME,...]
       random_quantised.py --golden TARGET_FOLDER [NAME...]
       (transformers 5.24, torch 2.11, safetensors)
"""
import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

import random_configs as configs
from quantised_formats import FORMATS, Mlx
from random_config_options import FAMILIES

TOLERANCE = 2e-4
PLAIN = re.compile("embed|norm|router|conv|(^|[.])gate[.]weight|_gate[.]weight|A_log|indexer|hc_|"
                   "attn_res|lm_head|[.]x_proj|dt_proj|rel_logits|[.]r_proj|ngram|ple_|[.]b_proj|"
                   "in_proj_[ab]|[.][fg]_[ab]_proj|lora|loop_|controllers")
STACK = re.compile("mlp[.]experts[.](gate_up|down)_proj$")
HEAD = re.compile("lm_head|embed_tokens.weight")  # which MLX quantises
# Small models whose matrices have other names or are fused.
SMALL = {"num_hidden_layers": 2, "vocab_size": 64}
GOLDENS = {"gptq_granitemoeshared": ("granitemoeshared", "gptq", SMALL | {"num_local_experts": 4}),
           "awq_lfm2_moe": ("lfm2_moe", "awq", SMALL | {
               "num_experts": 4, "num_dense_layers": 1, "layer_types": ["conv", "full_attention"]}),
           "fp8_static_mistral4": ("mistral4", "fp8", SMALL | {
               "num_hidden_layers": 1, "n_routed_experts": 4, "num_attention_heads": 2,
               "num_key_value_heads": 2, "hidden_size": 32, "q_lora_rank": 32}),
           "ct_int8_qwen3_moe": ("qwen3_moe", "int8", SMALL | {
               "num_hidden_layers": 1, "num_local_experts": 4, "moe_intermediate_size": 32,
               "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 32}),
           "ct_sarvam_moe": ("sarvam_moe", "packed", SMALL | {
               "n_routed_experts": 4, "num_experts": 4, "first_k_dense_replace": 1})}


FIXED = {"fp8_static_mistral4": {"kind": "static", "dtype": torch.bfloat16, "flat": True},
         "ct_int8_qwen3_moe": {"group": -1, "symmetric": True, "dtype": torch.bfloat16}}


def store_model(source, folder, form, seed, share=0.8):
    """Writes the two folders; the number of matrices that are stored in the format."""
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    plain, stored, left, count = {}, {}, [], 0
    for name, tensor in sorted(tensors.items()):
        plain[name] = tensor.float() if tensor.is_floating_point() else tensor
        stored[name] = tensor
        if tensor.dim() == 3 and STACK.search(name):
            form.draw.seed(f"{seed} {name}")
            made = form.store_stack(tensor.float(), name)
            if made is not None:
                stored |= {name + part: own.contiguous() for part, own in made[0].items()}
                plain[name] = made[1].contiguous()
                count += 1
            continue
        if tensor.dim() != 2 or not name.endswith(".weight"):
            continue
        if PLAIN.search(name) and not (HEAD.search(name) and isinstance(form, Mlx)):
            left.append(name.removesuffix(".weight"))
            continue
        module = name.removesuffix(".weight")
        # Experts of a layer have one format here.
        form.draw.seed(f"{seed} {re.sub('experts[.][0-9]+', 'experts', module)}")
        made = form.store(tensor.float(), module) if form.draw.random() < share else None
        if made is None:
            left.append(module)
            continue
        parts, values = made
        del stored[name]
        stored |= {f"{module}.{part}": own.contiguous() for part, own in parts.items()}
        plain[name] = values.float().contiguous()
        count += 1
    for name, own in (("plain", plain), ("stored", stored)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        save_file(own, folder / name / "model.safetensors", {"format": "pt"})
    (folder / "plain/config.json").write_text(json.dumps(config))
    section = form.config(left)
    config |= {key: section for key in form.keys}
    (folder / "stored/config.json").write_text(json.dumps(config))
    return count


def judge(program, folder, family, seed, names):
    draw = random.Random(f"quantised {family} {seed}")
    torch.manual_seed(seed)
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    source.mkdir(parents=True)
    config, _ = configs.drawn(family, seed)
    (source / "config.json").write_text(json.dumps(config))
    try:
        configs.write_model(source, config, seed)
    except Exception as error:  # options that do not go together
        return "invalid", str(error)[:100], ""
    configs.publish(source, config)
    name = draw.choice(names)
    form = FORMATS[name](draw)
    count = store_model(source, folder, form, seed)
    said = f"{name} {count} " + " ".join(
        f"{key}={value}" for key, value in vars(form).items()
        if key not in ("draw", "one", "targets", "sections", "dynamic"))
    if count == 0:
        return "none", said, ""
    tokens = torch.randint(3, config["vocab_size"], (24,))
    plain, why = configs.run(program, folder, folder / "plain", tokens, seed)
    if plain is None:
        return "refused", said, why
    own, why = configs.run(program, folder, folder / "stored", tokens, seed)
    if own is None:
        word = "DEFECT" if why.startswith(("HANGS", "CRASHES", "SILENT")) else "REFUSED"
        return word, said, why
    apart = configs.distance(own, plain)
    close = int((apart > TOLERANCE).sum())
    return "DIFFERS" if close else "same", said, f"{apart.max().item():.1e} in {close}"


def write_goldens(target, names):
    for name in names or GOLDENS:
        family, form, changes = GOLDENS[name]
        folder = target / name
        source = folder / "source"
        source.mkdir(parents=True)
        config = configs.base_config(family) | changes
        (source / "config.json").write_text(json.dumps(config))
        torch.manual_seed(3)
        configs.write_model(source, config, 3)
        draw = random.Random(name)
        made = FORMATS[form](draw)
        vars(made).update(FIXED.get(name, {}))
        store_model(source, folder, made, 3, 1)
        tokens = torch.randint(3, config["vocab_size"], (24,))
        with torch.no_grad():
            model = configs.load(folder / "plain", torch.float32)
            logits = model(input_ids=tokens[None]).logits[0]
        for file in ("config.json", "model.safetensors"):
            (folder / "stored" / file).rename(folder / file)
        for made in ("source", "plain", "stored"):
            shutil.rmtree(folder / made)
        save_file({"tokens": tokens.int(), "logits": logits.contiguous()},
                  folder / "golden.safetensors")
        print(name, f"deviation {logits.std():.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("work", type=pathlib.Path, nargs="?")
    parser.add_argument("families", nargs="*")
    parser.add_argument("--seeds", default="0:4")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--golden", metavar=("TARGET_FOLDER", "NAME"), nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if options.golden:
        return write_goldens(pathlib.Path(options.golden[0]), options.golden[1:])
    words = collections.Counter()
    for family in options.families or FAMILIES:
        for seed in range(*map(int, options.seeds.split(":"))):
            folder = options.work / f"{family}-{seed}"
            word, said, why = judge(options.program, folder, family, seed,
                                    options.formats.split(","))
            words[f"{said.split(' ')[0]} {word}"] += 1
            print(family, seed, word, said, why, sep=" | ", flush=True)
            if word in ("same", "none", "invalid", "refused"):
                shutil.rmtree(folder)
    print("=", dict(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
