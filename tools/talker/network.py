"""The qwen3_5_moe text network in PyTorch, as fable-20m has it: packed documents, one process.

Weights are a dictionary under the names of the checkpoint. Functions take the weights of one layer,
so that torch.compile compiles a kind of layer once. Every expert computes every token and the
router's weights choose among them: with experts of 64 columns that is one plain product.
"""

import glob
import json
import os

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

CHUNK = 64
FORGET = -60.0  # added to the log decay of a document's first token: exp() of it is nothing
SHARD_BYTES_MAX = 15 << 20


def read_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def load_weights(folder, device="cpu"):
    weights = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        weights.update(load_file(path))
    return {name: value.to(device=device, dtype=torch.float32) for name, value in weights.items()}


def save_weights(weights, folder):
    """Shards of bf16, A_log and the gated norm in f32 as the original has them, with an index."""
    shards, sizes = [{}], [0]
    for name, value in weights.items():
        wide = name.endswith(("linear_attn.A_log", "linear_attn.norm.weight"))
        kept = value.detach().to("cpu", torch.float32 if wide else torch.bfloat16).contiguous()
        if sizes[-1] + kept.nbytes > SHARD_BYTES_MAX:
            shards.append({})
            sizes.append(0)
        shards[-1][name] = kept
        sizes[-1] += kept.nbytes
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(shard, os.path.join(folder, file), metadata={"format": "pt"})
        places.update({name: file for name in shard})
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": places}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file, indent=1)


def layer_weights(weights, layer):
    prefix = f"model.layers.{layer}."
    return {name[len(prefix):]: value for name, value in weights.items()
            if name.startswith(prefix)}


def rms_norm(x, weight, eps):
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + weight)).to(x.dtype)


def unit_rows(x):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def route(x, gate, top_k):
    """[tokens, experts]: the renormalised weights of the chosen experts, nothing for the others."""
    scores = F.softmax(F.linear(x.float(), gate), dim=-1)
    best, which = torch.topk(scores, top_k, dim=-1)
    return torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))


def moe(x, w, config):
    inner = config["moe_intermediate_size"]
    hidden = x.shape[-1]
    with torch.autocast(x.device.type, enabled=False):
        routes = route(x, w["mlp.gate.weight"], config["num_experts_per_tok"])
    gate_up = w["mlp.experts.gate_up_proj"]
    gate = F.linear(x, gate_up[:, :inner].reshape(-1, hidden))
    up = F.linear(x, gate_up[:, inner:].reshape(-1, hidden))
    middle = (F.silu(gate) * up).reshape(*x.shape[:-1], -1, inner) * routes.to(gate.dtype)[...,
                                                                                           None]
    down = w["mlp.experts.down_proj"].permute(1, 0, 2).reshape(hidden, -1)
    routed = F.linear(middle.flatten(-2), down)
    shared = F.linear(F.silu(F.linear(x, w["mlp.shared_expert.gate_proj.weight"]))
                      * F.linear(x, w["mlp.shared_expert.up_proj.weight"]),
                      w["mlp.shared_expert.down_proj.weight"])
    return routed + torch.sigmoid(F.linear(x, w["mlp.shared_expert_gate.weight"])) * shared


def convolve(x, kernel, document):
    """Causal depthwise convolution that does not look into the document before."""
    out = x * kernel[:, 0, -1]
    for back in range(1, kernel.shape[-1]):
        before = F.pad(x, (0, 0, back, 0))[:, :-back]
        same = F.pad(document, (back, 0), value=-1)[:, :-back] == document
        out = out + before * same[..., None] * kernel[:, 0, -1 - back]
    return F.silu(out)


