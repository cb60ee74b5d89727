#!/usr/bin/env python3
"""A random checkpoint of DeepSeek-V4.1 under the publisher's names, and what a numpy program of the
publisher's formulas computes of it in float64.

Weights are BF16 numbers. Without the embedding of n-grams, which mlx-lm does not have, mlx-lm's own
program must give the same logits; deepseek_v41_engram.py compares the embedding with SGLang's.
Prompts are drawn until no choice in them, and in their greedy text, is near another one, and until
no number of a prompt is near a border of its rounding.

usage: deepseek_v41_golden.py TARGET_FOLDER
       (mlx 0.32.4, mlx-lm 0.32.2, numpy 2.4)
"""
import json
import pathlib
import sys

import mlx.core as mx
import numpy as np
from kimi_k3_golden import as_floats, to_bf16, write_safetensors
from mlx_lm.models import deepseek_v41

SEED = 6
PROMPT = 48
GREEDY = 16
CHOICE_MARGIN = 1e-3
KEY_MARGIN = 1e-4
# As parts of a block's largest number: how near a border may be, and steps too small to matter.
BORDER_MARGIN = 8e-6
STEP_OF_NOTE = 5e-3
MOST_OFF = 1e-4  # of mlx-lm, which computes in float32
CONFIG = {
    "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "bos_token_id": 0,
    "eos_token_id": 1, "image_token_id": 255, "tie_word_embeddings": False,
    "text_config": {
        "attention_bias": False, "attention_dropout": 0.0, "candidate_block_size": 2,
        "candidate_source_layer_id": 3, "candidate_topk_blocks": 3,
        "compress_ratios": [0, 2, 2, 1, 1, 1, 0, 0, 0], "compress_rope_theta": 160000,
        "dspark_block_size": 5, "dspark_target_layer_ids": [3, 4, 5],
        "engram_compressed_vocab_size": 256, "engram_head_dim": 32, "engram_layer_ids": [1, 4],
        "engram_max_ngram_size": 4, "engram_n_heads": 2, "engram_num_embeddings": [440, 606],
        "engram_pad_token_id": 2, "engram_vocab_size": 61, "hc_eps": 1e-06, "hc_mult": 4,
        "hc_sinkhorn_iters": 20, "head_dim": 64, "hidden_act": "silu", "hidden_size": 64,
        "index_head_dim": 32, "index_n_heads": 16, "index_source_layer_ids": [1, 3, 5],
        "index_topk": 4, "kv_source_layer_ids": [1, 3], "max_position_embeddings": 512,
        "model_type": "deepseek_v41_text", "moe_intermediate_size": 32, "n_routed_experts": 8,
        "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 4,
        "num_experts_per_tok": 2, "num_hidden_layers": 6, "num_key_value_heads": 1,
        "num_nextn_predict_layers": 3, "o_groups": 2, "o_lora_rank": 32, "q_lora_rank": 64,
        "qk_rope_head_dim": 16, "rms_norm_eps": 1e-20,
        "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128},
        "rope_theta": 10000, "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus",
        "sliding_window": 8, "swiglu_limit": 1.0, "topk_method": "noaux_tc", "vocab_size": 256}}
TEXT = CONFIG["text_config"]


