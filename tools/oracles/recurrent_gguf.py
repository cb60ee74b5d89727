#!/usr/bin/env python3
"""Small GGUF files of models with Kimi delta attention or Mamba-2, and transformers' logits.

As family_gguf.py, for architectures whose converter also splits, turns and maps tensors: decays
become rates, kv_b_proj two stacks, fused matrices two, and rows of Granite's q and k change places.

usage: recurrent_gguf.py MODELS_FOLDER TARGET_FOLDER FAMILY...
       (gguf 0.19, transformers 5.17, torch 2.11, safetensors)
"""
import json
import pathlib
import re
import sys

import gguf
import numpy as np
from family_gguf import add_tensors, coded, finish
from safetensors.torch import load_file

SIGMOID = gguf.ExpertGatingFuncType.SIGMOID
SCAN = [(r"(?:mamba|mixer)\.(in|out)_proj", r"ssm_\1"), (r"(?:mamba|mixer)\.conv1d", "ssm_conv1d"),
        (r"(?:mamba|mixer)\.A_log", "ssm_a"), (r"(?:mamba|mixer)\.D$", "ssm_d"),
        (r"(?:mamba|mixer)\.dt_bias", "ssm_dt.bias"), (r"(?:mamba|mixer)\.norm", "ssm_norm")]
