#!/usr/bin/env python3
"""Trains a layer that predicts a further token (multi-token prediction, MTP) for a small model of
type qwen3_5_moe in MLX's layout, such as models/fable-20m. The model itself stays as it is.

1. The model writes the training text: 16,384 texts of 512 tokens from its end-of-text token, each
   at a temperature of its own between 0.5 and 1. The states behind its final norm are kept.
2. The layer begins as the model's last attention layer. It learns the model's own distribution of
   the token after the next, fed its own result for the second and third token, as drafts are.
3. Acceptance is counted on texts held out: written at 0.8, greedy, and FORCED token files.
4. OUT gets the layer in 8 bits, in groups of 64, under the names of published checkpoints.

usage: train_draft_layer.py MODEL_FOLDER OUT.safetensors [--check tests/golden/....safetensors]
           [--sequences N] [--batch N] [--length N] [--epochs N] [--forced ids.txt ...]
(torch 2.11, safetensors; --device cpu for tiny sizes)
"""
import argparse
import math
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

SEED = 20
GROUP = 64
DEPTHS = 3
HELD_OUT = 256  # texts
LAYERS = 8
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, ROTARY = 256, 4, 2, 64, 16
K_HEADS, V_HEADS, DELTA_DIM, KERNEL = 2, 4, 64, 4
EXPERTS, TOP, EXPERT_DIM = 32, 4, 64
EPS = 1e-6
END_OF_TEXT = 0
PREFIX = "language_model."
SHORT_HEADS = (512, 1024, 2048, 4096, 8192)


def read_weights(folder, device):
    """All tensors in float32, quantised ones from their bits, scales and biases."""
    raw = load_file(f"{folder}/model.safetensors")
    weights = {}
    for name, tensor in raw.items():
        if name.endswith((".scales", ".biases")):
            continue
        stem = name.removesuffix(".weight")
        if f"{stem}.scales" in raw:
            scales, biases = raw[f"{stem}.scales"].float(), raw[f"{stem}.biases"].float()
            bits = tensor.shape[-1] * 32 // (scales.shape[-1] * GROUP)
            shifts = torch.arange(0, 32, bits)
            words = tensor.view(torch.int32).long() & 0xFFFFFFFF
            quants = (words[..., None] >> shifts & (1 << bits) - 1).flatten(-2).float()
            tensor = (quants.unflatten(-1, (-1, GROUP)) * scales[..., None] + biases[..., None])
            tensor = tensor.flatten(-2)
        weights[name.removeprefix(PREFIX)] = tensor.float().to(device)
    return weights