def random_weights(rng):
    c = TEXT
    h, heads, dim = c["hidden_size"], c["num_attention_heads"], c["head_dim"]
    streams, low = c["hc_mult"], c["q_lora_rank"]
    out = {}

    def matrix(name, rows, cols, gain=1.0):
        out[f"{name}.weight"] = rng.normal(0, gain / np.sqrt(cols), (rows, cols))

    def norm(name, *shape):
        out[name] = rng.uniform(0.6, 1.4, shape)

    def network(name):
        m = c["moe_intermediate_size"]
        matrix(f"{name}.w1", m, h, 2)
        matrix(f"{name}.w3", m, h, 2)
        matrix(f"{name}.w2", h, m)

    def gates(name):
        out[f"{name}_fn"] = rng.normal(0, 1 / np.sqrt(streams * h), ((2 + streams) * streams,
                                                                     streams * h))
        out[f"{name}_base"] = rng.normal(0, 1, (2 + streams) * streams)
        out[f"{name}_scale"] = rng.uniform(0.5, 1.5, 3)

    matrix("embed", c["vocab_size"], h, np.sqrt(h))
    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}"
        norm(f"{p}.attn_norm.weight", h)
        norm(f"{p}.ffn_norm.weight", h)
        gates(f"{p}.hc_attn")
        gates(f"{p}.hc_ffn")
        a = f"{p}.attn"
        matrix(f"{a}.wq_a", low, h)
        norm(f"{a}.q_norm.weight", low)
        matrix(f"{a}.wq_b", heads * dim, low, 2)
        matrix(f"{a}.wkv", dim, h)
        norm(f"{a}.kv_norm.weight", dim)
        matrix(f"{a}.wo_a", c["o_groups"] * c["o_lora_rank"], heads * dim // c["o_groups"])
        matrix(f"{a}.wo_b", h, c["o_groups"] * c["o_lora_rank"], 0.4)
        out[f"{a}.attn_sink"] = rng.normal(0, 1, heads)
        if i in c["kv_source_layer_ids"]:
            matrix(f"{a}.compressor.wkv", dim, h)
            if c["compress_ratios"][i] > 1:
                matrix(f"{a}.compressor.wgate", dim, h, 2)
            norm(f"{a}.compressor.norm.weight", dim)
            matrix(f"{a}.indexer.wk", c["index_head_dim"], dim)
            norm(f"{a}.indexer.k_norm.weight", c["index_head_dim"])
        if i in c["index_source_layer_ids"]:
            matrix(f"{a}.indexer.wq_b", c["index_n_heads"] * c["index_head_dim"], low)
            matrix(f"{a}.indexer.weights_proj", c["index_n_heads"], h)
        if i in c["engram_layer_ids"]:
            e = f"{p}.engram"
            rows = c["engram_num_embeddings"][c["engram_layer_ids"].index(i)]
            width = c["engram_head_dim"] * c["engram_n_heads"] * (c["engram_max_ngram_size"] - 1)
            out[f"{e}.embed.weight"] = rng.normal(0, 1, (rows, c["engram_head_dim"]))
            matrix(f"{e}.wkv", (streams + 1) * h, width, 0.5)
            norm(f"{e}.q_weight", streams, h)
            norm(f"{e}.k_weight", streams, h)
        f = f"{p}.ffn"
        matrix(f"{f}.gate", c["n_routed_experts"], h)
        out[f"{f}.gate.bias"] = rng.normal(0, 0.05, c["n_routed_experts"])
        network(f"{f}.shared_experts")
        for e in range(c["n_routed_experts"]):
            network(f"{f}.experts.{e}")
    norm("norm.weight", h)
    matrix("head", c["vocab_size"], h)
    return {name: to_bf16(values) for name, values in out.items()}


def primes_from(first):
    n = first
    while True:
        if n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1)):
            yield n
        n += 1


