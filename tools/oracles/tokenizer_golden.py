#!/usr/bin/env python3
"""Writes tests/golden/tokenizer: small tokenizers for each pre-tokenizer pattern, and what the
`tokenizers` library (PyPI) makes of a list of texts with them and with models/fable-20m.

Usage: tokenizer_golden.py [LONG_TEXT]
LONG_TEXT, a UTF-8 file, adds a count and an FNV-1a hash of its ids; without it the summaries of an
earlier run are kept. Training is deterministic, so an unchanged library writes unchanged files.
"""

import collections
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "tokenizer"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
UPPER_NOT_HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER_NOT_HAN = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LEAD = r"[^\r\n\p{L}\p{N}]?"


def cased(upper, lower):
    return (
        f"{LEAD}{upper}*{lower}+{CONTRACTIONS}?|{LEAD}{upper}+{lower}*{CONTRACTIONS}?"
    )


WORDS_WITH_MARKS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS = {
    "llama3": [rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"],
    "qwen2": [rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}|{TAIL}"],
    "qwen35": [
        rf"{CONTRACTIONS}|{LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "glm4": [rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"],
    "deepseek": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        WORDS_WITH_MARKS,
    ],
    "o200k": [
        cased(UPPER, LOWER)
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "exaone": [
        rf"{CONTRACTIONS}|{LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "laguna": [r"[^\n]+|[\n]+", rf"{CONTRACTIONS}|{LEAD}\p{{L}}+|\p{{N}}|{TAIL}"],
    "kimi": [
        rf"[\p{{Han}}]+|{cased(UPPER_NOT_HAN, LOWER_NOT_HAN)}|\p{{N}}{{1,3}}|{TAIL}"
    ],
    "tekken": [
        rf"{LEAD}{UPPER}*{LOWER}+|{LEAD}{UPPER}+{LOWER}*|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "bailing": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "afmoe": [
        r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}",
        r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
        r"\A\p{Nd}{3}|\G\p{Nd}{3}",
        r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F"
        r"\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+"
        r"|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)",
        WORDS_WITH_MARKS,
    ],
    "cohere2": [
        r"\d{1,3}(?=(?:\d{3})*\b)",
        cased(UPPER, LOWER)
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
}
# Groups of digits show only where groups are tokens.
NUMBERS = " ".join(str(i * i * 7919) for i in range(400))

SPECIAL = [
    AddedToken("<|endoftext|>", special=True, normalized=False),
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<mask>", special=True, normalized=False, lstrip=True),
    AddedToken("<pad>", special=True, normalized=False, rstrip=True),
    AddedToken(
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>", special=True, normalized=False
    ),
]
PLAIN = [
    AddedToken("<think>", normalized=False),
    AddedToken("</think>", normalized=False),
    AddedToken("<th", normalized=False),
    AddedToken("<both>", normalized=False, lstrip=True, rstrip=True),
    AddedToken("alone", normalized=False, single_word=True),
    AddedToken("\t\t\t", normalized=False),
    AddedToken("caf\u0151", normalized=True),
    AddedToken("[o\u030b]", normalized=True),
    AddedToken("under", normalized=True, single_word=True, lstrip=True),
]


# Tokenizers of characters with byte_fallback: as converters wrote Llama-2's, as transformers writes
# it today, with a piece a word, and as Gemma's, whose tokens cross spaces here.
SPACE = "\u2581"
BYTES_FALL_BACK = ["llama2", "mixtral", "metaspace", "gemma"]


def characters(name):
    """Normaliser, pre-tokenizer and the steps of the decoder behind Fuse."""
    replace = normalizers.Replace(" ", SPACE)
    metaspace = pre_tokenizers.Metaspace
    strip = [decoders.Strip(" ", 1, 0)]
    if name == "llama2":
        return normalizers.Sequence([normalizers.Prepend(SPACE), replace]), None, strip
    if name == "mixtral":
        return None, metaspace(SPACE, prepend_scheme="first", split=False), strip
    if name == "metaspace":
        return None, metaspace(SPACE, prepend_scheme="always", split=True), strip
    return replace, pre_tokenizers.Split(" ", "merged_with_previous"), []


def train_characters(name, vocab_size):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    normalizer, pre, strip = characters(name)
    tokenizer.normalizer = normalizer or normalizers.Replace(" ", SPACE)
    words = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=True)
    tokenizer.pre_tokenizer = None if name == "gemma" else words
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    sample = (OUT / "sample.txt").read_text(encoding="utf-8")
    counts = collections.Counter(sample.replace(" ", SPACE))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:70]  # the rarer become bytes
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=["<unk>", "<|endoftext|>", "<|im_end|>"] + byte_tokens,
    )
    tokenizer.train_from_iterator([sample], trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]  # bytes are no added tokens
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + strip)
    bos = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[bos]
    )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(PLAIN)
    return json.loads(tokenizer.to_str())


