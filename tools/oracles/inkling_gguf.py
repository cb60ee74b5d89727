#!/usr/bin/env python3
"""A GGUF file of Inkling, with the logits of the checkpoint that it is made of.

Takes the random checkpoint of tests/golden/models/inkling_text and writes it with llama.cpp's
Python package as llama.cpp's converter does: names, keys, gate and up apart, stacks of shared
experts. Matrices stay BF16, so that the golden of the checkpoint is that of the file.

usage: inkling_gguf.py MODEL_FOLDER TARGET_FOLDER
       (gguf 0.19, numpy)
"""
import json
import pathlib
import re
import sys

import gguf
import numpy as np

from dense_gguf import finish, read_safetensors

NAMES = [
    (r"^model\.llm\.embed\.", "token_embd."), (r"^model\.llm\.embed_norm", "token_embd_norm"),
    (r"^model\.llm\.norm", "output_norm"), (r"^model\.llm\.unembed", "output"),
    (r"^model\.llm\.layers\.(\d+)\.", r"blk.\1."), (r"\.attn\.w([qkv])_d[uv]", r".attn_\1"),
    (r"\.attn\.wr_du", ".attn_r"), (r"\.attn\.wo_ud", ".attn_output"),
    (r"\.attn\.([qk])_norm", r".attn_\1_norm"), (r"\.attn\.([kv])_sconv", r".shortconv_\1"),
    (r"\.attn\.rel_logits_proj\.proj", ".attn_rel_proj.weight"),
    (r"\.(attn|mlp)_sconv", r".shortconv_\1"), (r"\.mlp_norm", ".ffn_norm"),
    (r"\.mlp\.(gate\.)?global_scale", ".ffn_gscale.weight"),
    (r"\.mlp\.gate\.weight", ".ffn_gate_inp.weight"), (r"\.mlp\.gate\.bias", ".exp_probs_b.bias"),
    (r"\.mlp\.w2_md", ".ffn_down"), (r"\.mlp\.experts\.w2_weight", ".ffn_down_exps.weight"),
    (r"\.mlp\.shared_experts\.shared_w2_weight", ".ffn_down_shexp.weight"),
]
IN_TURN = {".mlp.w13_dn.weight": "ffn_{}.weight", ".mlp.experts.w13_weight": "ffn_{}_exps.weight",
           ".mlp.shared_experts.shared_w13_weight": "ffn_{}_shexp.weight"}


def write_keys(w, c):
    slides = [i in c["local_layer_ids"] for i in range(c["num_hidden_layers"])]
    w.add_context_length(c["model_max_length"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["dense_intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv([c["swa_num_key_value_heads" if s else "num_key_value_heads"]
                         for s in slides])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_sliding_window(c["sliding_window_size"])
    w.add_sliding_window_pattern(slides)
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_feed_forward_length(c["intermediate_size"])
    w.add_expert_weights_scale(c["route_scale"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    for key, name in (("d_rel", "d_rel"), ("rel_extent", "rel_extent"),
                      ("rel_extent_swa", "sliding_window_size"),
                      ("shortconv_kernel", "sconv_kernel_size"),
                      ("dense_block_count", "dense_mlp_idx"),
                      ("log_scaling_n_floor", "log_scaling_n_floor"),
                      ("unpadded_vocab_size", "unpadded_vocab_size")):
        w.add_uint32(f"inkling.{key}", c[name])
    w.add_float32("inkling.logit_scale_denom", c["logits_mup_width_multiplier"])
    w.add_float32("inkling.log_scaling_alpha", c["log_scaling_alpha"])
    w.add_string("tokenizer.ggml.model", "no_vocab")


def add(w, name, values):
    values = np.ascontiguousarray(values, np.float32)
    is_small = values.ndim == 1 or "shortconv" in name or "rel_proj" in name
    if is_small or "ffn_gate_inp" in name:
        w.add_tensor(name, values)
        return
    w.add_tensor(name, gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16),
                 raw_dtype=gguf.GGMLQuantizationType.BF16)


def main(source, target):
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    w = gguf.GGUFWriter(target / "model.gguf", "inkling")
    w.add_name("tiny")
    write_keys(w, json.loads((source / "config.json").read_text()))
    for name, values in read_safetensors(source / "model.safetensors").items():
        ending = next((e for e in IN_TURN if name.endswith(e)), None)
        stored = name
        for pattern, new in NAMES:
            stored = re.sub(pattern, new, stored)
        if ending is None:
            add(w, stored, np.squeeze(values, 1) if "_sconv" in name else values)
            continue
        block = stored.removesuffix(ending) + "."
        for i, part in enumerate(("gate", "up")):
            add(w, block + IN_TURN[ending].format(part), values[..., i::2, :])
    finish(w, source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