def rms(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def rope(x, positions):
    """x [..., rows, head_dim], positions [rows]."""
    half = ROTARY // 2
    angles = positions[:, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angles.cos(), angles.sin()
    a, b, rest = x[..., :half], x[..., half:ROTARY], x[..., ROTARY:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def network(x, w, p):
    """The experts and the shared one. Every expert is computed and weighted, most of them by 0."""
    probabilities = (x @ w[p + "gate.weight"].T).softmax(-1)
    best, ids = probabilities.topk(TOP, -1)
    shares = torch.zeros_like(probabilities).scatter(-1, ids, best / best.sum(-1, keepdim=True))
    gate = F.silu(x @ w[p + "switch_mlp.gate_proj.weight"].reshape(-1, HIDDEN).T)
    act = gate * (x @ w[p + "switch_mlp.up_proj.weight"].reshape(-1, HIDDEN).T)
    act = (act.unflatten(-1, (EXPERTS, EXPERT_DIM)) * shares[..., None]).flatten(-2)
    down = w[p + "switch_mlp.down_proj.weight"].transpose(1, 2).reshape(-1, HIDDEN)
    shared = F.silu(x @ w[p + "shared_expert.gate_proj.weight"].T)
    shared = shared * (x @ w[p + "shared_expert.up_proj.weight"].T)
    shared = shared @ w[p + "shared_expert.down_proj.weight"].T
    return act @ down + torch.sigmoid(x @ w[p + "shared_expert_gate.weight"].T) * shared


def project(x, w, p, positions):
    """q [B, heads, rows, d], its gate, k and v [B, kv_heads, rows, d] of x [B, rows, hidden]."""
    q, gate = (x @ w[p + "q_proj.weight"].T).unflatten(-1, (HEADS, 2 * HEAD_DIM)).chunk(2, -1)
    k = (x @ w[p + "k_proj.weight"].T).unflatten(-1, (KV_HEADS, HEAD_DIM))
    v = (x @ w[p + "v_proj.weight"].T).unflatten(-1, (KV_HEADS, HEAD_DIM))
    q = rope(rms(q, w[p + "q_norm.weight"]).transpose(1, 2), positions)
    k = rope(rms(k, w[p + "k_norm.weight"]).transpose(1, 2), positions)
    return q / math.sqrt(HEAD_DIM), gate.flatten(-2), k, v.transpose(1, 2)


class Writer:
    """The model, a token of each of a batch of texts at a time."""

    def __init__(self, w, batch, length):
        self.w, self.batch = w, batch
        device = w["model.norm.weight"].device
        self.is_attention = [f"model.layers.{i}.self_attn.q_proj.weight" in w
                             for i in range(LAYERS)]
        zeros = lambda *shape: torch.zeros(shape, device=device)  # noqa: E731
        self.states = [
            (zeros(batch, KV_HEADS, length, HEAD_DIM), zeros(batch, KV_HEADS, length, HEAD_DIM))
            if attends else
            (zeros(batch, (2 * K_HEADS + V_HEADS) * DELTA_DIM, KERNEL - 1),
             zeros(batch, V_HEADS, DELTA_DIM, DELTA_DIM)) for attends in self.is_attention]
        self.columns = torch.arange(length, device=device)

    def reset(self):
        for pair in self.states:
            for state in pair:
                state.zero_()

    def attend(self, x, p, kept, position):
        q, gate, k, v = project(x[:, None], self.w, p, position.float())
        kept[0].index_copy_(2, position, k)
        kept[1].index_copy_(2, position, v)
        q = q.reshape(-1, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
        scores = (q @ kept[0].transpose(2, 3)).masked_fill(self.columns > position, -math.inf)
        out = (scores.softmax(-1) @ kept[1]).reshape(-1, HEADS * HEAD_DIM)
        return (out * torch.sigmoid(gate[:, 0])) @ self.w[p + "o_proj.weight"].T

    def delta(self, x, p, kept):
        w = self.w
        window = torch.cat([kept[0], (x @ w[p + "in_proj_qkv.weight"].T)[..., None]], -1)
        kept[0].copy_(window[..., 1:])
        mixed = F.silu((window * w[p + "conv1d.weight"].reshape(-1, KERNEL)).sum(-1))
        q, k, v = mixed.split([K_HEADS * DELTA_DIM, K_HEADS * DELTA_DIM, V_HEADS * DELTA_DIM], -1)
        unit = lambda t: t * (t.square().sum(-1, keepdim=True) + 1e-6).rsqrt()  # noqa: E731
        repeat = V_HEADS // K_HEADS
        q = unit(q.unflatten(-1, (K_HEADS, -1))).repeat_interleave(repeat, 1) / DELTA_DIM**0.5
        k = unit(k.unflatten(-1, (K_HEADS, -1))).repeat_interleave(repeat, 1)
        v = v.unflatten(-1, (V_HEADS, -1))
        beta = torch.sigmoid(x @ w[p + "in_proj_b.weight"].T)
        step = F.softplus(x @ w[p + "in_proj_a.weight"].T + w[p + "dt_bias"])
        state = kept[1]
        state.mul_((-w[p + "A_log"].exp() * step).exp()[..., None, None])
        error = (v - (k[:, :, None] @ state)[:, :, 0]) * beta[..., None]
        state.add_(k[..., None] * error[:, :, None])
        out = rms((q[:, :, None] @ state)[:, :, 0], w[p + "norm.weight"])
        z = (x @ w[p + "in_proj_z.weight"].T).unflatten(-1, (V_HEADS, -1))
        return (out * F.silu(z)).flatten(-2) @ w[p + "out_proj.weight"].T

    def step(self, tokens, position):
        """States behind the final norm [B, hidden] of the tokens [B] at position [1]."""
        w = self.w
        x = w["model.embed_tokens.weight"][tokens]
        for i in range(LAYERS):
            p = f"model.layers.{i}."
            y = rms(x, w[p + "input_layernorm.weight"])
            x = x + (self.attend(y, p + "self_attn.", self.states[i], position)
                     if self.is_attention[i] else self.delta(y, p + "linear_attn.", self.states[i]))
            x = x + network(rms(x, w[p + "post_attention_layernorm.weight"]), w, p + "mlp.")
        return rms(x, w["model.norm.weight"])


class Texts:
    """Tokens [n, T] i32 and states [n, T, hidden] f16."""

    def __init__(self, count, length, device):
        self.tokens = torch.zeros(count, length, dtype=torch.int32, device=device)
        self.states = torch.zeros(count, length, HIDDEN, dtype=torch.float16, device=device)

    def slice(self, begin, end):
        part = object.__new__(Texts)
        part.tokens, part.states = self.tokens[begin:end], self.states[begin:end]
        return part


@torch.no_grad()
def write(writer, into, temperatures, given=None):
    """Fills `into`, a batch; with `given` [n, T] those are the tokens."""
    device = into.tokens.device
    count, length = into.tokens.shape
    head = writer.w["lm_head.weight"]
    token = torch.full((count,), END_OF_TEXT, device=device)
    position = torch.zeros(1, dtype=torch.long, device=device)
    heat = temperatures[:, None]

    def one():
        state = writer.step(token, position)
        logits = state @ head.T
        noise = torch.empty_like(logits).exponential_().log()
        token_out = (logits - heat * noise).argmax(-1)
        return state, token_out

    graph = None
    if device.type == "cuda":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            one()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = one()
    writer.reset()
    for t in range(length):
        if given is not None:
            token.copy_(given[:, t])
        position.fill_(t)
        into.tokens[:, t] = token
        if graph is not None:
            graph.replay()
        else:
            results = one()
        into.states[:, t] = results[0]
        token.copy_(results[1])


def first_layer(w):
    """The layer before training: the last attention layer, and the state as its input."""
    layer = {}
    last = max(i for i in range(LAYERS) if f"model.layers.{i}.self_attn.q_proj.weight" in w)
    for name, tensor in w.items():
        if name.startswith(f"model.layers.{last}."):
            layer[name.replace(f"model.layers.{last}.", "mtp.layers.0.")] = tensor.clone()
    scale = w["model.embed_tokens.weight"].square().mean().sqrt()
    fc = torch.eye(HIDDEN, device=scale.device)
    layer["mtp.fc.weight"] = torch.cat([0.5 * fc, 0.5 * fc], 1)
    layer["mtp.pre_fc_norm_embedding.weight"] = torch.ones(HIDDEN, device=scale.device)
    layer["mtp.pre_fc_norm_hidden.weight"] = torch.ones(HIDDEN, device=scale.device)
    layer["mtp.norm.weight"] = w["model.norm.weight"].clone()
    return {name: torch.nn.Parameter(tensor) for name, tensor in layer.items()}


def attend_depth(q, gate, keys, values, depth, w):
    """Rows of `depth` see the first depth's rows up to depth - 1 before them, then one row of each
    further depth, as a chain of drafts does."""
    rows = q.shape[2]
    ids = torch.arange(rows, device=q.device)
    repeat = HEADS // KV_HEADS
    spread = lambda t: t.repeat_interleave(repeat, 1)  # noqa: E731
    hidden = ids[None, :] > ids[:, None] - (depth - 1)
    scores = [(q @ spread(keys[0]).transpose(2, 3)).masked_fill(hidden, -1e30)]
    chain = []
    for j in range(2, depth + 1):
        back = depth - j  # rows of depth j end so many rows earlier
        key, value = (spread(F.pad(t[j - 1], (0, 0, back, 0))[:, :, :rows]) for t in (keys, values))
        scores.append((q * key).sum(-1, keepdim=True))
        chain.append(value)
    shares = torch.cat(scores, -1).softmax(-1)
    out = shares[..., :rows] @ spread(values[0])
    for j, value in enumerate(chain):
        out = out + shares[..., rows + j, None] * value
    out = out.transpose(1, 2).flatten(-2) * torch.sigmoid(gate)
    return out @ w["mtp.layers.0.self_attn.o_proj.weight"].T


def drafts(w, layer, texts, depths=DEPTHS):
    """The layer's results [B, T - 1, hidden] of each depth. Row p knows token p + 1 and predicts
    token p + 2; the first depth - 1 rows of a depth mean nothing."""
    p = "mtp.layers.0."
    embedded = w["model.embed_tokens.weight"][texts.tokens[:, 1:].long()]
    embedded = rms(embedded, layer["mtp.pre_fc_norm_embedding.weight"])
    state = texts.states[:, :-1].float()
    positions = torch.arange(state.shape[1], device=state.device).float()
    keys, values, results = [], [], []
    for depth in range(1, depths + 1):
        state = rms(state, layer["mtp.pre_fc_norm_hidden.weight"])
        x = torch.cat([embedded, state], -1) @ layer["mtp.fc.weight"].T
        y = rms(x, layer[p + "input_layernorm.weight"])
        q, gate, k, v = project(y, layer, p + "self_attn.", positions)
        keys.append(k)
        values.append(v)
        x = x + attend_depth(q, gate, keys, values, depth, layer)
        x = x + network(rms(x, layer[p + "post_attention_layernorm.weight"]), layer, p + "mlp.")
        results.append(rms(x, layer["mtp.norm.weight"]))
        state = F.pad(results[-1], (0, 0, 1, 0))[:, :-1]
    return results


def loss_of(w, layer, texts, mixed):
    with torch.autocast(texts.tokens.device.type, torch.bfloat16, enabled=mixed):
        results = drafts(w, layer, texts)
        head = w["lm_head.weight"]
        with torch.no_grad():
            target = (texts.states[:, 1:].float() @ head.T).float().softmax(-1)
        total = 0.0
        for depth, result in enumerate(results):
            logits = (result[:, depth:-1] @ head.T).float()
            goal = target[:, depth:-1]
            total = total - (goal * logits.log_softmax(-1)).sum(-1).mean() * 0.8**depth
        return total / sum(0.8**d for d in range(DEPTHS))


def train(w, layer, texts, epochs, batch, peak, limit):
    device = texts.tokens.device
    parameters = list(layer.values())
    optimizer = torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.95), weight_decay=0.0)
    steps_each = texts.tokens.shape[0] // batch
    steps = int(epochs * steps_each)
    rate = lambda s: min(1, (s + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * s / steps))  # noqa
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    begun = time.time()
    step = -1
    while (step := step + 1) < steps:
        if step == 20:  # those before it also warmed up the device
            torch.cuda.synchronize() if device.type == "cuda" else None
            at_20 = time.time()
        if step == 40:
            each = (time.time() - at_20) / 20
            if each * steps > limit:
                steps = int(limit / each)
                print(f"{each:.3f} s a step: {steps} steps instead", flush=True)
        if step % steps_each == 0:
            order = torch.randperm(texts.tokens.shape[0], device=device)
        ids = order[step % steps_each * batch:][:batch]
        part = object.__new__(Texts)
        part.tokens, part.states = texts.tokens[ids], texts.states[ids]
        loss = loss_of(w, layer, part, device.type == "cuda")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 20) == 0 or step == steps - 1:
            print(f"step {step} of {steps}: loss {loss.item():.4f}, {time.time() - begun:.1f} s",
                  flush=True)


def draw_of(logits, number):
    """The token of 40 that a number in [0, 1) chooses at 0.8, the likeliest first."""
    best, ids = logits.topk(40, -1)
    sums = (best / 0.8).softmax(-1).cumsum(-1)
    return ids.gather(-1, (number >= sums).sum(-1, keepdim=True).clamp(max=39))[..., 0]


@torch.no_grad()
def acceptance(w, layer, texts, name):
    """How often the next 1, 2 and 3 tokens are all the layer's likeliest ones."""
    head = w["lm_head.weight"]
    hits = {size: torch.zeros(DEPTHS) for size in SHORT_HEADS}
    rows = own = entropy = same_draw = mean_best = 0
    for begin in range(0, texts.tokens.shape[0], 16):
        part = texts.slice(begin, begin + 16)
        results = drafts(w, layer, part)
        follows = part.tokens[:, 2:]
        model = part.states[:, 1:-1].float() @ head.T
        own += (model.argmax(-1) == follows)[:, :-2].sum().item()
        entropy += torch.distributions.Categorical(logits=model[:, :-2]).entropy().sum().item()
        rows += follows[:, :-2].numel()
        logits = [result[:, :-1] @ head.T for result in results]
        number = torch.rand(model.shape[:2], device=model.device)[..., None]
        drawn = [draw_of(t, number) for t in (model, logits[0])]
        same_draw += (drawn[0] == drawn[1])[:, :-2].sum().item()
        mean_best += (model / 0.8).softmax(-1).amax(-1)[:, :-2].sum().item()
        for size in SHORT_HEADS:
            good = torch.ones_like(follows[:, :-2], dtype=torch.bool)
            for depth in range(DEPTHS):
                end = follows.shape[1] - 2 + depth
                right = logits[depth][:, depth:end, :size].argmax(-1) == follows[:, depth:end]
                good &= right
                hits[size][depth] += good.sum().item()
    print(f"{name}: {rows} rows, entropy {entropy / rows:.3f}, model's own best {own / rows:.4f}, "
          f"at 0.8 {mean_best / rows:.4f}, drawn by one number {same_draw / rows:.4f}")
    for size in SHORT_HEADS:
        print(f"  head of {size}: " + " ".join(f"{h / rows:.4f}" for h in hits[size].tolist()),
              flush=True)


def quantise(name, tensor):
    """Affine, 8 bits, in groups of 64; and what that keeps."""
    groups = tensor.detach().float().unflatten(-1, (-1, GROUP))
    low, high = groups.amin(-1), groups.amax(-1)
    scales = ((high - low) / 255).clamp(min=1e-8).bfloat16()
    biases = low.bfloat16()
    step, begin = scales.float()[..., None], biases.float()[..., None]
    quants = ((groups - begin) / step).round().clamp(0, 255)
    kept = (quants * step + begin).flatten(-2)
    packed = quants.to(torch.uint8).flatten(-2).cpu().contiguous().view(torch.int32)
    stem = name.removesuffix(".weight")
    return {name: packed.view(torch.uint32), f"{stem}.scales": scales.cpu().contiguous(),
            f"{stem}.biases": biases.cpu().contiguous()}, kept


def export(layer, path):
    """Writes the layer; what is left of it is put in its place."""
    file = {}
    for name, tensor in layer.items():
        if tensor.dim() == 1:
            kept = tensor.detach().bfloat16()
            parts = {name: kept.cpu()}
        else:
            parts, kept = quantise(name, tensor)
        file |= {PREFIX + part: value for part, value in parts.items()}
        tensor.data.copy_(kept)
    save_file(file, path, metadata={"format": "pt"})


@torch.no_grad()
def check(w, path):
    """The model's logits against those of a file."""
    golden = load_file(path)
    cpu = {name: tensor.cpu() for name, tensor in w.items()}
    for i in range(3):
        tokens = golden[f"tokens{i}"].long()[None]
        logits = golden[f"logits{i}"]
        first = golden[f"prompt_len{i}"].item() - 1
        texts = Texts(1, tokens.shape[1], torch.device("cpu"))
        write(Writer(cpu, 1, tokens.shape[1]), texts, torch.ones(1), tokens)
        mine = (texts.states[0].float() @ cpu["lm_head.weight"].T)[first:first + len(logits)]
        print(f"check: {(mine - logits).abs().max():.4f} at most off, of {logits.abs().max():.2f}")


def written(w, count, length, temperatures, batch):
    texts = Texts(count, length, temperatures.device)
    writer = Writer(w, batch, length)
    for begin in range(0, count, batch):
        write(writer, texts.slice(begin, begin + batch), temperatures[begin:begin + batch])
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--check")
    parser.add_argument("--sequences", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--train-batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds of training")
    parser.add_argument("--forced", nargs="*", default=[])
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device(options.device)
    begun = time.time()
    w = read_weights(options.folder, device)
    if options.check:
        check(w, options.check)
    held = min(HELD_OUT, options.batch)
    heat = torch.rand(options.sequences, device=device) * 0.5 + 0.5
    texts = written(w, options.sequences, options.length, heat, options.batch)
    sampled = written(w, held, options.length, torch.full((held,), 0.8, device=device), held)
    # Greedy texts would all be the same from one token: each goes on from a sampled beginning.
    begun_greedy = torch.full((held,), 1e-9, device=device)
    greedy = Texts(held, options.length, device)
    print(f"written: {texts.tokens.numel()} tokens, {time.time() - begun:.1f} s", flush=True)
    continue_greedily(w, sampled, greedy, begun_greedy)
    forced = []
    for path in options.forced:
        ids = torch.tensor([int(t) for t in open(path).read().split()], device=device)
        rows = ids[:len(ids) // options.length * options.length].reshape(-1, options.length)
        forced.append((path, Texts(len(rows), options.length, device)))
        write(Writer(w, len(rows), options.length), forced[-1][1],
              torch.ones(len(rows), device=device), rows)
    layer = first_layer(w)
    print(f"parameters: {sum(t.numel() for t in layer.values())}")
    train(w, layer, texts, options.epochs, options.train_batch, options.rate,
          options.limit)
    export(layer, options.out)
    for name, held_out in [("sampled at 0.8", sampled), ("greedy", greedy), *forced]:
        acceptance(w, layer, held_out, name)
    print(f"done: {time.time() - begun:.1f} s")


@torch.no_grad()
def continue_greedily(w, sampled, into, heat):
    """The first 32 tokens of `sampled`, and then the likeliest ones."""
    count, length = into.tokens.shape
    writer = Writer(w, count, length)
    head = w["lm_head.weight"]
    token = sampled.tokens[:, 0].long()
    for t in range(length):
        into.tokens[:, t] = token
        position = torch.full((1,), t, device=token.device)
        state = writer.step(token, position)
        into.states[:, t] = state
        given = t + 1 < min(32, length)
        token = sampled.tokens[:, t + 1].long() if given else (state @ head.T).argmax(-1)


if __name__ == "__main__":
    main()
