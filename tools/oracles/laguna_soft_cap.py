"""laguna_soft_cap.py MODEL_FOLDER CAP OUT.safetensors: logits of a small Laguna whose router logits
l become CAP * tanh(l / CAP), computed in float64 from the tensors by name. Without a cap it must
give the folder's own golden.safetensors, which it checks first. Needs numpy, ml_dtypes and
safetensors."""
import json
import math
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file


def read(path):
    return {name: np.asarray(value).astype(np.float64) for name, value in load_file(path).items()}


def rms(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def frequencies(rope, dim):
    base = rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    if rope["rope_type"] == "default":
        return base, 1.0
    original, factor = rope["original_max_position_embeddings"], rope["factor"]

    def dimension_of(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))

    low = max(math.floor(dimension_of(rope["beta_fast"])), 0)
    high = min(math.ceil(dimension_of(rope["beta_slow"])), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    return base * (1 - ramp) + base / factor * ramp, rope["attention_factor"]


def rotate(x, rope, head_dim):
    dim = int(head_dim * rope["partial_rotary_factor"])
    inverse, factor = frequencies(rope, dim)
    angles = np.arange(x.shape[0])[:, None] * inverse
    cos, sin = np.cos(angles)[:, None] * factor, np.sin(angles)[:, None] * factor
    a, b, rest = x[..., :dim // 2], x[..., dim // 2:dim], x[..., dim:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attention(w, p, x, c, kind, heads):
    n, dim = x.shape[0], c["head_dim"]
    kv_heads = c["num_key_value_heads"]
    rope = c["rope_parameters"][kind]
    project = lambda name, count: (x @ w[p + name + "_proj.weight"].T).reshape(n, count, dim)
    q = rotate(rms(project("q", heads), w[p + "q_norm.weight"], c["rms_norm_eps"]), rope, dim)
    k = rotate(rms(project("k", kv_heads), w[p + "k_norm.weight"], c["rms_norm_eps"]), rope, dim)
    v = project("v", kv_heads)
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim)
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    seen = j <= i if kind == "full_attention" else (j <= i) & (j > i - c["sliding_window"])
    scores = np.where(seen, scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v)
    gate = np.log1p(np.exp(x @ w[p + "g_proj.weight"].T))
    return (out * gate[..., None]).reshape(n, -1) @ w[p + "o_proj.weight"].T


def glu(x, gate, up, down):
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


def network(w, p, x, c, sparse, cap):
    of = lambda name: [w[f"{p}{name}.{part}_proj.weight"] for part in ("gate", "up", "down")]
    if not sparse:
        return glu(x, *of("mlp"))
    logits = x @ w[p + "mlp.gate.weight"].T
    if cap:
        logits = cap * np.tanh(logits / cap)
    scores = 1 / (1 + np.exp(-logits))
    order = np.argsort(-(scores + w[p + "mlp.experts.e_score_correction_bias"]), -1, kind="stable")
    out = glu(x, *of("mlp.shared_expert"))
    fused = w.get(p + "mlp.experts.gate_up_proj")
    for t in range(x.shape[0]):
        chosen = order[t, :c["num_experts_per_tok"]]
        total = scores[t, chosen].sum()
        for e in chosen:
            if fused is not None:
                gate, up = np.split(fused[e], 2)
                own = glu(x[t], gate, up, w[p + "mlp.experts.down_proj"][e])
            else:
                own = glu(x[t], *of(f"mlp.experts.{e}"))
            out[t] += scores[t, e] / total * c["moe_routed_scaling_factor"] * own
    return out


def logits_of(w, c, tokens, cap):
    eps = c["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms(x, w[p + "input_layernorm.weight"], eps)
        x = x + attention(w, p + "self_attn.", h, c, c["layer_types"][i],
                          c["num_attention_heads_per_layer"][i])
        h = rms(x, w[p + "post_attention_layernorm.weight"], eps)
        x = x + network(w, p, h, c, c["mlp_layer_types"][i] == "sparse", cap)
    return rms(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def main(folder, cap, out):
    c = json.load(open(f"{folder}/config.json", encoding="utf-8"))
    w = read(f"{folder}/model.safetensors")
    golden = load_file(f"{folder}/golden.safetensors")
    tokens = golden["tokens"]
    worst = np.abs(logits_of(w, c, tokens, 0.0) - golden["logits"]).max()
    if not worst < 1e-4:
        sys.exit(f"without a cap the golden logits are missed by {worst}")
    capped = logits_of(w, c, tokens, float(cap))
    print(f"golden met to {worst:.1e}; a cap of {cap} moves logits by "
          f"{np.abs(capped - golden['logits']).max():.2f}")
    rows = np.arange(0, len(tokens), 4)
    save_file({"tokens": tokens, "positions": rows.astype(np.int32),
               "logits": capped[rows].astype(np.float32)}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
