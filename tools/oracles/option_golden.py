#!/usr/bin/env python3
"""Logits of random models of the tree that have other options in config.json.

Runs transformers in float32 and writes TARGET/NAME.json, with the model, its changed keys (null:
left out) and parts of names of tensors that are left out. TARGET/NAME.safetensors has tokens and
the logits of some positions. Tensors that an option needs and the model lacks are random:
TARGET/NAME.tensors.

usage: option_golden.py MODELS_FOLDER TARGET_FOLDER [NAME...]
       (transformers 5.24, torch 2.11, safetensors)
"""
import json
import pathlib
import re
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

from golden_models import NO_AUTO, SEEING, TEXTS, load

EVERY = 6  # positions

OPTIONS = {
    "afmoe_bias": ("afmoe", {"attention_bias": True}),
    "axk1_bias": ("axk1", {"attention_bias": True}),
    "afmoe_without_mup": ("afmoe", {"mup_enabled": False}),
    "bailing_hybrid_default_groups": ("bailing_hybrid",
                                      {"topk_group": None, "routed_scaling_factor": None}),
    # As transformers saves it, with a layer whose index is left out.
    "dots3_note_saved": ("dots3_note_text", {
        **{f"swa_{key}": None for key in (
            "head_dim", "kv_lora_rank", "num_attention_heads", "num_key_value_heads",
            "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "rope_theta", "v_head_dim")},
        "use_dsa": None, "first_k_dense_replace": None, "rope_theta": None,
        "moe_shared_expert_intermediate_size": None, "sliding_window_size": None,
        "shared_experts_intermediate_size": 48, "sliding_window": 16,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "layer_types": ["indexed_attention", "indexed_attention", "sliding_attention",
                        "full_attention"],
        "per_layer_config": {"2": {"head_dim": 48, "kv_lora_rank": 48, "num_attention_heads": 2,
                                   "num_key_value_heads": 2, "q_lora_rank": 32,
                                   "v_head_dim": 48}},
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 8e7,
                               "partial_rotary_factor": 0.0625},
            "indexed_attention": {"rope_type": "default", "rope_theta": 8e7,
                                  "partial_rotary_factor": 0.0625},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e4,
                                  "partial_rotary_factor": 1 / 3}}}, "layers.3.self_attn.indexer."),
    "dots1_windows": ("dots1", {"sliding_window": 7, "layer_types": [
        "sliding_attention", "full_attention"]}),
    "gpt_oss_alpha": ("gpt_oss", {"swiglu_alpha": 1.1, "swiglu_limit": 2.0}),
    "granite_swa_bases": ("granite_swa", {"layer_rope_theta": [500.0, 0, 10000.0, 1e6],
                                          "sliding_window": 7}),
    # Two groups of half as many states have matrices of the same shapes.
    "granitemoehybrid_groups": ("granitemoehybrid", {"mamba_n_groups": 2, "mamba_d_state": 8}),
    # As Granite 4.0 Micro is.
    "granitemoehybrid_dense": ("granitemoehybrid",
                               {"num_local_experts": 0, "num_experts_per_tok": 0},
                               "block_sparse_moe"),
    "granitemoehybrid_no_positions": ("granitemoehybrid", {"position_embedding_type": None}),
    "hy_v3_bias": ("hy_v3", {"attention_bias": True}),
    # Transformers looks for `truncate` beside the kinds of layers.
    "laguna_truncate": ("laguna", {"rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0, "beta_fast": 2.0,
                           "original_max_position_embeddings": 64, "truncate": False,
                           "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 1.0}}}),
    "mellum_yarn": ("mellum", {"rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0,
                           "original_max_position_embeddings": 16, "attention_factor": 0.9},
        "sliding_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}}),
    "mimo_v2_flash_bias": ("mimo_v2_flash", {"attention_bias": True}),
    "mimo_v2_flash_odd_share": ("mimo_v2_flash", {"rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5e6,
                           "partial_rotary_factor": 0.32},
        "sliding_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0,
                              "partial_rotary_factor": 0.32}}}),
    # As published, beside the same sliding_window, which counts a token's own.
    "mimo_v2_flash_window": ("mimo_v2_flash", {"sliding_window": 7, "sliding_window_size": 7}),
    "mistral4_bias": ("mistral4", {"attention_bias": True}),
    "mistral4_halves": ("mistral4", {"rope_interleave": False, "norm_topk_prob": False,
                                     "routed_scaling_factor": 2.5}),
    "mistral4_mscale": ("mistral4", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0, "beta_fast": 16.0,
        "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.3,
        "original_max_position_embeddings": 8, "partial_rotary_factor": 1 / 3}}),
    "mistral_large4_groups": ("mistral_large4_text", {"n_group": 4, "topk_group": 2,
                                                      "routed_scaling_factor": 1.5}),
    "mistral_large4_mscale": ("mistral_large4_text", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "beta_fast": 16.0,
        "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5,
        "original_max_position_embeddings": 16}}),
    "mistral_large4_plain": ("mistral_large4_text", {
        "final_logit_softcapping": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "muse_glimmer_yarn": ("muse_glimmer_text", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 16}}),
    # As Nemotron H and Nemotron Nano 2 are.
    "nemotron_h_dense": ("nemotron_h", {
        "layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba", "mlp"],
        "n_routed_experts": None, "num_experts_per_tok": None, "moe_intermediate_size": None,
        "moe_shared_expert_intermediate_size": None, "routed_scaling_factor": None,
        "n_group": None, "topk_group": None, "norm_topk_prob": None, "n_shared_experts": None},
        "experts.", "mixer.gate."),
    "qwen3_next_bias": ("qwen3_next", {"attention_bias": True}),
    "sarvam_moe_default_scale": ("sarvam_moe", {"routed_scaling_factor": None}),
    "smollm3_windows": ("smollm3", {"sliding_window": 7, "layer_types": [
        "sliding_attention", "full_attention", "full_attention", "sliding_attention"]}),
    "step3p5_dense": ("step3p5", {
        "num_hidden_layers": 1, "layer_types": ["full_attention"], "mlp_layer_types": ["dense"],
        "swiglu_limits": [1.0], "swiglu_limits_shared": [0.4]},
        "layers.1.", "layers.2.", "layers.3."),
    "step3p5_plain": ("step3p5", {
        "swiglu_limits": None, "swiglu_limits_shared": None, "moe_router_scaling_factor": None,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
                                  "partial_rotary_factor": 0.5}}}),
    # As transformers saves it, but for the key that says the same.
    "step3p5_saved": ("step3p5", {
        "query_pre_attn_scalar": 100, "num_sliding_attention_heads": None,
        "per_layer_config": {"1": {"num_attention_heads": 6}, "2": {"num_attention_heads": 6}}}),
    "step3p5_yarn": ("step3p5", {"sliding_window": 5, "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 20000.0, "factor": 4.0,
                           "original_max_position_embeddings": 16,
                           "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
                              "partial_rotary_factor": 1.0}}}),
}