def delta_inputs(x, w, config, convolved):
    """q, k [.., heads, 64] of unit length, v, beta, log decay, from the convolved projections."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    width = config["linear_key_head_dim"]
    q, k, v = convolved.split([keys * width, keys * width,
                               values * config["linear_value_head_dim"]], dim=-1)
    shape = (*x.shape[:-1], keys, width)
    repeat = values // keys
    q = unit_rows(q.reshape(shape)).repeat_interleave(repeat, -2) * width**-0.5
    k = unit_rows(k.reshape(shape)).repeat_interleave(repeat, -2)
    v = v.reshape(*x.shape[:-1], values, -1).float()
    beta = torch.sigmoid(F.linear(x, w["linear_attn.in_proj_b.weight"]).float())
    step = F.linear(x, w["linear_attn.in_proj_a.weight"]).float() + w["linear_attn.dt_bias"]
    return q, k, v, beta, -w["linear_attn.A_log"].exp() * F.softplus(step)


def inverse_of_unit_lower(a):
    """(I + a)^-1 of a strictly lower triangular a, from blocks of 4 to pairs of blocks, and so on.

    A block of 4 is I - a + a^2 - a^3. Powers of more would grow and cancel where keys are alike.
    """
    size, width = a.shape[-1], 4
    count = size // width
    blocks = a.unflatten(-1, (count, width)).unflatten(-3, (count, width))
    own = -blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
    eye = torch.eye(width, device=a.device, dtype=a.dtype)
    inverse = eye + own @ (eye + own @ (eye + own))
    while width < size:
        count = size // (2 * width)
        pairs = a.unflatten(-1, (count, 2, width)).unflatten(-4, (count, 2, width))
        below = pairs[..., 1, :, :, 0, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = -second @ below @ first
        upper = torch.cat([first, torch.zeros_like(first)], -1)
        inverse = torch.cat([upper, torch.cat([corner, second], -1)], -2)
        width *= 2
    return inverse.squeeze(-3)


def delta_rule(q, k, v, beta, decay):
    """[batch, heads, tokens, width]; chunks of 64 as products, from chunk to chunk in order.

    Within a chunk the corrections u of all tokens solve (I + A) u = beta (v - e^G k S), where G is
    the sum of log decays since the chunk began and S the state before it.
    """
    batch, heads, tokens, width = q.shape
    parts = (batch, heads, tokens // CHUNK, CHUNK)
    q, k, v = (t.reshape(*parts, -1) for t in (q, k, v))
    beta, total = beta.reshape(parts)[..., None], decay.reshape(parts).cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    between = (total[..., :, None] - total[..., None, :]).masked_fill(later, -1e4).exp()
    grown = total[..., None].exp()
    a = (beta * (k @ k.transpose(-1, -2)) * between).tril(-1)
    solve = inverse_of_unit_lower(a)
    own = solve @ (beta * v)
    from_state = solve @ (beta * grown * k)
    inside = (q @ k.transpose(-1, -2)) * between
    reads = q * grown
    left = k * (total[..., -1:] - total)[..., None].exp()
    kept = total[..., -1].exp()[..., None, None]
    state = torch.zeros(batch, heads, width, v.shape[-1], device=q.device, dtype=q.dtype)
    outs = []
    for i in range(tokens // CHUNK):
        u = own[:, :, i] - from_state[:, :, i] @ state
        outs.append(reads[:, :, i] @ state + inside[:, :, i] @ u)
        state = kept[:, :, i] * state + left[:, :, i].transpose(-1, -2) @ u
    return torch.cat(outs, dim=2)


def gated_norm(out, z, weight, eps):
    normed = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + eps) * weight
    return normed * F.silu(z.float())


def linear_mixer(x, w, config, document, first):
    convolved = convolve(F.linear(x, w["linear_attn.in_proj_qkv.weight"]),
                         w["linear_attn.conv1d.weight"], document)
    z = F.linear(x, w["linear_attn.in_proj_z.weight"])
    with torch.autocast(x.device.type, enabled=False):
        q, k, v, beta, decay = delta_inputs(x.float(), w, config, convolved.float())
        decay = decay + FORGET * first[..., None]
        out = delta_rule(*(t.transpose(1, 2) for t in (q, k, v)),
                         *(t.transpose(1, 2) for t in (beta, decay))).transpose(1, 2)
        out = gated_norm(out, z.reshape(out.shape), w["linear_attn.norm.weight"],
                         config["rms_norm_eps"])
    return F.linear(out.flatten(-2).to(x.dtype), w["linear_attn.out_proj.weight"])


def rotate(x, position, config):
    width = int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"])
    theta = config["rope_parameters"]["rope_theta"]
    steps = torch.arange(0, width, 2, device=x.device).float() / width
    angle = position[..., None, None].float() * theta**-steps
    cos, sin = angle.cos(), angle.sin()
    a, b, rest = x[..., : width // 2], x[..., width // 2: width], x[..., width:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest.float()], -1)


def attention_inputs(x, w, config, position):
    """q, gate, k, v as [batch, tokens, heads, width]; q and k normed and rotated."""
    width, eps = config["head_dim"], config["rms_norm_eps"]
    q, gate = F.linear(x, w["self_attn.q_proj.weight"]).reshape(
        *x.shape[:-1], -1, 2 * width).chunk(2, -1)
    k = F.linear(x, w["self_attn.k_proj.weight"]).reshape(*x.shape[:-1], -1, width)
    v = F.linear(x, w["self_attn.v_proj.weight"]).reshape(*x.shape[:-1], -1, width)
    q = rotate(rms_norm(q, w["self_attn.q_norm.weight"], eps), position, config).to(v.dtype)
    k = rotate(rms_norm(k, w["self_attn.k_norm.weight"], eps), position, config).to(v.dtype)
    return q, gate, k, v


def full_mixer(x, w, config, mask, position):
    q, gate, k, v = attention_inputs(x, w, config, position)
    repeat = config["num_attention_heads"] // config["num_key_value_heads"]
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(repeat, 1),
        v.transpose(1, 2).repeat_interleave(repeat, 1), attn_mask=mask)
    out = out.transpose(1, 2) * torch.sigmoid(gate)
    return F.linear(out.flatten(-2), w["self_attn.o_proj.weight"])


def linear_layer(x, w, config, document, first):
    eps = config["rms_norm_eps"]
    x = x + linear_mixer(rms_norm(x, w["input_layernorm.weight"], eps), w, config, document, first)
    return x + moe(rms_norm(x, w["post_attention_layernorm.weight"], eps), w, config)


def full_layer(x, w, config, mask, position, experts=moe):
    eps = config["rms_norm_eps"]
    x = x + full_mixer(rms_norm(x, w["input_layernorm.weight"], eps), w, config, mask, position)
    return x + experts(rms_norm(x, w["post_attention_layernorm.weight"], eps), w, config)


class Network:
    """`document` [batch, tokens] numbers the packed documents of a row, `position` counts in it.

    `compiled`: 0 for nothing, 1 for experts, 2 for linear layers too."""

    def __init__(self, config, compiled=0):
        self.config, self.compiled = config, compiled
        self.linear_layer, self.moe = linear_layer, moe
        if compiled > 0:
            self.moe = torch.compile(moe, dynamic=False)
        if compiled > 1:
            self.linear_layer = torch.compile(linear_layer, dynamic=False)

    def hidden(self, weights, ids, document, position):
        """The last norm's rows; tokens must be a multiple of CHUNK."""
        first = (position == 0).float()
        tokens = ids.shape[1]
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=ids.device).tril()
        mask = (causal & (document[:, :, None] == document[:, None, :]))[:, None]
        x = F.embedding(ids, weights["model.embed_tokens.weight"])
        for layer, kind in enumerate(self.config["layer_types"]):
            w = layer_weights(weights, layer)
            if kind == "linear_attention":
                x = self.linear_layer(x, w, self.config, document, first)
            else:
                x = full_layer(x, w, self.config, mask, position, self.moe)
        return rms_norm(x, weights["model.norm.weight"], self.config["rms_norm_eps"])

    def logits(self, weights, hidden):
        return F.linear(hidden, weights["lm_head.weight"])