def pre_tokenizer(name):
    byte_level = pre_tokenizers.ByteLevel
    if name == "gpt2":
        return byte_level(add_prefix_space=False, use_regex=True)
    if name == "gpt2-prefix":
        return byte_level(add_prefix_space=True, use_regex=True)
    if name == "digits-bare":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level(add_prefix_space=False)])
    if name == "digits":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level(add_prefix_space=True)])
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[name]]
    last = byte_level(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence(splits + [last])


def train(name, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    if name in ("qwen2", "qwen35"):
        tokenizer.normalizer = normalizers.NFC()
    if name == "glm4":
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC()])
    tokenizer.pre_tokenizer = pre_tokenizer(name)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL[:2] if name != "llama3" else [],
    )
    sample = (OUT / "sample.txt").read_text(encoding="utf-8")
    numbers = [NUMBERS] if name in ("afmoe", "cohere2") else []
    tokenizer.train_from_iterator([sample, *numbers], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(PLAIN)
    bos = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
    eos = ("<|im_end|>", tokenizer.token_to_id("<|im_end|>"))
    if name == "llama3":
        template = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[bos]
        )
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), template]
        )
    if name == "deepseek":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A <|im_end|>", special_tokens=[bos, eos]
        )
    spec = json.loads(tokenizer.to_str())
    if name == "o200k":
        spec["model"]["ignore_merges"] = True
        # Merges that lead to some words are taken out: only ignore_merges can find them now.
        kept = spec["model"]["merges"]
        spec["model"]["merges"] = [
            m for i, m in enumerate(kept) if i % 7 or len(m[0] + m[1]) < 5
        ]
    if name in ("gpt2", "deepseek", "kimi"):
        spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
    return spec


