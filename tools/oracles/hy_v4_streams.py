#!/usr/bin/env python3
"""The residual streams of tests/golden/models/hy_v4 in float64, by numpy alone: transformers 5.24
does not read the published order of rows, which that folder has.

Adds `streams` and `collapsed` to FOLDER/golden.safetensors as stream_golden.py does. The logits,
which transformers computed from rows put in its own order, have to come out again.

usage: hy_v4_streams.py FOLDER        (numpy, safetensors)
"""
import json
import pathlib
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

LOGITS_MOST_OFF = 2e-5


def read_bf16(path):
    """Tensors of a file that has only BF16."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


class Model:
    def __init__(self, folder):
        self.c = json.loads((folder / "config.json").read_text())
        self.w = read_bf16(folder / "model.safetensors")
        self.eps = self.c["rms_norm_eps"]

    def turn(self, x):
        """Pairs side by side of x [tokens, heads, width]."""
        width = x.shape[-1]
        theta = self.c["rope_parameters"]["rope_theta"]
        angles = np.arange(len(x))[:, None] / theta ** (np.arange(0, width, 2) / width)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)[:, None]
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    def read(self, streams, name):
        """The input of a branch, and how much of its result each stream gets."""
        count, flat = self.c["hc_mult"], streams.reshape(len(streams), -1)
        fn, base, scale = (self.w[f"{name}{part}"] for part in ("fn", "base", "scale"))
        mixes = rms(flat, 1.0, self.eps) @ fn.T
        gates = [sigmoid(mixes[:, i * count:(i + 1) * count] * scale[i] +
                         base[i * count:(i + 1) * count]) for i in range(len(scale))]
        narrow = ((gates[0] + self.c["hc_eps"])[..., None] * streams).sum(1)
        return narrow, self.c["hc_magnitude"] * gates[-1] + self.c["hc_eps"]

    def choose(self, p, x, low):
        c, w = self.c, self.w
        heads, width, rope = c["index_n_heads"], c["index_head_dim"], c["qk_rope_head_dim"]
        q = (low @ w[p + "wq_b.weight"].T).reshape(len(x), heads, width)
        k = x @ w[p + "wk.weight"].T
        k = k - k.mean(-1, keepdims=True)
        k = rms(k, w[p + "k_norm.weight"], self.eps) + w[p + "k_norm.bias"]
        q[..., -rope:] = self.turn(q[..., -rope:])
        k[:, -rope:] = self.turn(k[:, None, -rope:])[:, 0]
        of_heads = np.maximum(np.einsum("qhd,kd->qhk", q, k), 0)
        scores = np.einsum("qhk,qh->qk", of_heads, x @ w[p + "weights_proj.weight"].T)
        scores[np.triu_indices(len(x), 1)] = -np.inf
        seen = np.zeros(scores.shape, bool)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :c["index_topk"]]
        np.put_along_axis(seen, best, True, 1)
        return seen & np.tri(len(x), dtype=bool)

    def attend(self, layer, x, seen):
        c, w, n = self.c, self.w, len(x)
        p = f"model.layers.{layer}.self_attn."
        heads, nope, rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        rank = c["kv_lora_rank"]
        low = rms(x @ w[p + "q_a_proj.weight"].T, w[p + "q_a_layernorm.weight"], 1e-6)
        q = (low @ w[p + "q_b_proj.weight"].T).reshape(n, heads, nope + rope)
        q[..., nope:] = self.turn(q[..., nope:])
        latent = x @ w[p + "kv_a_proj_with_mqa.weight"].T
        k_rope = self.turn(latent[:, None, rank:])
        latent = rms(latent[:, :rank], w[p + "kv_a_layernorm.weight"], 1e-6)
        kv = (latent @ w[p + "kv_b_proj.weight"].T).reshape(n, heads, -1)
        k = np.concatenate([kv[..., :nope], np.repeat(k_rope, heads, 1)], -1)
        if p + "indexer.wk.weight" in w:
            seen = self.choose(p + "indexer.", x, low)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(nope + rope)
        scores = np.where(seen, scores, -np.inf)
        sinks = np.broadcast_to(w[p + "learnable_sink_param"][:, None, None], (heads, n, 1))
        scores = np.concatenate([scores, sinks], -1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares = (shares / shares.sum(-1, keepdims=True))[..., :-1]
        values = np.einsum("hqk,khd->qhd", shares, kv[..., nope:]).reshape(n, -1)
        values = values * sigmoid(x @ w[p + "linear_gate.weight"].T)
        return values @ w[p + "o_proj.weight"].T, seen

    def expert(self, p, number, x):
        limit = self.c["swiglu_limit"] if self.c["swiglu_limit"] > 0 else np.inf
        gate, up = np.split(self.w[p + "gate_up_proj"][number] @ x, 2)
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return self.w[p + "down_proj"][number] @ (gate * sigmoid(gate) * up)

    def unit(self, p, x):
        gate = x @ self.w[p + "gate_proj.weight"].T
        up = x @ self.w[p + "up_proj.weight"].T
        return (gate * sigmoid(gate) * up) @ self.w[p + "down_proj.weight"].T

    def network(self, layer, x):
        c, w, p = self.c, self.w, f"model.layers.{layer}.mlp."
        if c["mlp_layer_types"][layer] == "dense":
            return self.unit(p, x)
        scores = sigmoid(x @ w[p + "gate.weight"].T)
        biased = scores + w[p + "gate.e_score_correction_bias"]
        out = self.unit(p + "shared_experts.", x)
        for t, own in enumerate(x):
            ids = np.argsort(-biased[t])[:c["num_experts_per_tok"]]
            share = scores[t, ids]
            if c["norm_topk_prob"]:
                share = share / (share.sum() + 1e-20)
            for e, weight in zip(ids, share * c["routed_scaling_factor"]):
                out[t] += weight * self.expert(p + "experts.", e, own)
        return out

    def run(self, tokens):
        w = self.w
        x = np.repeat(w["model.embed_tokens.weight"][tokens][:, None], self.c["hc_mult"], 1)
        kept, seen = [x], None
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            own, gates = self.read(x, p + "hc_attn_layer.hc_pre.hc_")
            out, seen = self.attend(
                layer, rms(own, w[p + "input_layernorm.weight"], self.eps), seen)
            x = x + gates[..., None] * out[:, None]
            own, gates = self.read(x, p + "hc_mlp_layer.hc_pre.hc_")
            own = rms(own, w[p + "post_attention_layernorm.weight"], self.eps)
            x = x + gates[..., None] * self.network(layer, own)[:, None]
            kept.append(x)
        own = self.read(x, "model.hc_head.hc_head_")[0]
        collapsed = rms(own, w["model.norm.weight"], self.eps)
        return collapsed @ w["lm_head.weight"].T, kept, collapsed


def main(folder):
    path = pathlib.Path(folder)
    with safe_open(path / "golden.safetensors", "np") as file:
        golden, metadata = {k: file.get_tensor(k) for k in file.keys()}, file.metadata()
    logits, streams, collapsed = Model(path).run(golden["tokens"])
    off = np.abs(logits - golden["logits"]).max()
    print("logits off by", off)
    assert off < LOGITS_MOST_OFF
    golden["streams"] = np.stack([s.reshape(len(s), -1) for s in streams]).astype(np.float32)
    golden["collapsed"] = collapsed.astype(np.float32)
    metadata["streams"] = f"numpy {np.__version__} float64"
    save_file(golden, path / "golden.safetensors", metadata)


if __name__ == "__main__":
    main(sys.argv[1])
