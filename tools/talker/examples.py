"""Dialogues as rows of tokens: rendered by the model's own template, packed, weighted."""

import json
import os

import jinja2
import jinja2.ext
import numpy
from tokenizers import Tokenizer

import dialogues

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_template.jinja")
IGNORED = 0.03  # weight of tokens that the model reads and does not write
START, END = 1, 2  # <|im_start|>, <|im_end|>


class Format:
    """A folder's tokenizer, and the chat template of this folder."""

    def __init__(self, folder):
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
            added = json.load(file)["added_tokens_decoder"]
        special = [entry["content"] for entry in added.values()]
        if not all(self.tokenizer.token_to_id(text) is not None for text in special):
            raise ValueError(f"{folder}: its tokenizer lacks one of {special}")
        self.tokenizer.add_special_tokens(special)
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        with open(TEMPLATE, encoding="utf-8") as file:
            self.template = environment.from_string(file.read())
        self.assistant = self.tokenizer.encode("assistant\n", add_special_tokens=False).ids

    def render(self, messages, tools=None, **variables):
        return self.template.render(messages=messages, tools=tools, **variables)

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def example(self, messages, tools=None):
        """(ids, weights): an answer's tokens and the token that ends it count whole."""
        ids = self.encode(self.render(messages, tools))
        weights = [IGNORED] * len(ids)
        place = 0
        while place < len(ids):
            begin = place + 1 + len(self.assistant)
            if ids[place] == START and ids[place + 1: begin] == self.assistant:
                place = ids.index(END, begin)
                weights[begin: place + 1] = [1.0] * (place + 1 - begin)
            place += 1
        return ids, weights


def pack(examples, length):
    """Rows of `length` tokens: (ids, weights, document, position); padding has no weight."""
    rows = []
    for ids, weights in sorted(examples, key=lambda e: -len(e[0])):
        ids, weights = ids[:length], weights[:length]
        fits = [row for row in rows[-64:] if row[0] + len(ids) <= length]
        row = max(fits, key=lambda r: r[0]) if fits else [0, []]
        if not fits:
            rows.append(row)
        row[0] += len(ids)
        row[1].append((ids, weights))
    out = [numpy.zeros((len(rows), length), kind) for kind in ("int32", "float32", "int16",
                                                               "int16")]
    for number, (used, parts) in enumerate(rows):
        begin = 0
        for document, (ids, weights) in enumerate(parts):
            span = slice(begin, begin + len(ids))
            out[0][number, span], out[1][number, span] = ids, weights
            out[2][number, span], out[3][number, span] = document, numpy.arange(len(ids))
            begin += len(ids)
        out[2][number, used:] = len(parts)
        out[3][number, used:] = numpy.arange(length - used)
    return out


class Shards:
    """The dialogues of seeds [n * size, (n + 1) * size) as packed rows; a worker keeps one."""

    def __init__(self, folder, size, length):
        self.folder, self.size, self.length = folder, size, length
        self.format = None

    def __call__(self, number):
        if self.format is None:
            self.format = Format(self.folder)
        made = []
        for seed in range(number * self.size, (number + 1) * self.size):
            talk = dialogues.conversation(seed)
            made.append(self.format.example(talk["messages"], talk["tools"]))
        return pack(made, self.length)
