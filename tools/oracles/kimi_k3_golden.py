#!/usr/bin/env python3
"""A random checkpoint of Kimi-K3 under the publisher's names, and what mlx-lm computes of it.

Weights are BF16 numbers; mlx-lm evaluates them in float32 on the CPU. Prompts are
drawn until, in the prompt and in its greedy text, the router's last chosen expert is clear of the
next one in every layer, so that another order of sums chooses the same.

usage: kimi_k3_golden.py TARGET_FOLDER
       (mlx 0.32.4, mlx-lm 0.32.2, numpy)
"""
import json
import pathlib
import struct
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import kimi_k3

SEED = 3
PROMPT = 48
GREEDY = 16
MARGIN = 1e-3
TEXT = {
    "activation_situ_beta": 1.5, "activation_situ_linear_beta": 2.5, "attn_res_block_size": 2,
    "first_k_dense_replace": 1, "hidden_act": "situ", "hidden_size": 64, "intermediate_size": 128,
    "kv_lora_rank": 32, "latent_moe_use_norm": True,
    "linear_attn_config": {
        "full_attn_layers": [3, 6], "gate_lower_bound": -5.0, "head_dim": 32,
        "kda_layers": [1, 2, 4, 5], "num_heads": 4, "short_conv_kernel_size": 4,
        "use_full_rank_gate": True},
    "max_position_embeddings": 512, "mla_use_nope": True, "mla_use_output_gate": True,
    "model_type": "kimi_linear", "moe_intermediate_size": 32, "moe_layer_freq": 1,
    "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "num_attention_heads": 4,
    "num_expert_group": 1, "num_experts": 8, "num_experts_per_token": 2, "num_hidden_layers": 6,
    "num_key_value_heads": 4, "num_nextn_predict_layers": 0, "num_shared_experts": 2,
    "q_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "rms_norm_eps": 1e-05,
    "routed_expert_hidden_size": 32, "routed_scaling_factor": 1.5, "tie_word_embeddings": False,
    "topk_group": 1, "topk_method": "noaux_tc", "use_grouped_topk": True, "v_head_dim": 32,
    "vocab_size": 256}
CONFIG = {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3",
          "bos_token_id": 1, "eos_token_id": 2, "text_config": TEXT, "tie_word_embeddings": False}


def random_weights(rng):
    """Numbers by the publisher's names; norms and biases differ from ones and zeros."""
    c, lin = TEXT, TEXT["linear_attn_config"]
    h, heads, width = c["hidden_size"], lin["num_heads"], lin["num_heads"] * lin["head_dim"]
    out = {}

    def matrix(name, rows, cols, gain=1.0):
        out[name] = rng.normal(0, gain / np.sqrt(cols), (rows, cols))

    def norm(name, size):
        out[name] = rng.uniform(0.6, 1.4, size)

    def network(name, size):
        matrix(f"{name}.gate_proj.weight", size, h, 2)
        matrix(f"{name}.up_proj.weight", size, h, 2)
        matrix(f"{name}.down_proj.weight", h, size, 2)

    def scores(name):
        norm(f"{name}_res_norm.weight", h)
        out[f"{name}_res_proj.weight"] = rng.normal(0, 0.15, (1, h))

    def kda(p):
        for part in "qkv":
            matrix(f"{p}.{part}_proj.weight", width, h)
            out[f"{p}.{part}_conv1d.weight"] = rng.normal(0, 0.5, (width, 1, 4))
        matrix(f"{p}.f_a_proj.weight", lin["head_dim"], h)
        matrix(f"{p}.f_b_proj.weight", width, lin["head_dim"])
        matrix(f"{p}.g_proj.weight", width, h)
        matrix(f"{p}.b_proj.weight", heads, h)
        # The published files have as many as a head has numbers, of which the first count.
        out[f"{p}.A_log"] = np.log(rng.uniform(1, 8, lin["head_dim"]))
        out[f"{p}.dt_bias"] = rng.normal(0, 1, width)
        norm(f"{p}.o_norm.weight", lin["head_dim"])
        matrix(f"{p}.o_proj.weight", h, width)

    def latent(p):
        n, nope, rope, v = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim",
                                           "qk_rope_head_dim", "v_head_dim"))
        matrix(f"{p}.q_a_proj.weight", c["q_lora_rank"], h)
        norm(f"{p}.q_a_layernorm.weight", c["q_lora_rank"])
        matrix(f"{p}.q_b_proj.weight", n * (nope + rope), c["q_lora_rank"], 2)
        matrix(f"{p}.kv_a_proj_with_mqa.weight", c["kv_lora_rank"] + rope, h)
        norm(f"{p}.kv_a_layernorm.weight", c["kv_lora_rank"])
        matrix(f"{p}.kv_b_proj.weight", n * (nope + v), c["kv_lora_rank"], 2)
        matrix(f"{p}.g_proj.weight", n * v, h)
        matrix(f"{p}.o_proj.weight", h, n * v)

    matrix("model.embed_tokens.weight", c["vocab_size"], h, np.sqrt(h))
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        norm(f"{p}.input_layernorm.weight", h)
        norm(f"{p}.post_attention_layernorm.weight", h)
        scores(f"{p}.self_attention")
        scores(f"{p}.mlp")
        (kda if i + 1 in lin["kda_layers"] else latent)(f"{p}.self_attn")
        if i < c["first_k_dense_replace"]:
            network(f"{p}.mlp", c["intermediate_size"])
            continue
        m, low = c["moe_intermediate_size"], c["routed_expert_hidden_size"]
        b = f"{p}.block_sparse_moe"
        matrix(f"{b}.gate.weight", c["num_experts"], h)
        out[f"{b}.gate.e_score_correction_bias"] = rng.normal(0, 0.05, c["num_experts"])
        matrix(f"{b}.routed_expert_down_proj.weight", low, h)
        matrix(f"{b}.routed_expert_up_proj.weight", h, low)
        norm(f"{b}.routed_expert_norm.weight", low)
        network(f"{b}.shared_experts", m * c["num_shared_experts"])
        for e in range(c["num_experts"]):
            matrix(f"{b}.experts.{e}.w1.weight", m, low, 2)
            matrix(f"{b}.experts.{e}.w3.weight", m, low, 2)
            matrix(f"{b}.experts.{e}.w2.weight", low, m, 2)
    scores("model.output_attn")
    norm("model.norm.weight", h)
    matrix("lm_head.weight", c["vocab_size"], h)
    return {f"language_model.{name}": to_bf16(values) for name, values in out.items()}


