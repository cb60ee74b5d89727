#!/usr/bin/env python3
"""A small random model whose matrices are Q4_1, IQ3_XXS, NVFP4, MXFP4, F16 and BF16.

Writes TARGET/model.gguf, an architecture qwen3moe of two layers, and TARGET/golden.safetensors:
what transformers computes in float32 from the numbers that llama.cpp's Python package decodes. No
choice of a router is near another. With a TYPE that the package writes, TQ1_0 for example, all
matrices of one layer are of that type, and their rows of 256 numbers.

usage: mixed_gguf.py TARGET [TYPE] (gguf 0.19, transformers 5.24, torch 2.11, safetensors)
"""
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.torch import save_file

ONLY = Type[sys.argv[2]] if len(sys.argv) > 2 else None
HIDDEN, EXPERTS, CHOSEN, HEADS, KV_HEADS, VOCAB = 256, 4, 2, 4, 2, 64
WIDTH, HEAD = (256, 64) if ONLY else (64, 32)
TOKENS = 24
MARGIN = 1e-3  # of the probability of the last expert chosen over the next
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate"}
LAYERS = [
    {"attn_q": Type.IQ3_XXS, "attn_k": Type.MXFP4, "attn_v": Type.NVFP4, "attn_output": Type.Q4_1,
     "ffn_gate_exps": Type.IQ3_XXS, "ffn_up_exps": Type.IQ3_XXS, "ffn_down_exps": Type.NVFP4},
    {"attn_q": Type.NVFP4, "attn_k": Type.F16, "attn_v": Type.BF16, "attn_output": Type.MXFP4,
     "ffn_gate_exps": Type.MXFP4, "ffn_up_exps": Type.NVFP4, "ffn_down_exps": Type.Q4_1}]
if ONLY:
    LAYERS = [dict.fromkeys(LAYERS[0], ONLY)]


def random_bytes(kind, shape, random):
    """Blocks of a type that the package decodes and does not write."""
    width, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (int(np.prod(shape)) // width, size), dtype=np.uint8)
    if kind == Type.IQ3_XXS:  # a scale for 256 numbers
        scales = (random.uniform(0.5, 1, len(blocks)) * 1e-3).astype(np.float16)
        blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
    else:  # NVFP4: E4M3 without a sign for 16 numbers
        blocks[:, :4] = random.integers(0x20, 0x30, (len(blocks), 4))
    return blocks.reshape(*shape[:-1], -1)


class Writer:
    def __init__(self, path):
        self.file = gguf.GGUFWriter(path, "qwen3moe")
        self.random = np.random.default_rng(5)
        self.values = {}

    def matrix(self, name, kind, *shape):
        if kind in (Type.IQ3_XXS, Type.NVFP4):
            data = random_bytes(kind, shape, self.random)
        else:
            plain = self.random.standard_normal(shape).astype(np.float32) / np.sqrt(shape[-1])
            data = gguf.quants.quantize(plain, kind)
        values = gguf.quants.dequantize(data, kind).reshape(shape)
        self.file.add_tensor(name + ".weight", data, raw_dtype=kind)
        if kind == Type.NVFP4:
            scale = self.random.uniform(0.1, 0.3, shape[0] if len(shape) == 3 else 1)
            scale = scale.astype(np.float32)
            self.file.add_tensor(name + ".scale", scale)
            values = values * scale.reshape(-1, *[1] * (len(shape) - 1))
        self.values[name] = torch.from_numpy(values.astype(np.float32))

    def floats(self, name, values):
        values = values.astype(np.float32)
        self.file.add_tensor(name + ".weight", values)
        self.values[name] = torch.from_numpy(values)

    def norm(self, name, width):
        self.floats(name, 1 + 0.2 * self.random.standard_normal(width))


def write(path):
    w = Writer(path)
    f = w.file
    f.add_context_length(512)
    f.add_embedding_length(HIDDEN)
    f.add_block_count(len(LAYERS))
    f.add_feed_forward_length(WIDTH)
    f.add_expert_feed_forward_length(WIDTH)
    f.add_head_count(HEADS)
    f.add_head_count_kv(KV_HEADS)
    f.add_key_length(HEAD)
    f.add_value_length(HEAD)
    f.add_rope_freq_base(10000.0)
    f.add_layer_norm_rms_eps(1e-6)
    f.add_expert_count(EXPERTS)
    f.add_expert_used_count(CHOSEN)
    f.add_vocab_size(VOCAB)
    f.add_tokenizer_model("none")
    w.matrix("token_embd", ONLY or Type.Q4_1, VOCAB, HIDDEN)
    w.matrix("output", ONLY or Type.F16, VOCAB, HIDDEN)
    w.norm("output_norm", HIDDEN)
    shapes = {"attn_q": (HEADS * HEAD, HIDDEN), "attn_k": (KV_HEADS * HEAD, HIDDEN),
              "attn_v": (KV_HEADS * HEAD, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD),
              "ffn_gate_exps": (EXPERTS, WIDTH, HIDDEN), "ffn_up_exps": (EXPERTS, WIDTH, HIDDEN),
              "ffn_down_exps": (EXPERTS, HIDDEN, WIDTH)}
    for layer, kinds in enumerate(LAYERS):
        for name, kind in kinds.items():
            w.matrix(f"blk.{layer}.{name}", kind, *shapes[name])
        w.floats(f"blk.{layer}.ffn_gate_inp", w.random.standard_normal((EXPERTS, HIDDEN)) / 8)
        for name, width in {"attn_norm": HIDDEN, "ffn_norm": HIDDEN, "attn_q_norm": HEAD,
                            "attn_k_norm": HEAD}.items():
            w.norm(f"blk.{layer}.{name}", width)
    f.write_header_to_file()
    f.write_kv_data_to_file()
    f.write_tensors_to_file()
    f.close()
    return w.values


def reference(values):
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=WIDTH,
        num_hidden_layers=len(LAYERS), num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        head_dim=HEAD, num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN, moe_intermediate_size=WIDTH, norm_topk_prob=True,
        rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.Qwen3MoeForCausalLM(config).float().eval()
    state = {"model.embed_tokens.weight": values["token_embd"],
             "model.norm.weight": values["output_norm"], "lm_head.weight": values["output"]}
    for layer in range(len(LAYERS)):
        own, to = f"blk.{layer}.", f"model.layers.{layer}."
        for name, place in NAMES.items():
            state[f"{to}{place}.weight"] = values[own + name]
        both = [values[own + name] for name in ("ffn_gate_exps", "ffn_up_exps")]
        state[to + "mlp.experts.gate_up_proj"] = torch.cat(both, 1)
        state[to + "mlp.experts.down_proj"] = values[own + "ffn_down_exps"]
    model.load_state_dict(state)
    return model


def main(target):
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    model = reference(write(target / "model.gguf"))
    margins = []
    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(
            lambda gate, inputs, _: margins.append(torch.topk(torch.softmax(
                inputs[0].reshape(-1, HIDDEN) @ gate.weight.T, -1), CHOSEN + 1).values))
    for seed in range(1000):
        tokens = torch.randint(0, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(seed))
        margins.clear()
        with torch.no_grad():
            logits = model(input_ids=tokens[None]).logits[0]
        best = torch.cat(margins)
        if (best[:, CHOSEN - 1] - best[:, CHOSEN]).min() > MARGIN:
            break
    else:
        raise SystemExit("every text has a choice near another")
    save_file({"tokens": tokens.int(), "logits": logits}, target / "golden.safetensors")
    print(seed, logits.std().item())


if __name__ == "__main__":
    main(sys.argv[1])