NAMES = {
    "kimi_linear": [
        (r"self_attn\.([qkv])_conv1d", r"ssm_conv1d_\1"),
        (r"self_attn\.([fg])_([ab])_proj", r"ssm_\1_\2"), (r"self_attn\.b_proj", "ssm_beta"),
        (r"self_attn\.A_log", "ssm_a"), (r"self_attn\.dt_bias", "ssm_dt.bias"),
        (r"self_attn\.o_norm", "ssm_norm"),
        (r"self_attn\.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
        (r"self_attn\.kv_a_layernorm", "attn_kv_a_norm"), (r"self_attn\.([kv])_b", r"attn_\1_b"),
        (r"block_sparse_moe\.experts\.w1", "ffn_gate_exps"),
        (r"block_sparse_moe\.experts\.w3", "ffn_up_exps"),
        (r"block_sparse_moe\.experts\.w2", "ffn_down_exps"),
        (r"block_sparse_moe\.gate\.e_score_correction_bias", "exp_probs_b.bias"),
        (r"block_sparse_moe\.gate\.", "ffn_gate_inp."),
        (r"block_sparse_moe\.shared_experts\.(gate|up|down)_proj", r"ffn_\1_shexp"),
        (r"block_sparse_moe\.(gate|up|down)_proj", r"ffn_\1")],
    "granite": SCAN + [
        (r"block_sparse_moe\.(gate|up)_linear", r"ffn_\1_exps"),
        (r"block_sparse_moe\.output_linear", "ffn_down_exps"),
        (r"block_sparse_moe\.router\.layer", "ffn_gate_inp"),
        (r"shared_mlp\.(gate|up)_linear", r"ffn_\1_shexp"),
        (r"shared_mlp\.output_linear", "ffn_down_shexp")],
    "nemotron_h": SCAN + [
        (r"backbone\.embeddings", "token_embd"), (r"backbone\.norm_f", "output_norm"),
        (r"backbone\.layers\.(\d+)\.norm", r"blk.\1.attn_norm"),
        (r"backbone\.layers\.", "model.layers."),
        (r"mixer\.([qkvo])_proj", r"self_attn.\1_proj"),
        (r"mixer\.fc1_latent_proj", "ffn_latent_down"),
        (r"mixer\.fc2_latent_proj", "ffn_latent_up"),
        (r"mixer\.gate\.e_score_correction_bias", "exp_probs_b.bias"),
        (r"mixer\.gate\.", "ffn_gate_inp."),
        (r"mixer\.experts\.(up|down)_proj", r"ffn_\1_exps"),
        (r"mixer\.shared_experts\.(up|down)_proj", r"ffn_\1_shexp")],
}
USUAL = [
    (r"model\.embed_tokens", "token_embd"), (r"model\.norm", "output_norm"),
    (r"lm_head", "output"), (r"input_layernorm", "attn_norm"),
    (r"post_attention_layernorm", "ffn_norm"), (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.o_proj", "attn_output"), (r"model\.layers\.(\d+)\.", r"blk.\1.")]


def common(w, c, layers):
    w.add_block_count(layers)
    w.add_embedding_length(c["hidden_size"])
    w.add_layer_norm_rms_eps(c.get("rms_norm_eps", c.get("layer_norm_epsilon")))
    w.add_vocab_size(c["vocab_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_expert_used_count(c.get("num_experts_per_tok", c.get("num_experts_per_token")))


def kimi_linear(w, c):
    common(w, c, c["num_hidden_layers"])
    w.add_context_length(c["model_max_length"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count_kv([1 if t == "full_attention" else 0 for t in c["layer_types"]])
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_kda_head_dim(c["linear_head_dim"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_expert_count(c["num_experts"])
    w.add_expert_gating_func(SIGMOID)
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_leading_dense_block_count(c["mlp_layer_types"].index("sparse"))
    w.add_expert_weights_scale(c["routed_scaling_factor"])


def granite(w, c):
    common(w, c, c["num_hidden_layers"])
    is_hybrid = c["model_type"] == "granitemoehybrid"
    w.add_context_length(2**20 if is_hybrid else c["max_position_embeddings"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_attention_scale(c["attention_multiplier"])
    w.add_embedding_scale(c["embedding_multiplier"])
    w.add_residual_scale(c["residual_multiplier"])
    w.add_logit_scale(c["logits_scaling"])
    w.add_expert_count(c["num_local_experts"])
    if "shared_intermediate_size" in c:
        w.add_expert_shared_feed_forward_length(c["shared_intermediate_size"])
    if not is_hybrid:
        w.add_head_count_kv(c["num_key_value_heads"])
        return
    w.add_head_count_kv([c["num_key_value_heads"] if t == "full_attention" else 0
                         for t in c["layer_types"]])
    w.add_rope_scaling_finetuned(False)
    w.add_ssm_conv_kernel(c["mamba_d_conv"])
    w.add_ssm_state_size(c["mamba_d_state"])
    w.add_ssm_group_count(c["mamba_n_groups"])
    w.add_ssm_inner_size(c["mamba_n_heads"] * c["mamba_d_head"])
    w.add_ssm_time_step_rank(c["mamba_n_heads"])


def nemotron_h(w, c):
    types = c["layers_block_type"]
    common(w, c, len(types))
    w.add_context_length(2**20)
    w.add_feed_forward_length([c["moe_intermediate_size"] if t == "moe" else 0 for t in types])
    w.add_head_count_kv([c["num_key_value_heads"] if t == "full_attention" else 0 for t in types])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_rope_scaling_finetuned(False)
    w.add_ssm_conv_kernel(c["conv_kernel"])
    w.add_ssm_state_size(c["ssm_state_size"])
    w.add_ssm_group_count(c["n_groups"])
    w.add_ssm_inner_size(c["mamba_num_heads"] * c["mamba_head_dim"])
    w.add_ssm_time_step_rank(c["mamba_num_heads"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_feed_forward_length(c["moe_shared_expert_intermediate_size"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_group_count(c["n_group"])
    w.add_moe_latent_size(c["moe_latent_size"])


ARCHITECTURES = {
    "kimi_linear": ("kimi-linear", kimi_linear), "granitemoeshared": ("granitemoe", granite),
    "granitemoehybrid": ("granitehybrid", granite),
    "nemotron_h_latent": ("nemotron_h_moe", nemotron_h),
}


class Tensors:
    """The converter's parts of a tensor, and the tensor that these, once decoded, are."""

    def __init__(self, config):
        self.config = config
        self.is_granite = config["model_type"].startswith("granite")
        self.norm_rows = config.get("n_groups", config.get("mamba_n_groups", 1))

    def heads(self, name):
        key = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
        return self.config[key]

    def parts(self, name, value):
        c = self.config
        if name.endswith("A_log"):
            rows = (1, 1, -1, 1) if value.ndim == 4 else (-1, 1)
            return {name: -np.exp(value).reshape(rows)}
        if re.search(r"(mamba|mixer)\.D$", name):
            return {name: value.reshape(-1, 1)}
        if re.search(r"(mamba|mixer)\.norm\.weight$", name):
            return {name: value.reshape(self.norm_rows, -1)}
        if re.search(r"[qkv]_conv1d", name):
            return {name: value.reshape(1, value.shape[0], 1, -1)}
        if name.endswith("conv1d.weight"):
            return {name: value.reshape(value.shape[0], -1)}
        if name.endswith("kv_b_proj.weight"):
            heads = value.reshape(c["num_attention_heads"], -1, value.shape[-1])
            k, v = np.split(heads, [c["qk_nope_head_dim"]], axis=1)
            return {name.replace("kv_b_proj", "k_b"): np.ascontiguousarray(k.swapaxes(1, 2)),
                    name.replace("kv_b_proj", "v_b"): np.ascontiguousarray(v)}
        if name.endswith("input_linear.weight"):
            gate, up = np.split(value, 2, axis=-2)
            return {name.replace("input", "gate"): gate, name.replace("input", "up"): up}
        if self.is_granite and re.search(r"[qk]_proj", name):
            pairs = value.reshape(self.heads(name), 2, -1, value.shape[-1])
            return {name: np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(value.shape)}
        return {name: value}

    def joined(self, name, parts, shape):
        parts = list(parts.values())
        if name.endswith("A_log"):
            return np.log(-parts[0]).reshape(shape)
        if name.endswith("kv_b_proj.weight"):
            return np.concatenate([parts[0].swapaxes(1, 2), parts[1]], axis=1).reshape(shape)
        if name.endswith("input_linear.weight"):
            return np.concatenate(parts, axis=-2)
        if self.is_granite and re.search(r"[qk]_proj", name):
            pairs = parts[0].reshape(self.heads(name), -1, 2, shape[-1])
            return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(shape)
        return parts[0].reshape(shape)


def stored(name, value):
    """As family_gguf.coded(), but for small tensors that files keep in F32."""
    small = ("ssm_conv1d", "ssm_norm", "ssm_a", "ssm_d")
    if any(part in name for part in small):
        return value, None, value
    return coded(name, value)


def main(models, target, families):
    for family in families:
        source = pathlib.Path(models) / family
        config = json.loads((source / "config.json").read_text())
        name, keys = ARCHITECTURES[family]
        renamed = NAMES["granite" if keys is granite else keys.__name__] + USUAL
        folder = pathlib.Path(target) / f"gguf-{family}"
        folder.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(folder / "model.gguf", name)
        writer.add_quantization_version(2)
        keys(writer, config)

        def to_gguf(hf_name, renamed=renamed):
            for pattern, to in renamed:
                hf_name = re.sub(pattern, to, hf_name)
            return hf_name

        decoded = add_tensors(writer, load_file(source / "model.safetensors"), Tensors(config),
                              to_gguf, stored)
        finish(writer, folder, family, config, decoded)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
