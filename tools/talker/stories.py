"""Stories that the model tells by itself, many at a time: what fine-tuning must not unlearn."""

import torch
import torch.nn.functional as F

from network import (attention_inputs, delta_inputs, gated_norm, layer_weights, moe, rms_norm)

# What a story in a dialogue begins with; {x} is its hero.
OPENINGS = ["Once upon a time there was {ax}", "There was once {ax} who", "Once there lived {ax}",
            "In a forest there lived {ax}", "Long ago there was {ax}",
            "Far away there lived {ax} who"]
HEROES = ("king queen prince princess boy girl giant witch dragon castle shepherd fisherman "
          "soldier "
          "merchant dwarf fairy ship tree miller tailor thief sailor").split()


class Memory:
    """The states of `count` texts of up to `length` tokens, evaluated one token at a time."""

    def __init__(self, weights, config, count, length):
        self.config = config
        self.layers = [layer_weights(weights, i) for i in range(config["num_hidden_layers"])]
        self.weights, self.length, self.position = weights, length, 0
        self.device = weights["lm_head.weight"].device
        heads, width = config["linear_num_value_heads"], config["linear_key_head_dim"]
        keys, head = config["num_key_value_heads"], config["head_dim"]
        self.states = []
        for w, kind in zip(self.layers, config["layer_types"]):
            if kind == "linear_attention":
                channels, _, taps = w["linear_attn.conv1d.weight"].shape
                shapes = [(count, taps - 1, channels), (count, heads, width, width)]
            else:
                shapes = [(count, length, keys, head)] * 2
            self.states.append([torch.zeros(shape, device=self.device) for shape in shapes])

    def step(self, tokens):
        """The logits behind these tokens, one of each text."""
        eps = self.config["rms_norm_eps"]
        x = F.embedding(tokens, self.weights["model.embed_tokens.weight"])
        for w, state, kind in zip(self.layers, self.states, self.config["layer_types"]):
            normed = rms_norm(x, w["input_layernorm.weight"], eps)
            mixer = self._delta if kind == "linear_attention" else self._attend
            x = x + mixer(normed, w, state)
            x = x + moe(rms_norm(x, w["post_attention_layernorm.weight"], eps), w, self.config)
        self.position += 1
        return F.linear(rms_norm(x, self.weights["model.norm.weight"], eps),
                        self.weights["lm_head.weight"])

    def _delta(self, x, w, state):
        window = torch.cat([state[0], F.linear(x, w["linear_attn.in_proj_qkv.weight"])[:, None]], 1)
        state[0] = window[:, 1:]
        convolved = F.silu((window * w["linear_attn.conv1d.weight"][:, 0].t()).sum(1))
        q, k, v, beta, decay = delta_inputs(x, w, self.config, convolved)
        held = state[1] * decay.exp()[..., None, None]
        error = beta[..., None] * (v - (held * k[..., None]).sum(-2))
        state[1] = held + k[..., None] * error[..., None, :]
        out = (state[1] * q[..., None]).sum(-2)
        z = F.linear(x, w["linear_attn.in_proj_z.weight"]).reshape(out.shape)
        out = gated_norm(out, z, w["linear_attn.norm.weight"], self.config["rms_norm_eps"])
        return F.linear(out.flatten(-2), w["linear_attn.out_proj.weight"])

    def _attend(self, x, w, state):
        position = torch.full((x.shape[0],), self.position, device=self.device)
        q, gate, k, v = attention_inputs(x, w, self.config, position)
        state[0][:, self.position], state[1][:, self.position] = k, v
        keys, values = (part[:, : self.position + 1] for part in state)
        repeat = q.shape[1] // keys.shape[2]
        q = q.reshape(q.shape[0], keys.shape[2], repeat, -1)
        scores = torch.einsum("bkrd,btkd->bkrt", q, keys) * q.shape[-1] ** -0.5
        out = torch.einsum("bkrt,btkd->bkrd", scores.softmax(-1), values)
        out = out.reshape(gate.shape) * torch.sigmoid(gate)
        return F.linear(out.flatten(-2), w["self_attn.o_proj.weight"])


def draw_tokens(logits, temperature, top_k, generator):
    logits = logits.float() / temperature
    if top_k:
        least = logits.topk(top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


@torch.no_grad()
def continue_texts(weights, config, prompts, length, generator, temperature=1.0, top_k=0):
    """[texts, length]: each prompt, a list of ids, and what the model draws behind it."""
    device = weights["lm_head.weight"].device
    memory = Memory(weights, config, len(prompts), length)
    given = torch.full((len(prompts), length), -1, device=device)
    for row, prompt in enumerate(prompts):
        given[row, : len(prompt)] = torch.tensor(prompt, device=device)
    texts = given.clone()
    for i in range(length - 1):
        drawn = draw_tokens(memory.step(texts[:, i]), temperature, top_k, generator)
        texts[:, i + 1] = torch.where(given[:, i + 1] >= 0, given[:, i + 1], drawn)
    return texts
