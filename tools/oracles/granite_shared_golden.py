#!/usr/bin/env python3
"""The golden of granitemoeshared: a tiny random model, with what transformers says of it.

Writes TARGET/{config.json, model.safetensors, golden.safetensors} as tests/golden/models has them.
Norms are drawn at random too; every number is one of bf16, so that the checkpoint stores what
computed.

usage: granite_shared_golden.py TARGET        (transformers 5.17, torch 2.11, safetensors)
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import GraniteMoeSharedConfig, GraniteMoeSharedForCausalLM

CONFIG = {
    "architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared",
    "attention_bias": False, "attention_multiplier": 0.2, "embedding_multiplier": 1.5,
    "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 64, "logits_scaling": 2.0,
    "max_position_embeddings": 512, "num_attention_heads": 4, "num_experts_per_tok": 2,
    "num_hidden_layers": 3, "num_key_value_heads": 2, "num_local_experts": 8,
    "residual_multiplier": 0.5, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "shared_intermediate_size": 96, "tie_word_embeddings": False, "vocab_size": 256,
}
# The names of tensors in transformers and in the published checkpoints.
PUBLISHED = {"experts.gate_up_proj": "input_linear.weight",
             "experts.down_proj": "output_linear.weight",
             "router.weight": "router.layer.weight"}
TOKENS = 48
GREEDY = 16


def published(name: str) -> str:
    for own, other in PUBLISHED.items():
        name = name.replace(own, other)
    return name


def draw(model) -> None:
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name else 0.0
            drawn = torch.randn(parameter.shape) * 0.09 + mean
            parameter.copy_(drawn.to(torch.bfloat16).float())


def main(target: str) -> None:
    apart = ("architectures", "model_type", "rope_theta")
    own = {key: value for key, value in CONFIG.items() if key not in apart}
    config = GraniteMoeSharedConfig(
        **own, rope_parameters={"rope_type": "default", "rope_theta": CONFIG["rope_theta"]})
    config._attn_implementation = "eager"
    model = GraniteMoeSharedForCausalLM(config).eval()
    draw(model)
    tokens = torch.randint(0, CONFIG["vocab_size"], (1, TOKENS),
                           generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        result = model(input_ids=tokens, output_hidden_states=True)
        ids, margin = tokens, float("inf")
        for _ in range(GREEDY):
            top = model(input_ids=ids).logits[0, -1].topk(2)
            margin = min(margin, (top.values[0] - top.values[1]).item())
            ids = torch.cat([ids, top.indices[:1][None]], dim=1)
    print("logits", result.logits.std().item(), "margin", margin)
    folder = pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2, sort_keys=True) + "\n")
    save_file({published(name): value.to(torch.bfloat16).contiguous()
               for name, value in model.state_dict().items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    source = f"transformers {transformers.__version__} torch {torch.__version__} float32 cpu eager"
    save_file({"tokens": tokens[0].int(), "logits": result.logits[0].float().contiguous(),
               "hidden_states": torch.stack([h[0] for h in result.hidden_states]).contiguous(),
               "greedy": ids[0, TOKENS:].int()},
              folder / "golden.safetensors",
              metadata={"source": source, "min_greedy_margin": f"{margin:.6f}"})


if __name__ == "__main__":
    main(sys.argv[1])