def to_bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def as_floats(halves):
    return (halves.astype(np.uint32) << 16).view(np.float32)


def write_safetensors(path, tensors, metadata):
    kinds = {"uint16": "BF16", "int32": "I32", "float32": "F32"}
    header, data = {"__metadata__": metadata}, b""
    for name, values in sorted(tensors.items()):
        header[name] = {"dtype": kinds[str(values.dtype)], "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Observed(nn.Module):
    """A layer whose results are kept."""

    def __init__(self, layer, results):
        super().__init__()
        self.layer, self.results = layer, results
        self.is_linear = layer.is_linear

    def __call__(self, x, **rest):
        y, blocks = self.layer(x, **rest)
        self.results.append(y)
        return y, blocks


def main(target):
    mx.set_default_device(mx.cpu)
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    weights = random_weights(rng)
    model = kimi_k3.Model(kimi_k3.ModelArgs.from_dict(CONFIG))
    model.load_weights(list(model.sanitize({n: mx.array(as_floats(v)) for n, v in weights.items()})
                            .items()))
    trunk = model.language_model.model
    margins, states, select = [], [], kimi_k3._group_expert_select

    def observed_select(gates, bias, top_k, *rest):
        ranked = np.sort(np.array(mx.sigmoid(gates) + bias), -1)
        margins.append((ranked[..., -top_k] - ranked[..., -top_k - 1]).min(0))
        return select(gates, bias, top_k, *rest)

    kimi_k3._group_expert_select = observed_select
    trunk.layers = [Observed(layer, states) for layer in trunk.layers]

    def run(tokens):
        margins.clear()
        states.clear()
        inputs = mx.array([tokens])
        first = trunk.embed_tokens(inputs)
        last = trunk(inputs)
        logits = np.array(model.language_model.lm_head(last))[0]
        hidden = np.stack([np.array(x)[0] for x in [first, *states[:-1], last]])
        return logits, hidden, min(m.min() for m in margins)

    def drawn():
        tokens = []
        while len(tokens) < PROMPT:
            token = int(rng.integers(3, TEXT["vocab_size"]))
            if run(tokens + [token])[2] > MARGIN:
                tokens.append(token)
        greedy, margin, least = [], np.inf, np.inf
        while len(greedy) < GREEDY and min(margin, least / 3) > MARGIN:
            rows, _, margin = run(tokens + greedy)
            best = np.sort(rows[-1])
            least = min(least, best[-1] - best[-2])
            greedy.append(int(rows[-1].argmax()))
        margin = min(margin, run(tokens + greedy)[2])
        return tokens, greedy, margin, least

    while True:
        tokens, greedy, margin, least = drawn()
        if min(margin, least / 3) > MARGIN:
            break
    logits, hidden, _ = run(tokens)
    (target / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write_safetensors(target / "model.safetensors", weights, {"format": "pt"})
    write_safetensors(target / "golden.safetensors",
                      {"tokens": np.array(tokens, np.int32), "greedy": np.array(greedy, np.int32),
                       "logits": logits.astype(np.float32),
                       "hidden_states": hidden.astype(np.float32)},
                      {"reference": "mlx-lm 0.32.2", "min_topk_margin": f"{margin:.2e}",
                       "min_greedy_margin": f"{least:.2e}"})
    print(f"logits deviate by {logits.std():.2f}; margins {margin:.1e} and {least:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