def engram_rows(tokens):
    """The rows of each token in the tables of all layers: [layer, token, column]."""
    c = TEXT
    size, heads, codes = (c["engram_max_ngram_size"], c["engram_n_heads"],
                          c["engram_compressed_vocab_size"])
    primes = primes_from(c["engram_vocab_size"])
    all_rows = []
    for layer in c["engram_layer_ids"]:
        bound = max(1, np.iinfo(np.int64).max // codes // 2)
        drawn = np.random.default_rng(10007 * layer).integers(0, bound, size, dtype=np.int64)
        factors = [int(x) * 2 + 1 for x in drawn]
        sizes = [next(primes) for _ in range((size - 1) * heads)]
        starts = np.cumsum([0, *sizes[:-1]])
        rows = []
        for t in range(len(tokens)):
            value, columns = tokens[t] * factors[0], []
            for back in range(1, size):
                before = tokens[t - back] if t >= back else c["engram_pad_token_id"]
                value ^= before * factors[back]
                columns += [value % sizes[len(columns) + j] + starts[len(columns) + j]
                            for j in range(heads)]
            rows.append(columns)
        all_rows.append(rows)
    return np.array(all_rows)


class Margins:
    """The least distance from a choice that falls otherwise."""

    def __init__(self):
        self.choice, self.key, self.border = np.inf, np.inf, np.inf

    def are_wide(self):
        return self.choice > CHOICE_MARGIN and self.key > KEY_MARGIN

    def rounded(self, x, kind):
        """x rounded in blocks: "fp8", "fp4" or "fp4e4m3"."""
        block, most = {"fp8": (32, 448), "fp4": (32, 6), "fp4e4m3": (16, 6)}[kind]
        blocks = x.reshape(*x.shape[:-1], -1, block)
        largest = np.abs(blocks).max(-1, keepdims=True)
        scale = largest / most
        if kind == "fp4e4m3":
            scale = self.on_grid(np.clip(scale, 2.0 ** -9, 448), 3, -6, scale * 16)
        else:
            power = np.log2(scale)
            self.border = min(self.border, np.abs(power - np.round(power)).min())
            scale = 2 ** np.ceil(power)
        bits, least = (3, -6) if kind == "fp8" else (1, 0)
        held = np.clip(blocks / scale, -most, most)
        return (self.on_grid(held, bits, least, largest / scale) * scale).reshape(x.shape)

    def on_grid(self, x, bits, least, largest):
        size = np.abs(x)
        with np.errstate(divide="ignore"):
            exponent = np.maximum(np.floor(np.log2(np.where(size > 0, size, 1e-300))), least)
        step = 2 ** (exponent - bits)
        off = size / step
        to_border = np.abs(off - np.floor(off) - 0.5) * step / largest
        matters = (step > STEP_OF_NOTE * largest) & np.isfinite(to_border)
        if matters.any():
            self.border = min(self.border, to_border[matters].min())
        return np.sign(x) * np.round(off) * step


def rms(x, weight=None):
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + TEXT["rms_norm_eps"])
    return x if weight is None else x * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def frequencies(ratio):
    """One a pair of columns; by YaRN where a layer has entries."""
    c, dim = TEXT, TEXT["qk_rope_head_dim"]
    base = c["compress_rope_theta"] if ratio else c["rope_theta"]
    own = base ** (-np.arange(0, dim, 2) / dim)
    if not ratio:
        return own
    scaling = c["rope_scaling"]

    def pair_of(turns):
        length = scaling["original_max_position_embeddings"]
        return dim * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = max(np.floor(pair_of(32)), 0), min(np.ceil(pair_of(1)), dim - 1)
    if low == high:
        high += 0.001
    keeps = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return own / scaling["factor"] * (1 - keeps) + own * keeps


