"""A model that says what its template asks for, word by word: for tests of what stands around it.

One layer of zeros, embeddings of which each is a direction of its own, and a head that maps every
token to the one that follows it. A script is a list of words, each of them a token that no other
script has; its name is a token too, which a template puts at the end of the prompt: "<|NAME|>".
"""

import json
import os
import struct

END, BEGIN = "<|im_end|>", "<|im_start|>"
LAYER = "model.layers.0."


def byte_letters():
    """The letter that byte-level vocabularies write for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain},
            **{byte: chr(256 + i) for i, byte in enumerate(others)}}


class Vocabulary:
    """All bytes, the special tokens and the words of all scripts."""

    def __init__(self, scripts, specials):
        self.letters = byte_letters()
        self.ids = {letter: byte for byte, letter in self.letters.items()}
        self.specials = [END, BEGIN, *(f"<|{name}|>" for name in scripts), *specials]
        for name in self.specials:
            self.ids[name] = len(self.ids)
        for words in scripts.values():
            for word in words:
                assert self.spell(word) not in self.ids, f"{word!r} is in two places"
                self.ids[self.spell(word)] = len(self.ids)

    def spell(self, word):
        return "".join(self.letters[byte] for byte in word.encode())

    def json(self):
        added = [{"id": self.ids[name], "content": name, "single_word": False, "lstrip": False,
                  "rstrip": False, "normalized": False, "special": True}
                 for name in self.specials]
        return {"version": "1.0", "added_tokens": added, "normalizer": None,
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                  "trim_offsets": True, "use_regex": True},
                "post_processor": None, "decoder": {"type": "ByteLevel"},
                "model": {"type": "BPE", "dropout": None, "unk_token": None,
                          "continuing_subword_prefix": None, "end_of_word_suffix": None,
                          "fuse_unk": False, "byte_fallback": False, "vocab": self.ids,
                          "merges": []}}


def half(rows, columns, numbers):
    """A matrix of zeros with `numbers` {(row, column): value}."""
    data = bytearray(2 * rows * columns)
    for (row, column), value in numbers.items():
        struct.pack_into("<e", data, 2 * (row * columns + column), value)
    return [rows, columns], bytes(data)


def ones(size):
    return [size], struct.pack("<e", 1.0) * size


def write_tensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def matrices(vocabulary, scripts, size):
    """The embeddings and the head: whatever follows no word of a script is followed by the end."""
    end = vocabulary.ids[END]
    follows = {i: end for i in range(size)}
    for name, words in scripts.items():
        last = vocabulary.ids[f"<|{name}|>"]
        for word in words:
            follows[last] = vocabulary.ids[vocabulary.spell(word)]
            last = follows[last]
    return {"lm_head.weight": half(size, size, {(b, a): 4.0 for a, b in follows.items()}),
            "model.embed_tokens.weight": half(size, size, {(i, i): 1.0 for i in range(size)})}


def write(folder, scripts, chat_template, specials=(), context=4096):
    """A model in `folder` that says `scripts` {name: words}. Its other tokens: `specials`."""
    vocabulary = Vocabulary(scripts, specials)
    size = -(-len(vocabulary.ids) // 64) * 64
    tensors = matrices(vocabulary, scripts, size)
    for name, rows, columns in (("mlp.gate", 2, size), ("self_attn.q_proj", 64, size),
                                ("self_attn.k_proj", 32, size), ("self_attn.v_proj", 32, size),
                                ("self_attn.o_proj", size, 64)):
        tensors[f"{LAYER}{name}.weight"] = half(rows, columns, {})
    for expert in range(2):
        for name, rows, columns in (("gate_proj", 64, size), ("up_proj", 64, size),
                                    ("down_proj", size, 64)):
            tensors[f"{LAYER}mlp.experts.{expert}.{name}.weight"] = half(rows, columns, {})
    for name, width in ((f"{LAYER}input_layernorm", size), ("model.norm", size),
                        (f"{LAYER}post_attention_layernorm", size),
                        (f"{LAYER}self_attn.q_norm", 32), (f"{LAYER}self_attn.k_norm", 32)):
        tensors[f"{name}.weight"] = ones(width)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    config = {"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False,
              "decoder_sparse_step": 1, "eos_token_id": vocabulary.ids[END], "head_dim": 32,
              "hidden_act": "silu", "hidden_size": size, "intermediate_size": 128,
              "max_position_embeddings": context, "mlp_only_layers": [],
              "model_type": "qwen3_moe", "moe_intermediate_size": 64, "norm_topk_prob": True,
              "num_attention_heads": 2, "num_experts": 2, "num_experts_per_tok": 2,
              "num_hidden_layers": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": size}
    for name, content in (("config.json", config), ("tokenizer.json", vocabulary.json()),
                          ("tokenizer_config.json", {"eos_token": END, "bos_token": None})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(chat_template)
