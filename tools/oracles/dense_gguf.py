#!/usr/bin/env python3
"""GGUF files of models without experts, with the logits of the checkpoints that they are made of.

Takes the random checkpoint of tests/golden/models/FAMILY and writes it with llama.cpp's Python
package as llama.cpp's converter does: names, keys, rows of q and k in pairs, norms with their one.
Matrices stay BF16, so that the golden of the checkpoint is that of the file.

usage: dense_gguf.py MODELS_FOLDER TARGET_FOLDER FAMILY...
       (gguf 0.19, numpy)
"""
import json
import math
import pathlib
import re
import struct
import sys

import gguf
import numpy as np

TOKENS = 24
ARCHITECTURES = {"qwen3": "qwen3", "qwen3_5_text": "qwen35", "llama": "llama", "mistral": "llama",
                 "ministral3": "mistral3", "smollm3": "smollm3", "granite": "granite",
                 "gemma3_text": "gemma3", "olmo2": "olmo2", "olmo3": "olmo2",
                 "muse_glimmer_text": "muse-glimmer", "phi3": "phi3", "phi4": "phi3",
                 "gemma4_text_dense": "gemma4", "gemma4_text_e": "gemma4"}
PAIRED = ("llama", "mistral", "ministral3", "smollm3", "granite", "muse_glimmer_text")
GEMMA4 = ("gemma4_text_dense", "gemma4_text_e")
SANDWICHED = ("gemma3_text", "muse_glimmer_text") + GEMMA4
BEHIND = ("olmo2", "olmo3")
NAMES = [
    (r"^model\.language_model\.", "model."),
    (r"^model\.embed_tokens\.", "token_embd."), (r"^model\.norm", "output_norm"),
    (r"^lm_head", "output"), (r"^model\.layers\.(\d+)\.", r"blk.\1."),
    (r"input_layernorm", "attn_norm"), (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.([qk])_norm", r"attn_\1_norm"), (r"self_attn\.o_proj", "attn_output"),
    (r"self_attn\.gate_proj", "attn_gate"), (r"pre_feedforward_layernorm", "ffn_norm"),
    (r"post_feedforward_layernorm", "post_ffw_norm"),
    (r"^model\.embed_tokens_per_layer", "per_layer_token_embd"),
    (r"^model\.per_layer_model_projection", "per_layer_model_proj"),
    (r"^model\.per_layer_projection_norm", "per_layer_proj_norm"),
    (r"per_layer_input_gate", "inp_gate"), (r"per_layer_projection", "proj"),
    (r"post_per_layer_input_norm", "post_norm"), (r"layer_scalar", "layer_output_scale.weight"),
    (r"self_attn\.qkv_proj", "attn_qkv"), (r"mlp\.gate_up_proj", "ffn_up"),
    (r"mlp\.(gate|up|down)_proj", r"ffn_\1"), (r"linear_attn\.in_proj_qkv", "attn_qkv"),
    (r"linear_attn\.in_proj_z", "attn_gate"), (r"linear_attn\.in_proj_a", "ssm_alpha"),
    (r"linear_attn\.in_proj_b", "ssm_beta"), (r"linear_attn\.conv1d", "ssm_conv1d"),
    (r"linear_attn\.A_log", "ssm_a"), (r"linear_attn\.dt_bias", "ssm_dt.bias"),
    (r"linear_attn\.norm", "ssm_norm"), (r"linear_attn\.out_proj", "ssm_out"),
]


def read_safetensors(path):
    """Tensors by name; those of BF16 as the F32 that they are."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin:8 + length + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"I32": np.int32, "F32": np.float32}.get(entry["dtype"],
                                                                                  np.uint8))
        out[name] = values.reshape(entry["shape"]) if values.itemsize > 1 else values
    return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        kind = "I32" if values.dtype == np.int32 else "F32"
        header[name] = {"dtype": kind, "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def finish(writer, source, folder):
    """Closes the file, and writes the first tokens of the checkpoint's golden beside it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    golden = read_safetensors(source / "golden.safetensors")
    write_safetensors(folder / "golden.safetensors",
                      {name: golden[name][:TOKENS] for name in ("tokens", "logits")})


def in_pairs(rows, heads):
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def by_place(rows, config, width):
    """Value head g * r + j at place j * key_heads + g, `width` rows a head."""
    keys = config["linear_num_key_heads"]
    each = config["linear_num_value_heads"] // keys
    return rows.reshape(keys, each, width, -1).swapaxes(0, 1).reshape(rows.shape)


def converted(family, config, name, values):
    if family in PAIRED and re.search(r"self_attn\.[qk]_proj", name):
        heads = "num_attention_heads" if ".q_proj" in name else "num_key_value_heads"
        return in_pairs(values, config[heads])
    if family == "gemma3_text" and name.endswith("norm.weight"):
        # The file cannot say how scores are scaled: queries are.
        head_dim, scalar = config["head_dim"], config["query_pre_attn_scalar"]
        scale = math.sqrt(head_dim / scalar) if "q_norm" in name else 1
        return ((values + np.float64(1)) * scale).astype(np.float32)
    if family == "muse_glimmer_text" and name.endswith("layernorm.weight"):
        return values + np.float32(1)
    if family != "qwen3_5_text":
        return values
    if name.endswith("norm.weight") and "linear_attn" not in name:
        return values + np.float32(1)
    if "linear_attn" not in name:
        return values
    width = config["linear_value_head_dim"]
    split = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    if "in_proj_qkv" in name or "conv1d" in name:
        values = values.reshape(values.shape[0], -1)
        return np.concatenate([values[:split], by_place(values[split:], config, width)])
    if "in_proj_z" in name:
        return by_place(values, config, width)
    if "out_proj" in name:
        return by_place(values.T.copy(), config, width).T.copy()
    if "A_log" in name:
        return -np.exp(by_place(values, config, 1))
    return values if "norm" in name else by_place(values, config, 1)


def rope_factors(rope, dim):
    """Llama 3.1's divisors of frequencies."""
    original = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    factors = []
    for i in range(0, dim, 2):
        length = 2 * math.pi * rope["rope_theta"] ** (i / dim)
        smooth = min(max((original / length - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def write_windows(w, family, c):
    """Keys of families that have windows in some layers."""
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
    if family == "gemma3_text":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(c["rope_parameters"]["full_attention"]["factor"])
    if family == "muse_glimmer_text":
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
        w.add_logit_scale(c["output_multiplier"])
        ones = np.ones(c["head_dim"], np.float32)
        for layer in range(c["num_hidden_layers"]):
            w.add_tensor(f"blk.{layer}.attn_q_norm.weight", ones * np.float32(c["qk_scale_factor"]))
            w.add_tensor(f"blk.{layer}.attn_k_norm.weight", ones)
    if family == "olmo3":
        rope = c["rope_parameters"]["full_attention"]
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def write_gemma4(w, c):
    slides = [t == "sliding_attention" for t in c["layer_types"]]
    full = c["num_global_key_value_heads"] if c["attention_k_eq_v"] else c["num_key_value_heads"]
    shared = c["num_kv_shared_layers"]
    wide = [i >= len(slides) - shared and c["use_double_wide_mlp"] for i in range(len(slides))]
    rope = c["rope_parameters"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length([c["intermediate_size"] * (2 if double else 1) for double in wide])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv([c["num_key_value_heads"] if s else full for s in slides])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    for key in ("key_length", "value_length"):
        w.add_uint32(f"gemma4.attention.{key}", c["global_head_dim"])
        w.add_uint32(f"gemma4.attention.{key}_swa", c["head_dim"])
    w.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    w.add_float32("gemma4.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
    w.add_rope_dimension_count(c["global_head_dim"])
    w.add_uint32("gemma4.rope.dimension_count_swa", c["head_dim"])
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern(slides)
    w.add_final_logit_softcapping(c["final_logit_softcapping"])
    w.add_uint32("gemma4.attention.shared_kv_layers", shared)
    w.add_uint32("gemma4.embedding_length_per_layer_input", c["hidden_size_per_layer_input"])
    pairs = c["global_head_dim"] // 2
    turning = int(pairs * rope["full_attention"]["partial_rotary_factor"])
    w.add_tensor("rope_freqs.weight",
                 np.array([1.0] * turning + [1e30] * (pairs - turning), np.float32))


def write_keys(w, family, c):
    if family in GEMMA4:
        return write_gemma4(w, c)
    rope = c["rope_parameters"]
    rope = rope.get("full_attention", rope)
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if family == "mistral":
        w.add_sliding_window(c["sliding_window"])
    if family in ("gemma3_text", "olmo3", "muse_glimmer_text"):
        write_windows(w, family, c)
    if family == "ministral3":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if family in ("phi3", "phi4"):
        w.add_sliding_window(c["sliding_window"] or 0)
        original = rope.get("original_max_position_embeddings", c["max_position_embeddings"])
        w.add_rope_scaling_orig_ctx_len(original)
        if rope["rope_type"] == "longrope":
            scale = c["max_position_embeddings"] / original
            w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
            for kind in ("long", "short"):
                w.add_tensor(f"rope_factors_{kind}.weight",
                             np.array(rope[f"{kind}_factor"], np.float32))
    if family == "granite":
        w.add_attention_scale(c["attention_multiplier"])
        w.add_embedding_scale(c["embedding_multiplier"])
        w.add_residual_scale(c["residual_multiplier"])
        w.add_logit_scale(c["logits_scaling"])
    if family == "qwen3_5_text":
        w.add_rope_dimension_sections(rope["mrope_section"] + [0])
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"])
        w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
        w.add_full_attention_interval(4)
    if rope["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(rope, head_dim))


def main(models, target, families):
    for family in families:
        source = pathlib.Path(models) / family
        config = json.loads((source / "config.json").read_text())
        folder = pathlib.Path(target) / f"gguf-{family}"
        folder.mkdir(parents=True, exist_ok=True)
        w = gguf.GGUFWriter(folder / "model.gguf", ARCHITECTURES[family])
        w.add_name("tiny")
        write_keys(w, family, config)
        w.add_string("tokenizer.ggml.model", "no_vocab")
        is_behind = family == "qwen3_5_text" or family in SANDWICHED + BEHIND
        after = "post_attention_norm" if is_behind else "ffn_norm"
        for name, values in read_safetensors(source / "model.safetensors").items():
            stored = name
            for pattern, new in NAMES + [(r"post_attention_layernorm", after)]:
                stored = re.sub(pattern, new, stored)
            values = np.ascontiguousarray(converted(family, config, name, values), np.float32)
            if values.ndim == 1 or "conv1d" in name:
                w.add_tensor(stored, values)
            else:
                halves = (values.view(np.uint32) >> 16).astype(np.uint16)
                w.add_tensor(stored, halves.view(np.uint8),
                             raw_dtype=gguf.GGMLQuantizationType.BF16)
        finish(w, source, folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
