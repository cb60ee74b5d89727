#!/usr/bin/env python3
"""Goldens of text towers: tiny random models that also see or hear, with transformers' logits.

Writes TARGET/qwen3_vl_moe_text and TARGET/qwen3_omni_moe_text as tests/golden/models has them.
Norms are drawn at random too. Experts are stored as the published Qwen3-VL has them, columns of
gate before columns of up; those of Qwen3-Omni one by one.

usage: tower_golden.py TARGET        (transformers 5.17, torch 2.11, safetensors)
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as omni_config
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as omni
from transformers.models.qwen3_vl_moe import configuration_qwen3_vl_moe as vl_config
from transformers.models.qwen3_vl_moe import modeling_qwen3_vl_moe as vl

TEXT = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu",
    "attention_bias": False,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5],
         "mrope_interleaved": True}
TOKENS = 48
GREEDY = 16


def build(kind: str):
    """The model whose forward takes token ids, its text model, and the published config."""
    torch.manual_seed(3)
    if kind == "qwen3_vl_moe_text":
        vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                  "out_hidden_size": 64, "patch_size": 2, "spatial_merge_size": 1,
                  "temporal_patch_size": 1, "num_position_embeddings": 4,
                  "deepstack_visual_indexes": [0], "in_channels": 3}
        config = vl_config.Qwen3VLMoeConfig(
            text_config=TEXT | {"rope_parameters": MROPE}, vision_config=vision)
        config._attn_implementation = "eager"
        model = vl.Qwen3VLMoeForConditionalGeneration(config)
        outer = {"architectures": ["Qwen3VLMoeForConditionalGeneration"],
                 "model_type": "qwen3_vl_moe", "tie_word_embeddings": False}
        return model, model.model.language_model, outer
    config = omni_config.Qwen3OmniMoeThinkerConfig(
        text_config=TEXT | {"rope_parameters": MROPE},
        vision_config={"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
                       "out_hidden_size": 64, "patch_size": 2, "spatial_merge_size": 1,
                       "temporal_patch_size": 1, "num_position_embeddings": 4,
                       "deepstack_visual_indexes": [0], "in_channels": 3},
        audio_config={"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2,
                      "encoder_ffn_dim": 16, "num_mel_bins": 8, "output_dim": 64,
                      "downsample_hidden_size": 4, "max_source_positions": 8})
    config._attn_implementation = "eager"
    model = omni.Qwen3OmniMoeThinkerForConditionalGeneration(config)
    return model, model.model, {"architectures": ["Qwen3OmniMoeForConditionalGeneration"],
                                "model_type": "qwen3_omni_moe"}


def draw(model) -> None:
    """bf16 numbers: what the checkpoint stores is what computes."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            drawn = torch.randn(parameter.shape) * 0.09 + mean
            parameter.copy_(drawn.to(torch.bfloat16).float())


def text_config(kind: str) -> dict:
    rope = {key: value for key, value in MROPE.items() if key != "rope_theta"}
    text = TEXT | {"model_type": kind, "rope_theta": MROPE["rope_theta"], "rope_scaling": rope}
    return text


def published(kind: str, state: dict) -> dict:
    """Names of the published checkpoints; of the towers beside, one tensor each."""
    tensors = {}
    omni_model = kind == "qwen3_omni_moe_text"
    for name, value in state.items():
        value = value.to(torch.bfloat16)
        if "visual" in name or "audio_tower" in name:
            if name.endswith(("visual.pos_embed.weight", "audio_tower.ln_post.weight")):
                tensors[("thinker." if omni_model else "") + name] = value
            continue
        if not omni_model:
            if ".experts." in name:
                value = value.transpose(1, 2).contiguous()
            tensors[name] = value
            continue
        name = "thinker." + name
        if ".experts.gate_up_proj" in name:
            for expert, both in enumerate(value):
                for part, rows in zip(("gate_proj", "up_proj"), both.chunk(2)):
                    own = name.replace("gate_up_proj", f"{expert}.{part}.weight")
                    tensors[own] = rows.contiguous().clone()
        elif ".experts.down_proj" in name:
            for expert, rows in enumerate(value):
                tensors[name.replace("down_proj", f"{expert}.down_proj.weight")] = rows.clone()
        else:
            tensors[name] = value
    return tensors


def main(target: str) -> None:
    for kind in ("qwen3_vl_moe_text", "qwen3_omni_moe_text"):
        model, text_model, outer = build(kind)
        model.eval()
        draw(model)
        folder = pathlib.Path(target) / kind
        folder.mkdir(parents=True, exist_ok=True)
        tokens = torch.randint(0, TEXT["vocab_size"], (1, TOKENS),
                               generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            hidden = text_model(input_ids=tokens, output_hidden_states=True).hidden_states
            logits = model(input_ids=tokens).logits
            ids, margin = tokens, float("inf")
            for _ in range(GREEDY):
                top = model(input_ids=ids).logits[0, -1].topk(2)
                margin = min(margin, (top.values[0] - top.values[1]).item())
                ids = torch.cat([ids, top.indices[:1][None]], dim=1)
        print(kind, "logits", logits.std().item(), "hidden states", len(hidden), "margin", margin)
        config = dict(outer)
        inner = {"text_config": text_config(kind), "vision_config": {"depth": 1}}
        if kind == "qwen3_omni_moe_text":
            config |= {"thinker_config": inner | {"model_type": "qwen3_omni_moe_thinker"},
                       "talker_config": {"num_code_groups": 16}}
        else:
            config |= inner
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        tensors = published(kind, model.state_dict())
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        save_file({"tokens": tokens[0].int(), "logits": logits[0].float().contiguous(),
                   "hidden_states": torch.stack([h[0] for h in hidden]).contiguous(),
                   "greedy": ids[0, TOKENS:].int()},
                  folder / "golden.safetensors",
                  metadata={"source": "transformers 5.17.0 torch 2.11 float32 cpu eager",
                            "min_greedy_margin": f"{margin:.6f}"})


if __name__ == "__main__":
    main(sys.argv[1])
