#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/named_splits.json and missing_bytes.json with the `tokenizers`
library (PyPI).

The first has an entry for each way in which a name of tokenizer.ggml.pre cuts texts. It holds the
pre_tokenizer as the models' tokenizer.json has it (for "default", which no model has, what
llama.cpp does) and where the library ends the pieces of some awkward texts. The second has small
tokenizers that lack tokens of bytes, and the ids of texts that need them.

Usage: named_splits_golden.py
"""

import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LEAD = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = f"{LEAD}{UPPER}*{LOWER}+{CONTRACTIONS}?|{LEAD}{UPPER}+{LOWER}*{CONTRACTIONS}?"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
ASCII_MARK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
MARKED = ASCII_MARK + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
EAST = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def splits(*patterns):
    return [isolated(pattern) for pattern in patterns] + [byte_level()]


def digits(individual=True):
    return pre_tokenizers.Digits(individual_digits=individual)


def spaces_of_two():
    return "|".join(rf"\s{{{1 << n}}}(?!\S)" for n in range(9, 1, -1))


# By the first name that has it; the names that share it are those of the table in the source.
WAYS = {
    "gpt-2": [byte_level(True)],
    "starcoder": [digits(), byte_level(True)],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        byte_level(True),
        digits(False),
        isolated("[0-9][0-9][0-9]"),
    ],
    "default": splits(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "qwen2": splits(rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}|{TAIL}"),
    "bailingmoe": splits(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "llama-bpe": splits(rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"),
    "qwen35": splits(
        rf"{CONTRACTIONS}|{LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "gpt-4o": splits(
        rf"{CASED}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "tiny_aya": splits(
        r"\d{1,3}(?=(?:\d{3})*\b)",
        rf"{CASED}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "deepseek-v3": splits(
        r"\p{N}{1,3}", CJK, MARKED + r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "deepseek-coder": [
        isolated(r"[\r\n]"),
        isolated(r"\s?\p{L}+"),
        isolated(r"\s?\p{P}+"),
        isolated(EAST),
        digits(),
        byte_level(),
    ],
    "bloom": splits(BLOOM),
    "viking": [isolated(BLOOM), digits(), byte_level()],
    "chameleon": [
        isolated("<sentinel:[0-9]+>"),
        isolated("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
        isolated(r"([\t\n]|    |  )"),
        digits(),
        pre_tokenizers.Punctuation("isolated"),
        byte_level(True),
    ],
    "superbpe": splits(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "seed-coder": splits(
        rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}" "\r\n"
        r"]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "minicpm5": splits(
        r"\p{N}{1,3}", rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}+|{TAIL}"
    ),
    "youtu": splits(
        YOUTU, rf"{CASED}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "spark2_5": splits(
        r"\p{N}{1,3}", CJK, MARKED + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"
    ),
    "jais-2": splits(
        rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        rf"|\s*[\r\n]+|{spaces_of_two()}|\s{{1,2}}(?!\S)|\s{{1}}"
    ),
    "ufakzeka": splits(rf"{LEAD}\p{{L}}+|\p{{N}}|{TAIL}"),
}

TEXTS = [
    "Hello, world! It's 'RE 'ReD I'LL don't can\u2019t DON'T \u0130zmir'de T\u00fcrkiye'nin",
    "3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 1,234.56 0x1F 1st 12a 1234a",
    (
        "\u0661\u0662\u0663\u0664 \u0967\u0968 \u00bd\u00b2\u00b3\u00b9 \u2167 \uff11\uff12"
        "\uff13\uff14 \u0e51\u0e52"
    ),
    "a  b   c    d     e      f       g        h         i\tj\t\tk\n\nl\r\nm\r\n\r\nn \n o\n  p",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n",
    " " * 3 + "x" + " " * 21 + "y" + " " * 300 + "z" + " " * 700,
    (
        "------======= ''''''```````\"\"\"\"......!!!!!!?????? $+<=>^`|~ #%&()*,-./:;@[\\]_{}"
        " \u00a1\u00bf\u2026\u3002"
    ),
    "f(x){return a+b*c;}//x\n/* c */ a_b=c->d; $x=`y` | z ~w ^v <b>t</b> &amp; C:\\p\\q\n//\n",
    (
        "camelCase HTTPServer iPhone \u01c5 \u01c8ubav \u02b0\u02b1 \u1e9e \u03a3\u03c3\u03c2"
        " MIXEDcase"
    ),
    (
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u043d\u0435\u0449\u043e "
        "\u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438"
    ),
    (
        "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e \u6f22\u5b57\u304b\u306a"
        "\u30ab\u30ca\u3005 \u4f60\u597d\uff0c\u4e16\u754c\uff01\u201c\u5f15\u201d\u2014"
        "\u2014\uff1a\uff1b\u3001"
    ),
    (
        "\ud55c\uad6d\uc5b4 \u3131\u3132 \u3105\u3106\u02ca \u1000\u1031\u102c \u0e01\u0e33"
        "\u0e49\u0e19 \u1780\u17b6\u1793\u17cb\u178f\u17c2 \u0eaa\u0ebb"
    ),
    (
        "\u0915\u094d\u0937\u093f \u0939\u093f\u0928\u094d\u0926\u0940\u0964 \u0627\u0631"
        "\u062f\u0648\u06d4 \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627\u060c "
        "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd"
    ),
    (
        "\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f \u2705 \U0001f999\U0001f999 1"
        "\ufe0f\u20e3 \U00040000"
    ),
    "e\u0301 \u00e9 \u212b A\u030a \ufb01 q\u0323\u0307 \u0301start",
    "nbsp\u00a0x \u00a0 wide\u3000\u3000y \u2028z \u0085w \u1680v \u180e \u200b \ufeff",
    "<sentinel:12><sentinel:x> IMGIMGABCZ IMGIMGABCDEFZ IMGIMGAZ <|im_end|>",
    "1000000 and 12345678901234567890 x1234567y 12\u06633\u0664567 9999999999999999999999",
    "((parens)) [brackets] {braces} (a|b) a|b |(x). y?z! \u2026 w\u3002v",
    "tab\tand\u000bvt\u000cff \x00nul\x7f \ud7b0\ud7ff \u2e80 \u0800",
]


def ends_of(pre_tokenizer, text):
    """Pieces are in the byte alphabet, where a character is a byte."""
    ends = []
    for piece, _ in pre_tokenizer.pre_tokenize_str(text):
        ends.append((ends[-1] if ends else 0) + len(piece))
    assert ends[-1] == len(text.encode("utf-8")), text
    return ends


def named_splits():
    ways = {}
    for name, steps in WAYS.items():
        whole = pre_tokenizers.Sequence(steps)
        ways[name] = {
            "pre_tokenizer": json.loads(whole.__getstate__()),
            "ends": [ends_of(whole, text) for text in TEXTS],
        }
    return {"texts": TEXTS, "ways": ways}


def byte_characters():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


def byte_level_file(**model):
    """Some bytes and merges of them; not those of most characters beyond ASCII."""
    characters = byte_characters()
    lacking = {0x62, 0x80, 0xC0, 0xF1, 0x0A}
    names = ["<unk>", "<0xC3>", "<0xB1>", "<0xC4>", "<0x8A>"]
    for byte, character in characters.items():
        if byte not in lacking:
            names.append(character)
    merges = [["a", "c"], ["\u0120", "a"], ["\u0120a", "c"], ["\u00c3", "\u00a9"]]
    names += [left + right for left, right in merges]
    vocab = {name: i for i, name in enumerate(names)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": json.loads(byte_level(True).__getstate__()),
        "post_processor": None,
        "decoder": json.loads(decoders.ByteLevel().__getstate__()),
        "model": {"type": "BPE", **model, "vocab": vocab, "merges": merges},
    }


def character_file(**model):
    names = ["<unk>", "\u2581", "a", "c", "ac", "\u2581ac"]
    names += [f"<0x{byte:02X}>" for byte in range(256) if byte not in (0x62, 0xF1)]
    merges = [["a", "c"], ["\u2581", "ac"]]
    steps = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            **model,
            "vocab": {name: i for i, name in enumerate(names)},
            "merges": merges,
        },
    }


LOSSY_TEXTS = [
    "",
    "b",
    "abc ac abbc",
    "a\U00040000b",
    "bbbabb",
    "caf\u00e9 \u00c0 \u4e00\u0080",
    "ac" * 30 + "b" * 30 + "ac" * 30,
    " ac  ac\n\nac bac",
]


def missing_bytes():
    unknown = {"unk_token": "<unk>"}
    files = {
        "left out": byte_level_file(unk_token=None),
        "a name that is no token": byte_level_file(unk_token=""),
        "unknown": byte_level_file(**unknown),
        "unknown, fused": byte_level_file(**unknown, fuse_unk=True),
        "spelled": byte_level_file(byte_fallback=True),
        "characters left out": character_file(unk_token=None),
        "characters unknown": character_file(**unknown, fuse_unk=False),
        "characters unknown, fused": character_file(**unknown, fuse_unk=True),
    }
    cases = {}
    for name, file in files.items():
        library = Tokenizer.from_str(json.dumps(file))
        expected = []
        for text in LOSSY_TEXTS:
            try:
                expected.append(library.encode(text).ids)
            except Exception as error:  # the name of the unknown token is no token
                assert "unk" in str(error).lower(), error
                expected.append(None)
        cases[name] = {"tokenizer": file, "ids": expected}
    return {"texts": LOSSY_TEXTS, "cases": cases}


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUT / name).write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    write("named_splits.json", named_splits())
    write("missing_bytes.json", missing_bytes())
