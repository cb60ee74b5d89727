#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/sentencepiece-*: small SentencePiece models, and what the
`sentencepiece` library (PyPI) makes of inputs.json and of a novel with them.

Usage: sentencepiece_golden.py
The trainer is deterministic with one thread, so an unchanged library writes unchanged files.
"""

import io
import json
import pathlib

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "tokenizer"
NOVEL = ROOT / "tests" / "golden" / "text" / "northanger-abbey.txt"

# The settings of the published mixture-of-experts models: nothing but spaces is normalised.
COMMON = {
    "model_type": "bpe",
    "vocab_size": 900,
    "num_threads": 1,
    "character_coverage": 0.9995,
    "hard_vocab_limit": False,
    "user_defined_symbols": ["<think>", "</think>", "\t\t\t", "\u2581\u2581\u2581", "th"],
    "control_symbols": ["<|im_start|>", "<|im_end|>"],
}
MODELS = {
    "plain": {
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
        "split_digits": True,
    },
    # Replacements of one character and of several, by several, by a space and by nothing.
    "rules": {"remove_extra_whitespaces": True, "unk_surface": " ? "},
    # Tokens over word boundaries, spaces at the end of words, and pieces that may not be used.
    "suffix": {
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "treat_whitespace_as_suffix": True,
        "split_by_whitespace": False,
    },
    "bare": {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": True,
        "add_dummy_prefix": False,
        "user_defined_symbols": [],
    },
}
RULES = {
    "\u2026": "...",
    "\ufb01": "fi",
    "\u00a0": " ",
    "\u3000": " ",
    "\t": " ",
    "\n": " ",
    "\r\n": " ",
    "e\u0301": "\u00e9",
    "\u200b": "",
    "\u00df": "ss",
    "A": "a",
    "AB": "x y",
    "\u2014": " - ",
}


def code_points(text):
    return " ".join(f"{ord(c):X}" for c in text)


def train(name, folder):
    options = COMMON | MODELS[name]
    if name == "rules":
        table = pathlib.Path(folder) / "rules.tsv"
        table.write_text(
            "".join(f"{code_points(a)}\t{code_points(b)}\n" for a, b in RULES.items())
        )
        options["normalization_rule_tsv"] = str(table)
    sample = (OUT / "sample.txt").read_text(encoding="utf-8").split("\n")
    lines = sample + NOVEL.read_text(encoding="utf-8")[:60000].split("\n")
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in lines if line),
        model_writer=writer,
        minloglevel=2,
        **options,
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(writer.getvalue())
    model.trainer_spec.ClearField("input")
    if name == "suffix":
        kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
        for i, piece in enumerate(model.pieces):
            if piece.type == kinds.NORMAL and len(piece.piece) > 1 and i % 5 == 0:
                piece.type = kinds.UNUSED
    return model.SerializeToString()


def fnv1a(ids):
    value = 0xCBF29CE484222325
    for token in ids:
        value = ((value ^ token) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def text_of(item):
    return item.get("text") or bytes.fromhex(item.get("hex", "")).decode(errors="replace")


def main():
    inputs = json.loads((OUT / "inputs.json").read_text(encoding="utf-8"))
    extra = [
        "AB\u200bA\u2026\u2014 \u2014",
        "\u2581a \u2581 b",
        "   \u00a0 x   ",
        "<think>  the</think>",
        "<|im_end|>",
        "caf\u0065\u0301 stra\u00dfe",
        "\U0001f600\U0001f600 \u4e00\U0010fffd",
    ]
    novel = NOVEL.read_text(encoding="utf-8")
    for name in MODELS:
        path = OUT / f"sentencepiece-{name}.tokenizer.model"
        path.write_bytes(train(name, "/tmp"))
        sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
        long_ids = sp.encode(novel)
        golden = {
            "encodings": [
                {"ids": ids, "text": sp.decode(ids)}
                for ids in (sp.encode(text_of(item)) for item in inputs)
            ],
            "extra": [
                {"input": text, "ids": sp.encode(text), "text": sp.decode(sp.encode(text))}
                for text in extra
            ],
            "long_text": {"ids": len(long_ids), "fnv1a": fnv1a(long_ids)},
        }
        lines = json.dumps(golden).replace('{"ids"', '\n{"ids"')
        (OUT / f"sentencepiece-{name}.golden.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
