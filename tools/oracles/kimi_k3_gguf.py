#!/usr/bin/env python3
"""A GGUF file of Kimi-K3, with the logits of the checkpoint that it is made of.

Takes the random checkpoint of tests/golden/models/kimi_k3 and writes it with llama.cpp's Python
package as llama.cpp's converter does: names, keys, one vector of the two that score states, rates
of decays, keys and values of latents apart. Matrices stay BF16, so that the golden of the
checkpoint is that of the file.

usage: kimi_k3_gguf.py MODEL_FOLDER TARGET_FOLDER
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
    (r"^language_model\.", ""), (r"^model\.embed_tokens", "token_embd"),
    (r"^model\.norm", "output_norm"), (r"^lm_head", "output"),
    (r"^model\.layers\.(\d+)\.", r"blk.\1."), (r"input_layernorm", "attn_norm"),
    (r"post_attention_layernorm", "ffn_norm"), (r"self_attn\.([qkv])_conv1d", r"ssm_conv1d_\1"),
    (r"self_attn\.f_([ab])_proj", r"ssm_f_\1"), (r"self_attn\.b_proj", "ssm_beta"),
    (r"self_attn\.A_log", "ssm_a"), (r"self_attn\.dt_bias", "ssm_dt.bias"),
    (r"self_attn\.o_norm", "ssm_norm"), (r"self_attn\.o_proj", "attn_output"),
    (r"self_attn\.([qkv])_proj", r"attn_\1"), (r"self_attn\.q_a_proj", "attn_q_a"),
    (r"self_attn\.q_b_proj", "attn_q_b"), (r"self_attn\.q_a_layernorm", "attn_q_a_norm"),
    (r"self_attn\.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    (r"self_attn\.kv_a_layernorm", "attn_kv_a_norm"), (r"mlp\.(gate|up|down)_proj", r"ffn_\1"),
    (r"block_sparse_moe\.shared_experts\.(gate|up|down)_proj", r"ffn_\1_shexp"),
    (r"block_sparse_moe\.routed_expert_(down|up)_proj", r"ffn_routed_\1"),
    (r"block_sparse_moe\.routed_expert_norm", "ffn_routed_norm"),
    (r"block_sparse_moe\.gate\.e_score_correction_bias", "exp_probs_b.bias"),
    (r"block_sparse_moe\.gate", "ffn_gate_inp"),
]
SCORES = {"self_attention_res": "attn_res_score", "mlp_res": "ffn_res_score",
          "output_attn_res": "output_res_score"}
EXPERTS = {"w1": "gate", "w2": "down", "w3": "up"}


def write_keys(w, c):
    linear = c["linear_attn_config"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv([1 if i + 1 in linear["full_attn_layers"] else 0
                         for i in range(c["num_hidden_layers"])])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_value_length(c["kv_lora_rank"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_ssm_conv_kernel(linear["short_conv_kernel_size"])
    w.add_expert_count(c["num_experts"])
    w.add_expert_used_count(c["num_experts_per_token"])
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["moe_renormalize"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_uint32("kimi-k3.kda.head_dim", linear["head_dim"])
    w.add_float32("kimi-k3.kda.gate_lower_bound", linear["gate_lower_bound"])
    w.add_uint32("kimi-k3.expert_latent_length", c["routed_expert_hidden_size"])
    w.add_uint32("kimi-k3.attn_res.block_size", c["attn_res_block_size"])
    w.add_float32("kimi-k3.activation.situ_beta", c["activation_situ_beta"])
    w.add_float32("kimi-k3.activation.situ_linear_beta", c["activation_situ_linear_beta"])
    w.add_string("tokenizer.ggml.model", "no_vocab")


def add(w, name, values):
    values = np.ascontiguousarray(values, np.float32)
    if values.ndim == 1 or "conv1d" in name or "ffn_gate_inp" in name:
        w.add_tensor(name, values)
        return
    w.add_tensor(name, gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16),
                 raw_dtype=gguf.GGMLQuantizationType.BF16)


def stored_name(name):
    for pattern, new in NAMES:
        name = re.sub(pattern, new, name)
    return name


def write_tensor(w, c, tensors, name, values):
    """One tensor; the parts of a stack and of a product are written with the first of them."""
    stored = stored_name(name)
    score = next((s for s in SCORES if f"{s}_norm" in name), None)
    if any(f"{s}_proj" in name for s in SCORES):
        return
    if score:
        product = values * tensors[name.replace("_norm", "_proj")].reshape(-1)
        add(w, stored.replace(f"{score}_norm", SCORES[score]).removeprefix("model."), product)
    elif ".experts." in name:
        if ".experts.0." not in name:
            return
        part = name.split(".")[-2]
        stack = [tensors[name.replace(".experts.0.", f".experts.{e}.")]
                 for e in range(c["num_experts"])]
        block = stored.split(".block_sparse_moe")[0]
        add(w, f"{block}.ffn_{EXPERTS[part]}_exps.weight", np.stack(stack))
    elif "kv_b_proj" in name:
        heads = values.reshape(c["num_attention_heads"], -1, c["kv_lora_rank"])
        nope = c["qk_nope_head_dim"]
        block = stored.split(".self_attn")[0]
        add(w, f"{block}.attn_k_b.weight", heads[:, :nope].swapaxes(1, 2))
        add(w, f"{block}.attn_v_b.weight", heads[:, nope:])
    elif "self_attn.g_proj" in name:
        layer = int(name.split("layers.")[1].split(".")[0])
        is_linear = layer + 1 in c["linear_attn_config"]["kda_layers"]
        kind = "ssm_g" if is_linear else "attn_gate"
        add(w, stored.replace("self_attn.g_proj", kind), values)
    elif name.endswith("A_log"):
        add(w, stored, -np.exp(values[:c["linear_attn_config"]["num_heads"]]))
    else:
        add(w, stored, np.squeeze(values, 1) if "conv1d" in name else values)


def main(source, target):
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())["text_config"]
    tensors = read_safetensors(source / "model.safetensors")
    w = gguf.GGUFWriter(target / "model.gguf", "kimi-k3")
    w.add_name("tiny")
    write_keys(w, config)
    for name, values in tensors.items():
        write_tensor(w, config, tensors, name, values)
    finish(w, source, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