def texts():
    sample = (OUT / "sample.txt").read_text(encoding="utf-8")
    nfc_and_nfd = (
        "\u00e9 e\u0301 \u00c5 A\u030a "
        "\u212b \uac00 \u1100\u1161 q\u0323\u0307 q\u0307\u0323"
    )
    yield from ["", " ", "a", "\n", "Hello world", "Hello  world", " Hello", "Hello "]
    yield from sample.split("\n")[:-1]
    yield sample
    yield nfc_and_nfd
    yield "\u0958 \u2126 \u1e9b\u0323 \u0344 \ufb01 \u0f73 a\u0315\u0300\u05ae\u0062"
    yield "I'm I'M you're YOU'RE it's IT'S we've WE'VE he'd HE'D she'll SHE'LL can't CAN'T"
    yield "'s 'S 't 'T 're 'Re 'rE x's x''s '\u017f it'\u017f IT'\u017f \u2019s it\u2019s 'sS 'tis"
    yield "a\tb\t\tc\t\t\td\t\t\t\te"
    yield "line\nline\n\nline\r\nline\r\n\r\nline\r\r end\n"
    yield "  two   three    four     \n  indented\n\t tab \n   \n\n  x"
    yield "trailing spaces   "
    yield "   \n   \r\n   "
    yield "nul\x00nul \x00\x01\x02\x1f\x7f\x80\x9f end"
    yield "nel\u0085nel \u0085 nbsp\u00a0nbsp \u00a0 wide\u3000wide \u3000 \u2028ls\u2029ps"
    yield (
        "ogham\u1680x mvs\u180ex zwsp\u200bx zwnbsp\ufeffx nnbsp\u202fx mmsp\u205fx "
        "\u2003\u2003em"
    )
    yield "\u180e\u180e \u180e a\u180e"
    yield "0 1 12 123 1234 12345 123456 1234567 1,234.56 3e-10 0x1F 1st 2nd"
    yield (
        "\u0663\u0664\u0665\u0666 \u00bd\u00b2\u00b3 \u2167\u2168 \u0967\u0968\u0969 \u2460 "
        "\uff11\uff12"
    )
    yield "camelCase PascalCase UPPERCase snake_case SCREAMING_SNAKE kebab-case HTTPServer iPhone"
    yield (
        "\u01c5 \u01c8ubav \u02b0\u02b1 \u1d2c \u00aa\u00ba \u0130\u0131 \u1e9e "
        "\u03a3\u03c3\u03c2"
    )
    yield (
        "\u6f22\u5b57kanji\u304b\u306a\u30ab\u30ca\u3005\u3006\u3007\u3021 "
        "\u9fa6\u9fff\u3400\U00020000\uf900"
    )
    yield (
        "\u6f22 \u5b57, \u6f22\uff0c\u5b57\u3002 abc\u6f22\u5b57ABC\u6f22 \u30fb\u30fc\uff71 "
        "\ud55c\uad6d\uc5b4"
    )
    yield (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd "
        "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea \u2764\ufe0f 1\ufe0f\u20e3"
    )
    yield "!!! ??? ... --- *** /// ://\n//\n/* */ <!-- --> $100 \u20ac5 a+b=c x^2 `q` ~ |"
    yield "http://example.com/a/b?c=d&e=f#g user@host.org C:\\path\\file.txt"
    yield "{'a': [1, 2.5, null], \"b\": {\"c\": true}}"
    yield "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    yield "<|endoftext|><|endoftext|> <|endoftext| <|endoftext|>>"
    yield "a <mask> b  <mask>  c<mask>d \u3000\n<mask>"
    yield "a <pad> b  <pad>  c<pad>d <pad> \u00a0\n<pad>"
    yield "a <both> b  <both> <both>  c<both><mask> <pad> <both>"
    yield "alone alone, aloneness stalone alone_ \u00e9alone alone\u0301 (alone) alone1 alone"
    yield "<th <think <think> <thinking> </think <<think>>"
    yield "<\uff5cbegin\u2581of\u2581sentence\uff5c>x<|begin_of_sentence|>"
    yield (
        "caf\u0151 cafo\u030b caf\u0151s CAF\u0150 [\u0151] [o\u030b] \u00e9 under  under "
        "understood  under"
    )
    yield "\u0301leading mark a\u0301\u0302\u0303 \u0e01\u0e33\u0e49 \u0915\u094d\u0937\u093f"
    yield (
        "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd "
        "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627"
    )
    yield "\ue000 \U000f0000 \U0010ffff \ufffe \uffff \ufffd \ufdd0"
    units = ["a", " ", "\n", "\r\n", "1", "\u6f22", "A", "!", "ab", " a", "\u0301", "="]
    units.append("\U0001f600")
    for unit in units:
        yield unit * 130
    yield "a" * 300 + " " * 99 + "b"


# Not well-formed: read with errors="replace" before the library sees it.
BYTES = [
    b"\xff", b"abc\x80def", b"\xc3", b"\xc3\x28", b"\xe2\x82", b"\xe2\x82 x", b"\xe2\x28\xa1",
    b"\xf0\x9f\x98", b"\xf0\x9f\x98a",
    b"\xf0\x28\x8c\xbc", b"\xed\xa0\x80", b"\xed\xa0\x80\xed\xb0\x80",
    b"\xc0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80",
    b"\xe2\x82\xe2\x82\xac", b"\xf0\x9f\xf0\x9f\x98\x80",
    b"<|im_end|>\xe2<|im_end|>", b"e\xcc\x81\xcc",
    bytes(range(256)),
]  # fmt: skip


