#!/usr/bin/env python3
"""Small GGUF files of architectures, and what transformers computes from the weights in them.

Takes the random checkpoint of tests/golden/models/FAMILY, writes it with llama.cpp's Python package
under the names and keys of llama.cpp's converter, matrices in Q4_0 or Q8_0, decodes that file again
and runs transformers in float32 on what came out.

usage: family_gguf.py MODELS_FOLDER TARGET_FOLDER FAMILY...
       (gguf 0.19, transformers 5.17, torch 2.11, safetensors)
"""
import json
import pathlib
import re
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file

TOKENS = 24

USUAL = [
    (r"model\.embed_tokens", "token_embd"), (r"model\.norm", "output_norm"),
    (r"lm_head", "output"), (r"model\.layers\.(\d+)\.", r"blk.\1."),
    (r"input_layernorm", "attn_norm"), (r"post_attention_layernorm", "ffn_norm"),
    (r"self_attn\.([qkv])_proj", r"attn_\1"), (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
    (r"self_attn\.o_proj", "attn_output"), (r"self_attn\.(?:g|gate)_proj", "attn_gate"),
    (r"mlp\.(?:shared_experts|shared_mlp|shared_expert)\.(gate|up|down)_proj", r"ffn_\1_shexp"),
    (r"share_expert\.(gate|up|down)_proj", r"ffn_\1_shexp"),
    (r"(?:moe|mlp\.experts)\.(gate|up|down)_proj", r"ffn_\1_exps"),
    (r"mlp\.(gate|up|down)_proj", r"ffn_\1"),
    (r"(?:mlp\.router\.gate|mlp\.gate|moe\.gate)\.weight", "ffn_gate_inp.weight"),
    (r"\S*(?:e_score_correction_bias|expert_bias|router_bias)$", "exp_probs_b.bias"),
]
SANDWICH = [(r"post_attention_layernorm", "post_attention_norm"),
            (r"pre_mlp_layernorm", "ffn_norm"), (r"post_mlp_layernorm", "post_ffw_norm")]


def common(w, c):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_key_length(c.get("head_dim", c["hidden_size"] // c["num_attention_heads"]))
    w.add_value_length(c.get("head_dim", c["hidden_size"] // c["num_attention_heads"]))
    w.add_feed_forward_length(c["intermediate_size"])


def attention(w, c):
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])


def experts(w, c):
    w.add_expert_count(c.get("num_experts", c.get("n_routed_experts")))
    w.add_expert_used_count(c["num_experts_per_tok"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])


def dense_layers(c):
    return c["mlp_layer_types"].index("sparse")


def hy_v3(w, c):
    attention(w, c)
    experts(w, c)
    w.add_expert_shared_feed_forward_length(c["moe_intermediate_size"] * c["num_shared_experts"])
    w.add_expert_weights_norm(True)
    w.add_expert_weights_scale(c["router_scaling_factor"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def dots1(w, c):
    attention(w, c)
    experts(w, c)
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def exaone_moe(w, c):
    attention(w, c)
    experts(w, c)
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_expert_shared_feed_forward_length(c["moe_intermediate_size"] * c["num_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def afmoe(w, c):
    attention(w, c)
    experts(w, c)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_leading_dense_block_count(c["num_dense_layers"])
    w.add_expert_weights_norm(True)
    w.add_expert_weights_scale(c["route_scale"])
    w.add_sliding_window(c["sliding_window"])


def laguna(w, c):
    experts(w, c)
    w.add_head_count(c["num_attention_heads_per_layer"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])
    w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    w.add_expert_weights_norm(True)
    w.add_expert_weights_scale(c["moe_routed_scaling_factor"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_leading_dense_block_count(dense_layers(c))
    full, sliding = (c["rope_parameters"][k] for k in ("full_attention", "sliding_attention"))
    w.add_rope_dimension_count(int(c["head_dim"] * full["partial_rotary_factor"]))
    w.add_rope_dimension_count_swa(int(c["head_dim"] * sliding["partial_rotary_factor"]))
    w.add_rope_freq_base(full["rope_theta"])
    w.add_rope_freq_base_swa(sliding["rope_theta"])
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(full["factor"])
    w.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
    w.add_rope_scaling_attn_factors(full["attention_factor"])
    w.add_rope_scaling_yarn_beta_fast(full["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(full["beta_slow"])


def step35(w, c):
    experts(w, c)
    sliding = [kind == "sliding_attention" for kind in c["layer_types"]]
    w.add_head_count([c["num_sliding_attention_heads"] if s else c["num_attention_heads"]
                      for s in sliding])
    w.add_head_count_kv([c["num_key_value_heads"]] * len(sliding))
    w.add_sliding_window(c["sliding_window"])
    w.add_sliding_window_pattern(sliding)
    w.add_expert_shared_feed_forward_length(c["share_expert_dim"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c["moe_router_scaling_factor"])
    w.add_expert_weights_norm(True)
    w.add_leading_dense_block_count(dense_layers(c))
    w.add_moe_every_n_layers(1)
    w.add_swiglu_clamp_exp(c["swiglu_limits"])
    w.add_swiglu_clamp_shexp(c["swiglu_limits_shared"])
    full, local = (c["rope_parameters"][k] for k in ("full_attention", "sliding_attention"))
    w.add_rope_freq_base(full["rope_theta"])
    w.add_rope_freq_base_swa(local["rope_theta"])


def llama3_factors(rope, head_dim):
    """For each frequency of half a head, what it is divided by."""
    dims = int(head_dim * rope["partial_rotary_factor"])
    turns = rope["original_max_position_embeddings"] / (
        2 * np.pi * rope["rope_theta"] ** (np.arange(0, dims, 2) / dims))
    share = np.clip((turns - rope["low_freq_factor"]) /
                    (rope["high_freq_factor"] - rope["low_freq_factor"]), 0, 1)
    factors = 1 / ((1 - share) / rope["factor"] + share)
    return np.concatenate([factors, np.ones(head_dim // 2 - len(factors))]).astype(np.float32)


def ernie(w, c):
    attention(w, c)
    w.add_expert_count(c["moe_num_experts"])
    w.add_expert_used_count(c["moe_k"])
    w.add_interleave_moe_layer_step(c["moe_layer_interval"])
    w.add_leading_dense_block_count(c["moe_layer_start_index"])
    w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_expert_shared_count(c["moe_num_shared_experts"])
    w.add_expert_shared_feed_forward_length(c["intermediate_size"] // c["num_key_value_heads"])


ARCHITECTURES = {
    "hy_v3": ("hy_v3", hy_v3, []), "dots1": ("dots1", dots1, []),
    "exaone_moe": ("exaone-moe", exaone_moe, []), "afmoe": ("afmoe", afmoe, SANDWICH),
    "laguna": ("laguna", laguna, []), "step3p5": ("step35", step35, []),
    "ernie4_5_moe": ("ernie4_5-moe", ernie, []),
}


def gguf_name(name, own):
    if "correction_bias" in name or name.endswith(("expert_bias", "router_bias")):
        return re.sub(r"model\.layers\.(\d+)\..*", r"blk.\1.exp_probs_b.bias", name)
    for pattern, to in own + USUAL:
        name = re.sub(pattern, to, name)
    return name


def coded(name, value):
    """The stored bytes and what they decode to: matrices in blocks, all else in F32."""
    if value.ndim < 2 or "ffn_gate_inp" in name or value.shape[-1] % 32 != 0:
        return value, None, value
    kind = gguf.GGMLQuantizationType.Q8_0 if "attn" in name else gguf.GGMLQuantizationType.Q4_0
    blocks = quantize(value, kind)
    return blocks, kind, dequantize(blocks, kind)


def step_logits(config, tensors, tokens):
    """The logits of Step's text tower, which transformers has inside of a model that also sees."""
    from transformers.models.step3p7 import modeling_step3p7 as step
    from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
    text = Step3p7TextConfig(**config)
    text._attn_implementation = "eager"
    model = step.Step3p7TextModel(text).eval()
    state = {}
    for name, value in tensors.items():
        name = name.removeprefix("model.").replace(".share_expert.", ".mlp.shared_experts.")
        name = name.replace(".moe.router_bias", ".mlp.gate.e_score_correction_bias")
        state[name.replace(".moe.gate.", ".mlp.gate.")] = value
    head = state.pop("lm_head.weight")
    for name in [n for n in state if n.endswith(".moe.gate_proj.weight")]:
        parts = [state.pop(name.replace("gate_proj", part))
                 for part in ("gate_proj", "up_proj", "down_proj")]
        own = name.replace("moe.gate_proj.weight", "mlp.experts.")
        state[own + "gate_up_proj"] = torch.cat(parts[:2], dim=1)
        state[own + "down_proj"] = parts[2]
    model.load_state_dict(state, strict=True)
    return model(input_ids=tokens).last_hidden_state[0] @ head.T


def logits_of(config, tensors, tokens):
    if config["model_type"] == "step3p5":
        return step_logits(config, tensors, tokens)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        save_file(tensors, pathlib.Path(folder) / "model.safetensors", {"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()(input_ids=tokens).logits[0].float()


class Plain:
    """Tensors as the checkpoint has them, but norms of Step, which files have with their one."""

    def __init__(self, family):
        self.adds_one = family == "step3p5"

    def one(self, name):
        return np.float32(self.adds_one and name.endswith("norm.weight"))

    def parts(self, name, value):
        """The parts of a tensor in the file, by names of the checkpoint."""
        value = value + self.one(name)
        return {name: value.reshape(-1) if name.endswith("_bias") else value}

    def joined(self, name, parts, shape):
        """Undoes parts()."""
        return (parts[name] - self.one(name)).reshape(shape)


def add_tensors(writer, tensors, rules, name_of, store=coded):
    """Adds all tensors, experts one by one as stacks; returns what the file decodes to."""
    decoded, stacks = {}, {}
    for hf_name, tensor in tensors.items():
        value = tensor.float().numpy()
        match = re.match(r"(.*\.experts)\.(\d+)\.(.*)", hf_name)
        if match:
            stack = stacks.setdefault(f"{match[1]}.{match[3]}", {})
            stack[int(match[2])] = (hf_name, value)
            continue
        back = {}
        for part, own in rules.parts(hf_name, value).items():
            codes, kind, back[part] = store(name_of(part), own)
            writer.add_tensor(name_of(part), codes, raw_dtype=kind)
        joined = rules.joined(hf_name, back, value.shape)
        decoded[hf_name] = torch.from_numpy(np.ascontiguousarray(joined))
    for part, experts in stacks.items():
        rows = [experts[i] for i in sorted(experts)]
        codes, kind, back = store(name_of(part), np.stack([value for _, value in rows]))
        writer.add_tensor(name_of(part), codes, raw_dtype=kind)
        for (hf_name, _), own in zip(rows, back):
            decoded[hf_name] = torch.from_numpy(own.copy())
    return decoded


def finish(writer, folder, family, config, decoded):
    """Closes the file and writes what transformers makes of `decoded` beside it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = torch.randint(0, config["vocab_size"], (1, TOKENS),
                           generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = logits_of(config, decoded, tokens)
    save_file({"tokens": tokens[0].int(), "logits": logits.contiguous()},
              folder / "golden.safetensors",
              {"source": "transformers 5.17.0 torch 2.11 float32 cpu eager, gguf 0.19.0"})
    print(family, "logits", logits.std().item())


def main(models, target, families):
    for family in families:
        source = pathlib.Path(models) / family
        config = json.loads((source / "config.json").read_text())
        name, keys, own = ARCHITECTURES[family]
        folder = pathlib.Path(target) / f"gguf-{family}"
        folder.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(folder / "model.gguf", name)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_quantization_version(2)
        common(writer, config)
        keys(writer, config)
        decoded = add_tensors(writer, load_file(source / "model.safetensors"), Plain(family),
                              lambda hf_name, own=own: gguf_name(hf_name, own))
        if family == "step3p5":
            factors = llama3_factors(config["rope_parameters"]["full_attention"],
                                     config["head_dim"])
            writer.add_tensor("rope_freqs.weight", factors)
        finish(writer, folder, family, config, decoded)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
