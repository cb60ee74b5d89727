#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/tiktoken-*: small rank tables in the form of tiktoken.model, with
what the `tiktoken` library (PyPI) makes of the texts of inputs.json by Kimi's pattern.

Usage: tiktoken_golden.py
Run tokenizer_golden.py first when its files are to change: the inputs and the tokens come from it.

Two tables. "tiktoken-trained" ranks its tokens as training made them. "tiktoken-shuffled" adds
stretches of text as tokens and ranks all of them at random, so that merges need not come in order
of rank and a token may have several pairs of halves, or none.
"""

import base64
import json
import pathlib
import random

import tiktoken

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer"
RESERVED = 256

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        f"{LEAD}{UPPER}*{LOWER}+{ENDING}",
        f"{LEAD}{UPPER}+{LOWER}*{ENDING}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# By place after the ranks, with "special".
ADDED = {
    0: ("[BOS]", True),
    1: ("[EOS]", True),
    2: ("<|im_end|>", True),
    3: ("<|im_user|>", True),
    4: ("<|im_assistant|>", True),
    9: ("[EOT]", True),
    10: ("<|im_system|>", True),
    17: ("<|im_middle|>", True),
    22: ("<think>", False),
    23: ("</think>", False),
    254: ("[UNK]", True),
    255: ("[PAD]", True),
}

RUNS = ["a", "A", " ", "\n", "1", "!", "\u6f22", "ab", " \n", "\u0301", "'s", "the ", "\U0001f600"]


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    pairs = [(chr(b), b) for b in printable] + [(chr(256 + i), b) for i, b in enumerate(others)]
    return dict(pairs)


def trained():
    """The tokens of kimi.tokenizer.json in the order of their making."""
    spec = json.loads((OUT / "kimi.tokenizer.json").read_text(encoding="utf-8"))
    alphabet = byte_alphabet()
    tokens = [bytes([b]) for b in range(256)]
    for merge in spec["model"]["merges"]:
        token = bytes(alphabet[c] for c in merge.replace(" ", ""))
        if token not in tokens:
            tokens.append(token)
    return tokens


def shuffled(rng):
    sample = (OUT / "sample.txt").read_bytes()
    tokens = trained()
    known = set(tokens)
    while len(tokens) < 1500:
        length = rng.randrange(2, 9)
        begin = rng.randrange(len(sample) - length)
        token = sample[begin : begin + length]
        if token not in known:
            known.add(token)
            tokens.append(token)
    for unit in ("a", " ", "\u6f22", "ab"):
        for count in (2, 3, 5, 7):
            token = (unit * count).encode()
            if token not in known:
                known.add(token)
                tokens.append(token)
    rng.shuffle(tokens)
    return tokens


def fnv1a(ids):
    value = 0xCBF29CE484222325
    for i in ids:
        value = ((value ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def read_inputs():
    for item in json.loads((OUT / "inputs.json").read_text()):
        data = item["text"].encode() if "text" in item else bytes.fromhex(item["hex"])
        yield data.decode("utf-8", errors="replace")


def extra_texts(base):
    yield (
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>"
        "\u4f60\u597d, who're you?<|im_end|><|im_assistant|>assistant<|im_middle|>"
    )
    yield "<think>I'm thinking</think> [BOS] x[EOS][EOT]  [UNK]\n[PAD] [ BOS] [bos] <|im_end|"
    yield f"a<|reserved_token_{base + 5}|>b <|reserved_token_{base + 253}|>"
    yield f"<|reserved_token_{base}|> <|reserved_token_{base + 256}|> <|reserved_token_0|>"


def lines(value):
    """One array entry a line, so that a change shows where it is."""
    dump = lambda x: json.dumps(x, ensure_ascii=True, separators=(",", ":"))
    parts = []
    for key, items in value.items():
        parts.append(dump(key) + ":[\n" + ",\n".join(dump(x) for x in items) + "\n]")
    return "{" + ",\n".join(parts) + "}\n"


def config(base):
    decoder = {}
    for place, (content, special) in ADDED.items():
        flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
        decoder[str(base + place)] = {"content": content, **flags, "special": special}
    return {
        "added_tokens_decoder": decoder,
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "tokenizer_class": "TikTokenTokenizer",
    }


def golden(encoding, extra):
    inert = lambda text: encoding.encode(text, disallowed_special=())
    marked = lambda text: encoding.encode(text, allowed_special="all")
    entry = lambda text: {"ids": marked(text), "inert": inert(text)}
    rng = random.Random(11)
    decodings = []
    for length in [1] * 8 + [3] * 8 + [40] * 12:
        ids = [rng.randrange(encoding.n_vocab) for _ in range(length)]
        decodings.append({"ids": ids, "text": encoding.decode(ids, errors="replace")})
    runs = []
    for unit in RUNS:
        ids = marked(unit * 20000)
        runs.append({"unit": unit, "count": 20000, "ids": len(ids), "fnv1a": fnv1a(ids)})
    return {
        "encodings": [entry(text) for text in read_inputs()],
        "extra": [{"text": text, **entry(text)} for text in extra],
        "decodings": decodings,
        "runs": runs,
    }


def main():
    tables = {"tiktoken-trained": trained(), "tiktoken-shuffled": shuffled(random.Random(5))}
    for name, tokens in tables.items():
        base = len(tokens)
        table = "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens))
        (OUT / f"{name}.tiktoken.model").write_text(table, encoding="ascii")
        text = json.dumps(config(base), indent=1)
        (OUT / f"{name}.tokenizer_config.json").write_text(text + "\n", encoding="ascii")
        names = {p: content for p, (content, _) in ADDED.items()}
        special = {
            names.get(p, f"<|reserved_token_{base + p}|>"): base + p for p in range(RESERVED)
        }
        ranks = {token: rank for rank, token in enumerate(tokens)}
        encoding = tiktoken.Encoding(
            name, pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special
        )
        result = golden(encoding, extra_texts(base))
        (OUT / f"{name}.golden.json").write_text(lines(result), encoding="ascii")
        print(name, base, "tokens,", len(result["encodings"]), "texts")


if __name__ == "__main__":
    main()