def fnv1a(ids):
    value = 0xCBF29CE484222325
    for i in ids:
        value = ((value ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def golden(tokenizer, inputs, long_text, previous):
    encodings = []
    for text in inputs:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        with_special = tokenizer.encode(text, add_special_tokens=True).ids
        head = tail = 0
        if with_special != ids:
            head = 1
            tail = len(with_special) - len(ids) - head
            assert with_special[head : len(with_special) - tail] == ids
        encodings.append(
            {
                "ids": ids,
                "prefix": with_special[:head],
                "suffix": with_special[len(with_special) - tail :] if tail else [],
                "text": tokenizer.decode(ids, skip_special_tokens=False),
            }
        )
    rng = random.Random(7)
    size = tokenizer.get_vocab_size()
    # The library gives up a whole row of byte tokens for one bad byte, so rows are not random.
    byte_token = lambda byte: tokenizer.token_to_id(f"<0x{byte:02X}>")
    letters = {byte_token(byte): byte_token(ord("A") + byte % 26) for byte in range(256)}
    decodings = []
    for length in [1] * 8 + [3] * 8 + [40] * 12:
        ids = [rng.randrange(size + 3) for _ in range(length)]  # a few are undefined
        ids = [letters.get(i, i) for i in ids]
        decodings.append(
            {
                "ids": ids,
                "text": tokenizer.decode(ids, skip_special_tokens=False),
                "text_without_special": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    result = {"encodings": encodings, "decodings": decodings}
    if long_text is not None:
        ids = tokenizer.encode(long_text, add_special_tokens=False).ids
        result["long_text"] = {
            "bytes": len(long_text.encode()),
            "ids": len(ids),
            "fnv1a": fnv1a(ids),
        }
    elif "long_text" in previous:
        result["long_text"] = previous["long_text"]
    return result


def write(path, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def lines(value):
    """One array entry a line, so that a change shows where it is."""
    dump = lambda x: json.dumps(x, ensure_ascii=True, separators=(",", ":"))
    if isinstance(value, list):
        return "[\n" + ",\n".join(dump(x) for x in value) + "\n]"
    parts = [f"{dump(k)}:{lines(v) if isinstance(v, list) else dump(v)}" for k, v in value.items()]
    return "{" + ",\n".join(parts) + "}"


def main():
    long_text = None
    if len(sys.argv) > 1:
        long_text = pathlib.Path(sys.argv[1]).read_bytes().decode()
    inputs = [t.encode() for t in texts()] + BYTES
    entries = []
    for data in inputs:
        try:
            entries.append({"text": data.decode()})
        except UnicodeDecodeError:
            entries.append({"hex": data.hex()})
    (OUT / "inputs.json").write_text(lines(entries) + "\n", encoding="ascii")
    decoded = [data.decode("utf-8", errors="replace") for data in inputs]

    names = ["gpt2", "gpt2-prefix", "digits", "digits-bare", *PATTERNS]
    larger = ("qwen35", "afmoe", "cohere2")
    for name in names:
        write(OUT / f"{name}.tokenizer.json", train(name, 1200 if name in larger else 700))
    for name in BYTES_FALL_BACK:
        write(OUT / f"{name}.tokenizer.json", train_characters(name, 700))
    names += BYTES_FALL_BACK
    sources = {name: OUT / f"{name}.tokenizer.json" for name in names}
    sources["fable-20m"] = ROOT / "models" / "fable-20m" / "tokenizer.json"
    for name, source in sources.items():
        path = OUT / f"{name}.golden.json"
        previous = json.loads(path.read_text()) if path.exists() else {}
        result = golden(Tokenizer.from_file(str(source)), decoded, long_text, previous)
        path.write_text(lines(result) + "\n", encoding="ascii")
        print(name, len(result["encodings"]), "texts")


if __name__ == "__main__":
    main()
