#!/usr/bin/env python3
"""Writes models/fable-20m, or the 16-bit weights it was made from, as GGUF for other programs.

    story_gguf.py MODEL_FOLDER OUT.gguf        (needs numpy and gguf; made with gguf 0.19.0)

Matrices of 16 bits stay as they are (BF16); affine ones are decoded to F32. Names, keys and the
order of heads are those that llama.cpp's converter writes for qwen35moe. tests/golden/saved_logits
has what llama-perplexity then makes of the decoded models/fable-20m:

    llama-perplexity -m OUT.gguf -f TEXT -c 10 -b 10 --chunks 2 --kl-divergence-base FILE
"""
import glob
import json
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

ARCHITECTURE = "qwen35moe"
CONTROL, NORMAL = 3, 1  # kinds of tokens


def bf16(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


def read_tensors(folder):
    tensors = {}
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        with open(path, "rb") as file:
            data = file.read()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            first, end = (begin + offset for offset in entry["data_offsets"])
            kind = {"BF16": np.uint16, "F32": np.float32, "U32": np.uint32}[entry["dtype"]]
            array = np.frombuffer(data[first:end], kind).reshape(entry["shape"])
            tensors[name.removeprefix("language_model.")] = (
                bf16(array) if kind == np.uint16 else array)
    return tensors


def decode_affine(tensors):
    """Groups of 64 codes with scale and bias, as numbers; True if there are any."""
    names = [name[:-len(".scales")] for name in tensors if name.endswith(".scales")]
    for name in names:
        words, scales, biases = (tensors.pop(f"{name}.{part}")
                                 for part in ("weight", "scales", "biases"))
        bits = words.shape[-1] * 32 // (scales.shape[-1] * 64)
        codes = words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32) & (1 << bits) - 1
        values = codes.reshape(*scales.shape, 64) * scales[..., None] + biases[..., None]
        tensors[name + ".weight"] = values.astype(np.float32).reshape(*scales.shape[:-1], -1)
    return bool(names)


