#!/usr/bin/env python3
"""GGUF files of families of late 2026, with the logits of the checkpoints that they are made of.

Takes the random checkpoint of tests/golden/models/FAMILY and writes it with llama.cpp's Python
package as llama.cpp's converter does: names, keys, stacks of experts, keys and values of latents
apart. Matrices stay BF16, so that the golden of the checkpoint is that of the file.

usage: late_gguf.py MODELS_FOLDER TARGET_FOLDER FAMILY...
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
    (r"^model\.(embed_tokens|word_embeddings)\.", "token_embd."), (r"^model\.norm", "output_norm"),
    (r"^model\.hc_head\.hc_head_(\w+)", r"output_hc_\1.weight"), (r"^lm_head", "output"),
    (r"^model\.layers\.(\d+)\.", r"blk.\1."), (r"\.input_layernorm", ".attn_norm"),
    (r"\.post_attention_layernorm", ".ffn_norm"), (r"\.self_attn\.([qkv])_proj", r".attn_\1"),
    (r"\.self_attn\.([qk])_norm", r".attn_\1_norm"), (r"\.self_attn\.o_proj", ".attn_output"),
    (r"\.attention\.query_key_value", ".attn_qkv"), (r"\.attention\.dense", ".attn_output"),
    (r"\.attention\.query_layernorm", ".attn_q_norm"),
    (r"\.attention\.key_layernorm", ".attn_k_norm"), (r"\.self_attn\.q_a_proj", ".attn_q_a"),
    (r"\.self_attn\.q_b_proj", ".attn_q_b"), (r"\.self_attn\.q_a_layernorm", ".attn_q_a_norm"),
    (r"\.self_attn\.kv_a_proj_with_mqa", ".attn_kv_a_mqa"),
    (r"\.self_attn\.kv_a_layernorm", ".attn_kv_a_norm"),
    (r"\.self_attn\.linear_gate", ".attn_gate"),
    (r"\.self_attn\.learnable_sink_param", ".attn_sinks.weight"),
    (r"\.self_attn\.indexer\.wq_b", ".indexer.attn_q_b"),
    (r"\.self_attn\.indexer\.wk", ".indexer.attn_k"),
    (r"\.self_attn\.indexer\.weights_proj", ".indexer.proj"),
    (r"\.self_attn\.indexer\.k_norm", ".indexer.k_norm"),
    (r"\.hc_attn_layer\.hc_pre\.hc_(\w+)", r".hc_attn_\1.weight"),
    (r"\.hc_mlp_layer\.hc_pre\.hc_(\w+)", r".hc_ffn_\1.weight"),
    (r"\.mlp\.gate\.(expert_bias|e_score_correction_bias)", ".exp_probs_b.bias"),
    (r"\.mlp\.gate\.weight", ".ffn_gate_inp.weight"),
    (r"\.mlp\.shared_experts\.(gate|up|down)_proj", r".ffn_\1_shexp"),
    (r"\.mlp\.(gate|up|down)_proj", r".ffn_\1"),
]
ARCHITECTURES = {"mellum": "mellum", "hy_v4": "hy_v4", "sarvam_moe": "bailingmoe2"}


def write_trunk(w, c):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_expert_count(c.get("n_routed_experts", c.get("num_local_experts")))
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_string("tokenizer.ggml.model", "no_vocab")


def write_heads(w, c):
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])


def write_mellum(w, c):
    write_heads(w, c)
    rope = c["rope_parameters"]
    w.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    w.add_float32("mellum.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])


def write_sigmoid(w, c):
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])


def write_sarvam_moe(w, c):
    write_heads(w, c)
    write_sigmoid(w, c)
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_expert_group_count(c["n_group"])
    w.add_expert_group_used_count(c["topk_group"])
    width = c["moe_intermediate_size"] * c["n_shared_experts"]
    w.add_expert_shared_feed_forward_length(width)


def write_hy_v4(w, c):
    write_sigmoid(w, c)
    w.add_head_count_kv(1)
    w.add_leading_dense_block_count(c["mlp_layer_types"].index("sparse"))
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_value_length(c["kv_lora_rank"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_swiglu_clamp_exp([c["swiglu_limit"]] * c["num_hidden_layers"])
    w.add_uint32("hy_v4.hyper_connection.count", c["hc_mult"])
    w.add_float32("hy_v4.hyper_connection.epsilon", c["hc_eps"])
    w.add_float32("hy_v4.hyper_connection.magnitude", c["hc_magnitude"])
    w.add_uint32("hy_v4.attention.indexer.head_count", c["index_n_heads"])
    w.add_uint32("hy_v4.attention.indexer.key_length", c["index_head_dim"])
    w.add_uint32("hy_v4.attention.indexer.top_k", c["index_topk"])
    w.add_array("hy_v4.attention.indexer.types", [t == "full" for t in c["indexer_types"]])


KEYS = {"mellum": write_mellum, "hy_v4": write_hy_v4, "sarvam_moe": write_sarvam_moe}


def add(w, name, values):
    values = np.ascontiguousarray(values, np.float32)
    if values.ndim == 1 or "ffn_gate_inp" in name or "hc_" in name:
        w.add_tensor(name, values)
        return
    w.add_tensor(name, gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16),
                 raw_dtype=gguf.GGMLQuantizationType.BF16)


def write_tensor(w, c, tensors, name, values):
    """One tensor; a stack is written with its first."""
    block = re.sub(r"^model\.layers\.(\d+)\..*", r"blk.\1.", name)
    part = name.split(".")[-2]
    if re.search(r"\.mlp\.experts\.\d+\.", name):
        if ".experts.0." not in name:
            return
        count = c.get("n_routed_experts", c.get("num_local_experts"))
        stack = [tensors[name.replace(".experts.0.", f".experts.{e}.")] for e in range(count)]
        add(w, f"{block}ffn_{part.removesuffix('_proj')}_exps.weight", np.stack(stack))
    elif name.endswith("mlp.experts.gate_up_proj"):
        for half, values_of in zip(("gate", "up"), np.split(values, 2, axis=1)):
            add(w, f"{block}ffn_{half}_exps.weight", values_of)
    elif name.endswith("mlp.experts.down_proj"):
        add(w, f"{block}ffn_down_exps.weight", values)
    elif "kv_b_proj" in name:
        heads = values.reshape(c["num_attention_heads"], -1, c["kv_lora_rank"])
        nope = c["qk_nope_head_dim"]
        add(w, f"{block}attn_k_b.weight", heads[:, :nope].swapaxes(1, 2))
        add(w, f"{block}attn_v_b.weight", heads[:, nope:])
    else:
        for pattern, new in NAMES:
            name = re.sub(pattern, new, name)
        add(w, name, values)


def main(models, target, families):
    for family in families:
        source = pathlib.Path(models) / family
        folder = pathlib.Path(target) / f"gguf-{family}"
        folder.mkdir(parents=True, exist_ok=True)
        config = json.loads((source / "config.json").read_text())
        tensors = read_safetensors(source / "model.safetensors")
        w = gguf.GGUFWriter(folder / "model.gguf", ARCHITECTURES[family])
        w.add_name("tiny")
        write_trunk(w, config)
        KEYS[family](w, config)
        for name, values in tensors.items():
            write_tensor(w, config, tensors, name, values)
        finish(w, source, folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
