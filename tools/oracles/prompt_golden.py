#!/usr/bin/env python3
"""Writes golden.safetensors of a tiny checkpoint anew for another prompt.

A random model may come so near to a tie of two experts or two keys that a cache in f16 decides
otherwise. Then the prompt is of no use to tests of such caches, and the checkpoint is not to blame.
transformers computes in float32 with eager attention from the weights as they are stored.

    python tools/oracles/prompt_golden.py tests/golden/models/deepseek_v32 --tokens 215,193,181

Made with transformers 5.17.0 and torch 2.11.
"""
import argparse
import re

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

GREEDY_TOKENS = 16
OPTIONS = {"dtype": torch.float32, "attn_implementation": "eager"}


def fused(first, second):
    return torch.cat([first, second], dim=-2)


def minimax_m3_weights(weights):
    """By transformers' names, which have gate and up in one matrix and experts in a stack."""
    named = {}
    for name, tensor in weights.items():
        name = name.removeprefix("language_model.")
        name = re.sub(r"self_attn\.index_([qk])_(proj|norm)", r"self_attn.indexer.\1_\2", name)
        name = name.replace("block_sparse_moe.e_score", "mlp.gate.e_score")
        named[name.replace("block_sparse_moe", "mlp")] = tensor.float()
    for name in [name for name in named if name.endswith("gate_proj.weight")]:
        before = name.removesuffix("gate_proj.weight")
        up = named.pop(before + "up_proj.weight")
        named[before + "gate_up_proj.weight"] = fused(named.pop(name), up)
    for name in [name for name in named if name.endswith("experts.0.w1.weight")]:
        before = name.removesuffix("0.w1.weight")
        pattern = re.escape(before) + r"\d+\.w1\.weight"
        experts = range(sum(1 for other in named if re.fullmatch(pattern, other)))

        def stack(matrix):
            return torch.stack([named.pop(f"{before}{e}.{matrix}.weight") for e in experts])

        named[before + "down_proj"] = stack("w2")
        named[before + "gate_up_proj"] = fused(stack("w1"), stack("w3"))
    return named


def load_model(folder):
    config = AutoConfig.from_pretrained(folder)
    if config.model_type.startswith("minimax_m3"):
        model = AutoModelForCausalLM.from_config(config, **OPTIONS)
        model.load_state_dict(minimax_m3_weights(load_file(f"{folder}/model.safetensors")))
        return model
    return AutoModelForCausalLM.from_pretrained(folder, **OPTIONS)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--tokens", required=True, help="the prompt's ids, commas between them")
    args = parser.parse_args()
    tokens = torch.tensor([[int(token) for token in args.tokens.split(",")]])
    path = f"{args.folder}/golden.safetensors"
    with safe_open(path, "pt") as old:
        metadata = old.metadata() or {}
    model = load_model(args.folder)
    model.eval()
    with torch.no_grad():
        output = model(tokens, output_hidden_states=True, use_cache=False)
        text = tokens
        margins = []
        for _ in range(GREEDY_TOKENS):
            logits = model(text, use_cache=False).logits[0, -1]
            best = logits.topk(2)
            margins.append(float(best.values[0] - best.values[1]))
            text = torch.cat([text, best.indices[:1][None]], dim=1)
    for key in metadata:
        if "margin" in key:
            metadata[key] = str(min(margins))
    save_file(
        {
            "tokens": tokens[0].to(torch.int32),
            "logits": output.logits[0].contiguous(),
            "hidden_states": torch.stack([state[0] for state in output.hidden_states]).contiguous(),
            "greedy": text[0, tokens.shape[1] :].to(torch.int32).contiguous(),
        },
        path,
        metadata=metadata,
    )
    print(f"{path}: {tokens.shape[1]} tokens, least margin of greedy ones {min(margins):.4f}")


if __name__ == "__main__":
    main()