def changed(config, changes):
    config = {**config, **changes}
    return {key: value for key, value in config.items()
            if value is not None or key not in changes}


def missing_tensors(folder):
    """Tensors that the config asks for and the folder lacks, at random."""
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    if model_type in TEXTS or model_type in SEEING:
        return {}
    auto = NO_AUTO.get(model_type, transformers.AutoModelForCausalLM)
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    state, seed = model.state_dict(), torch.Generator().manual_seed(7)
    prefix = "backbone." if model_type == "nemotron_h" else "model."  # of published files
    return {re.sub("^model[.]", prefix, name):
                torch.randn(state[name].shape, generator=seed).mul(0.3).bfloat16()
            for name in sorted(report["missing_keys"])}


def main(models, target, names):
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for name in names or OPTIONS:
        model, changes, *without = OPTIONS[name]
        source = pathlib.Path(models).resolve() / model
        tokens = load_file(source / "golden.safetensors")["tokens"]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config = json.loads((source / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(changed(config, changes)))
            shard = folder / "model.safetensors"
            own = {key: tensor for key, tensor in load_file(source / "model.safetensors").items()
                   if not any(part in key for part in without)}
            save_file(own, shard, {"format": "pt"})
            added = missing_tensors(folder)
            if added:
                save_file(added, target / f"{name}.tensors", {"format": "pt"})
                save_file({**own, **added}, shard, {"format": "pt"})
            with torch.no_grad():
                logits = load(folder, torch.float32)(input_ids=tokens[None].long()).logits[0]
        positions = torch.arange(5, len(tokens), EVERY)
        save_file({"tokens": tokens, "positions": positions.int(),
                   "logits": logits[positions].float().contiguous()},
                  target / f"{name}.safetensors")
        option = {"model": model, "changes": changes}
        if without:
            option["without"] = without
        text = json.dumps(option, indent=2)
        (target / f"{name}.json").write_text(text + "\n")
        print(name, logits.std().item())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