def turned(x, positions, ratio, sign=1):
    """x [tokens, ..., columns] with its last columns turned, pairs side by side."""
    dim = TEXT["qk_rope_head_dim"]
    angles = np.outer(positions, frequencies(ratio)) * sign
    shape = (len(positions), *[1] * (x.ndim - 2), dim // 2)
    cos, sin = np.cos(angles).reshape(shape), np.sin(angles).reshape(shape)
    out = x.copy()
    even, odd = x[..., -dim::2], x[..., -dim + 1::2]
    out[..., -dim::2], out[..., -dim + 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return out


class Program:
    def __init__(self, weights):
        self.w = {name: as_floats(values).astype(np.float64) for name, values in weights.items()}

    def linear(self, name, x):
        return x @ self.w[f"{name}.weight"].T

    def gates(self, name, streams):
        c, n = TEXT, TEXT["hc_mult"]
        mixes = rms(streams.reshape(len(streams), -1)) @ self.w[f"{name}_fn"].T
        scale = np.repeat(self.w[f"{name}_scale"], [n, n, n * n])
        mixes = mixes * scale + self.w[f"{name}_base"]
        mix = softmax(mixes[:, 2 * n:].reshape(-1, n, n)) + c["hc_eps"]
        mix /= mix.sum(-2, keepdims=True) + c["hc_eps"]
        for _ in range(c["hc_sinkhorn_iters"] - 1):
            mix /= mix.sum(-1, keepdims=True) + c["hc_eps"]
            mix /= mix.sum(-2, keepdims=True) + c["hc_eps"]
        return sigmoid(mixes[:, :n]) + c["hc_eps"], 2 * sigmoid(mixes[:, n:2 * n]), mix

    def engram(self, p, streams, rows):
        n, h = TEXT["hc_mult"], TEXT["hidden_size"]
        found = self.w[f"{p}.embed.weight"][rows].reshape(len(rows), -1)
        both = self.linear(f"{p}.wkv", found)
        keys, value = both[:, :n * h].reshape(-1, n, h), both[:, n * h:]
        product = (rms(streams, self.w[f"{p}.q_weight"]) *
                   rms(keys, self.w[f"{p}.k_weight"])).sum(-1) / np.sqrt(h)
        gate = sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(product), 1e-6)), product))
        return streams + gate[..., None] * value[:, None]

    def chosen(self, p, x, low, shared, layer, ratio, margins):
        """The entries that each token attends to: [token, entry] bool."""
        c = TEXT
        n, heads = len(x), c["index_n_heads"]
        at = np.arange(n)
        q = self.linear(f"{p}.wq_b", low).reshape(n, heads, -1)
        q = margins.rounded(turned(q, at, ratio), "fp4")
        scores = np.maximum(np.einsum("thd,ed->the", q, shared["index"]), 0)
        scores = (scores * self.linear(f"{p}.weights_proj", x)[..., None]).sum(1)
        scores /= np.sqrt(heads * c["index_head_dim"])
        seen = (at + 1) // ratio
        scores[np.arange(scores.shape[1]) >= seen[:, None]] = -np.inf
        own = scores.copy()
        if layer > c["candidate_source_layer_id"] >= 0:
            own[~shared["candidates"]] = -np.inf
        if layer == c["candidate_source_layer_id"]:
            shared["candidates"] = self.blocks(scores, seen, margins)
        return self.best(own, c["index_topk"], margins)

    def blocks(self, scores, seen, margins):
        size = TEXT["candidate_block_size"]
        padded = np.pad(scores, ((0, 0), (0, -scores.shape[1] % size)), constant_values=-np.inf)
        best = padded.reshape(len(scores), -1, size).max(-1)
        for t, count in enumerate(seen):
            if count > 0:
                best[t, (count - 1) // size] = np.inf
        kept = self.best(best, TEXT["candidate_topk_blocks"], margins)
        return np.repeat(kept, size, 1)[:, :scores.shape[1]]

    @staticmethod
    def best(scores, count, margins):
        kept = np.isfinite(scores) | (scores == np.inf)
        for t, row in enumerate(scores):
            if kept[t].sum() <= count:
                continue
            order = np.argsort(-row, kind="stable")
            margins.key = min(margins.key, row[order[count - 1]] - row[order[count]])
            kept[t] = False
            kept[t, order[:count]] = True
        return kept

    def attention(self, layer, x, shared, margins):
        c, p = TEXT, f"layers.{layer}.attn"
        n, heads, dim = len(x), c["num_attention_heads"], c["head_dim"]
        ratio, at = c["compress_ratios"][layer], np.arange(len(x))
        low = rms(self.linear(f"{p}.wq_a", x), self.w[f"{p}.q_norm.weight"])
        q = turned(self.linear(f"{p}.wq_b", low).reshape(n, heads, dim), at, ratio)
        keys = rms(self.linear(f"{p}.wkv", x), self.w[f"{p}.kv_norm.weight"])
        keys = margins.rounded(turned(keys, at, ratio), "fp8")
        back = at[:, None] - at[None]
        mask = (back >= 0) & (back < c["sliding_window"])
        if layer in c["kv_source_layer_ids"]:
            made = self.linear(f"{p}.compressor.wkv", x)
            count = n // ratio
            if ratio > 1:
                gate = self.linear(f"{p}.compressor.wgate", x)[:count * ratio]
                weights = softmax(gate.reshape(count, ratio, dim).swapaxes(1, 2)).swapaxes(1, 2)
                made = (made[:count * ratio].reshape(count, ratio, dim) * weights).sum(1)
            made = rms(made, self.w[f"{p}.compressor.norm.weight"])
            first = np.arange(count) * ratio
            index = rms(self.linear(f"{p}.indexer.wk", made), self.w[f"{p}.indexer.k_norm.weight"])
            if count > 0:
                shared["index"] = margins.rounded(turned(index, first, ratio), "fp4")
                shared["entries"] = margins.rounded(turned(made, first, ratio), "fp4e4m3")
            else:
                shared["index"], shared["entries"] = index, made
        if layer in c["index_source_layer_ids"]:
            shared["chosen"] = self.chosen(f"{p}.indexer", x, low, shared, layer, ratio, margins)
        if ratio:
            keys = np.concatenate([keys, shared["entries"]])
            mask = np.concatenate([mask, shared["chosen"]], 1)
        scores = np.einsum("thd,kd->thk", q, keys) / np.sqrt(dim)
        scores[~np.broadcast_to(mask[:, None], scores.shape)] = -np.inf
        sinks = np.broadcast_to(self.w[f"{p}.attn_sink"][None, :, None], (n, heads, 1))
        shares = softmax(np.concatenate([scores, sinks], -1))[..., :-1]
        out = turned(np.einsum("thk,kd->thd", shares, keys), at, ratio, -1)
        groups = c["o_groups"]
        grouped = out.reshape(n, groups, -1)
        lows = self.w[f"{p}.wo_a.weight"].reshape(groups, c["o_lora_rank"], -1)
        return self.linear(f"{p}.wo_b", np.einsum("tgd,grd->tgr", grouped, lows).reshape(n, -1))

    def network(self, p, x):
        limit = TEXT["swiglu_limit"]
        gate = np.minimum(self.linear(f"{p}.w1", x), limit)
        up = np.clip(self.linear(f"{p}.w3", x), -limit, limit)
        return self.linear(f"{p}.w2", gate * sigmoid(gate) * up)

    def experts(self, layer, x, margins):
        c, p = TEXT, f"layers.{layer}.ffn"
        scores = np.sqrt(np.log1p(np.exp(self.linear(f"{p}.gate", x))))
        ranked = scores + self.w[f"{p}.gate.bias"]
        order, k = np.argsort(-ranked, -1, kind="stable"), c["num_experts_per_tok"]
        best = np.take_along_axis(ranked, order, -1)
        margins.choice = min(margins.choice, (best[:, k - 1] - best[:, k]).min())
        out = self.network(f"{p}.shared_experts", x)
        for t in range(len(x)):
            own = scores[t, order[t, :k]]
            own = own / (own.sum() + 1e-20) * c["routed_scaling_factor"]
            for weight, e in zip(own, order[t, :k]):
                out[t] += weight * self.network(f"{p}.experts.{e}", x[t:t + 1])[0]
        return out

    def run(self, tokens, with_engrams=True):
        """Logits, streams around layers, the head's input, and margins."""
        c, margins, shared = TEXT, Margins(), {}
        rows = engram_rows(tokens)
        x = self.w["embed.weight"][tokens]
        streams = np.repeat(x[:, None], c["hc_mult"], 1)
        read = np.zeros((len(x), c["hc_mult"]))
        read[:, 0] = 1
        states = [streams]

        def add(result, write, mix):
            return write[..., None] * result[:, None] + np.einsum("tij,tid->tjd", mix, streams)

        for i in range(c["num_hidden_layers"]):
            if with_engrams and i in c["engram_layer_ids"]:
                own = rows[c["engram_layer_ids"].index(i)]
                streams = self.engram(f"layers.{i}.engram", streams, own)
            next_read, write, mix = self.gates(f"layers.{i}.hc_attn", streams)
            x = rms((read[..., None] * streams).sum(1), self.w[f"layers.{i}.attn_norm.weight"])
            streams = add(self.attention(i, x, shared, margins), write, mix)
            read = next_read
            next_read, write, mix = self.gates(f"layers.{i}.hc_ffn", streams)
            x = rms((read[..., None] * streams).sum(1), self.w[f"layers.{i}.ffn_norm.weight"])
            streams = add(self.experts(i, x, margins), write, mix)
            read = next_read
            states.append(streams)
        last = rms((read[..., None] * streams).sum(1), self.w["norm.weight"])
        return self.linear("head", last), np.array(states), last, margins


def logits_of_mlx(weights, tokens):
    """Logits of the model without n-grams, in float32."""
    mx.set_default_device(mx.cpu)
    args = deepseek_v41.ModelArgs.from_dict(
        {**CONFIG, "text_config": {**TEXT, "engram_layer_ids": []}})
    model = deepseek_v41.Model(args)
    floats = {name: mx.array(as_floats(values)) for name, values in weights.items()}
    model.load_weights(list(model.sanitize(floats).items()))
    return np.array(model(mx.array([tokens])))[0]


def main(target):
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    weights = random_weights(rng)
    program = Program(weights)

    def clear_prompt(with_engrams):
        tokens = []
        while len(tokens) < PROMPT:
            token = int(rng.integers(3, TEXT["vocab_size"] - 1))
            margins = program.run(tokens + [token], with_engrams)[3]
            if margins.are_wide() and margins.border > BORDER_MARGIN:
                tokens.append(token)
        return tokens

    def drawn():
        tokens = clear_prompt(True)
        greedy, least = [], np.inf
        while len(greedy) < GREEDY:
            logits, _, _, margins = program.run(tokens + greedy)
            best = np.sort(logits[-1])
            least = min(least, best[-1] - best[-2])
            if not margins.are_wide() or least < 3 * CHOICE_MARGIN:
                return None
            greedy.append(int(logits[-1].argmax()))
        return (tokens, greedy, least) if program.run(tokens + greedy)[3].are_wide() else None

    found = None
    while found is None:
        found = drawn()
    tokens, greedy, least = found
    logits, states, last, margins = program.run(tokens)
    moved = np.abs(program.run(tokens, False)[0] - logits).mean()
    plain = clear_prompt(False)
    off = np.abs(program.run(plain, False)[0] - logits_of_mlx(weights, plain)).max()
    print(f"logits deviate by {logits.std():.2f}, n-grams move them by {moved:.2f}; mlx-lm is off "
          f"by {off:.1e} without; margins {margins.choice:.1e} {margins.key:.1e} "
          f"{margins.border:.1e} {least:.1e}")
    assert off < MOST_OFF
    (target / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write_safetensors(target / "model.safetensors", weights, {"format": "pt"})
    floats = {"logits": logits, "streams": states.reshape(*states.shape[:2], -1), "collapsed": last}
    write_safetensors(target / "golden.safetensors",
                      {"tokens": np.array(tokens, np.int32), "greedy": np.array(greedy, np.int32),
                       **{name: x.astype(np.float32) for name, x in floats.items()}},
                      {"reference": "numpy 2.4 float64; without n-grams mlx-lm 0.32.2 is off by "
                                    f"{off:.1e}", "seed": str(SEED),
                       "min_topk_margin": f"{margins.choice:.2e}",
                       "min_key_margin": f"{margins.key:.2e}",
                       "min_rounding_margin": f"{margins.border:.2e}",
                       "min_greedy_margin": f"{least:.2e}"})


if __name__ == "__main__":
    main(*sys.argv[1:])