class Converter:
    def __init__(self, folder):
        with open(folder + "/config.json", encoding="utf-8") as file:
            config = json.load(file)
        self.config = config.get("text_config", config)
        self.tensors = read_tensors(folder)
        self.decoded = decode_affine(self.tensors)
        self.out = {}

    def norm(self, name):
        # Files of 16 bits hold the difference to one, MLX's the whole factor.
        return self.tensors[name] + (0 if self.decoded else 1)

    def heads(self, array, axis, size):
        """Value heads from the order of their key heads to round robin over key heads."""
        keys = self.config["linear_num_key_heads"]
        values = self.config["linear_num_value_heads"]
        order = [p % keys * (values // keys) + p // keys for p in range(values)]
        shape = list(array.shape)
        shape[axis:axis + 1] = [values, size]
        return np.take(array.reshape(shape), order, axis=axis).reshape(array.shape)

    def value_rows(self, array):
        """The same of what follows queries and keys."""
        first = 2 * self.config["linear_num_key_heads"] * self.config["linear_key_head_dim"]
        rows = self.heads(array[first:], 0, self.config["linear_value_head_dim"])
        return np.concatenate([array[:first], rows])

    def convert(self):
        t, out = self.tensors, self.out
        out["token_embd.weight"] = t["model.embed_tokens.weight"]
        out["output.weight"] = t["lm_head.weight"]
        out["output_norm.weight"] = self.norm("model.norm.weight")
        for i, kind in enumerate(self.config["layer_types"]):
            source, to = f"model.layers.{i}.", f"blk.{i}."
            out[to + "attn_norm.weight"] = self.norm(source + "input_layernorm.weight")
            out[to + "post_attention_norm.weight"] = self.norm(
                source + "post_attention_layernorm.weight")
            self.mlp(source + "mlp.", to + "ffn_")
            if kind == "full_attention":
                self.attention(source + "self_attn.", to + "attn_")
            else:
                self.delta(source + "linear_attn.", to)
        return {name: np.ascontiguousarray(array, np.float32) for name, array in out.items()}

    def mlp(self, source, to):
        t, out = self.tensors, self.out
        out[to + "gate_inp.weight"] = t[source + "gate.weight"]
        out[to + "gate_inp_shexp.weight"] = t[source + "shared_expert_gate.weight"].reshape(-1)
        for part in ("gate", "up", "down"):
            out[f"{to}{part}_shexp.weight"] = t[f"{source}shared_expert.{part}_proj.weight"]
            if self.decoded:
                out[f"{to}{part}_exps.weight"] = t[f"{source}switch_mlp.{part}_proj.weight"]
        if not self.decoded:
            both = t[source + "experts.gate_up_proj"]
            gate, up = np.split(both, 2, axis=1)
            out[to + "gate_exps.weight"], out[to + "up_exps.weight"] = gate, up
            out[to + "down_exps.weight"] = t[source + "experts.down_proj"]

    def attention(self, source, to):
        for name, part in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
            self.out[f"{to}{part}.weight"] = self.tensors[f"{source}{name}_proj.weight"]
        for name in ("q", "k"):
            self.out[f"{to}{name}_norm.weight"] = self.norm(f"{source}{name}_norm.weight")

    def delta(self, source, to):
        t, out = self.tensors, self.out
        size = self.config["linear_value_head_dim"]
        taps = self.config["linear_conv_kernel_dim"]
        out[to + "attn_qkv.weight"] = self.value_rows(t[source + "in_proj_qkv.weight"])
        out[to + "attn_gate.weight"] = self.heads(t[source + "in_proj_z.weight"], 0, size)
        out[to + "ssm_alpha.weight"] = self.heads(t[source + "in_proj_a.weight"], 0, 1)
        out[to + "ssm_beta.weight"] = self.heads(t[source + "in_proj_b.weight"], 0, 1)
        out[to + "ssm_a"] = -np.exp(self.heads(t[source + "A_log"], 0, 1))
        out[to + "ssm_dt.bias"] = self.heads(t[source + "dt_bias"], 0, 1)
        conv = self.value_rows(t[source + "conv1d.weight"])
        out[to + "ssm_conv1d.weight"] = conv.reshape(-1, taps)
        out[to + "ssm_norm.weight"] = t[source + "norm.weight"]
        out[to + "ssm_out.weight"] = self.heads(t[source + "out_proj.weight"], 1, size)


def stays_f32(name):
    return (not name.endswith(".weight") or "norm" in name or "gate_inp" in name
            or "conv1d" in name)


def write_keys(writer, config):
    rope = config["rope_parameters"]
    values = config["linear_num_value_heads"]
    for key, value in {
            "block_count": config["num_hidden_layers"],
            "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"],
            "attention.head_count": config["num_attention_heads"],
            "attention.head_count_kv": config["num_key_value_heads"],
            "attention.key_length": config["head_dim"],
            "attention.value_length": config["head_dim"],
            "expert_count": config["num_experts"],
            "expert_used_count": config["num_experts_per_tok"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
            "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
            "ssm.conv_kernel": config["linear_conv_kernel_dim"],
            "ssm.state_size": config["linear_key_head_dim"],
            "ssm.group_count": config["linear_num_key_heads"],
            "ssm.time_step_rank": values,
            "ssm.inner_size": values * config["linear_value_head_dim"],
            "full_attention_interval": config["layer_types"].index("full_attention") + 1,
            "rope.dimension_count": int(config["head_dim"] * rope["partial_rotary_factor"]),
    }.items():
        writer.add_uint32(f"{ARCHITECTURE}.{key}", value)
    writer.add_float32(ARCHITECTURE + ".rope.freq_base", rope["rope_theta"])
    writer.add_float32(ARCHITECTURE + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    writer.add_array(ARCHITECTURE + ".rope.dimension_sections", rope["mrope_section"] + [0])


def write_vocabulary(writer, folder):
    with open(folder + "/tokenizer.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    ids = dict(tokenizer["model"]["vocab"])
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    ids.update(added)
    tokens = sorted(ids, key=ids.get)
    assert [ids[token] for token in tokens] == list(range(len(tokens)))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in added else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(added["<|endoftext|>"])


def main(folder, target):
    converter = Converter(folder)
    writer = GGUFWriter(target, ARCHITECTURE)
    write_keys(writer, converter.config)
    write_vocabulary(writer, folder)
    for name, array in converter.convert().items():
        if converter.decoded or stays_f32(name):
            writer.add_tensor(name, array)
            continue
        halves = (array.view(np.uint32) >> 16).astype(np.uint16)
        assert (bf16(halves) == array).all(), name
        writer.add_tensor(name, halves.view(np.uint8).reshape(*array.shape[:-1], -1),
                          raw_dtype=GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
