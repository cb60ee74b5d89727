#!/usr/bin/env python3
"""Writes tests/golden/sampling/sampling.safetensors: what NumPy leaves of 1,000 rows of logits.

Every sampler is written down here once more, from its definition, in float64 over arrays; rows and
options are those of tests/golden/sampling_golden_test.cc. Per case "NAME.sets" is i32 [1000, 2]:
how many tokens are left, and the FNV-1a hash of their ids in rising order. "NAME.shares" is f32
[1000, 2]: the highest probability, and the sum of probabilities times a number between 0 and 1 that
belongs to each id, which changes with any probability.

usage: sampling_golden.py TARGET.safetensors        (needs numpy; made with numpy 2.4)
"""
import json
import struct
import sys

import numpy as np

ROWS = 1000
MASK = (1 << 64) - 1
INFINITY = float("inf")


class Numbers:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def next(self, count):
        """Below count, nearly uniform."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 33) % count


def row_of(r):
    """Logits: multiples of 1/1024, exact in float32."""
    numbers = Numbers(r)
    kind = r % 10
    size = 1 + numbers.next(1000 if kind == 9 else 3 if kind == 8 else 80)
    values = []
    for i in range(size):
        wide = numbers.next(16384)
        if kind == 1:
            wide = wide // 2048 * 2048
        elif kind == 2:
            wide = 5120
        elif kind in (3, 4):
            wide = 0
        elif kind == 5 and wide % 2:
            values.append(-INFINITY)
            continue
        elif kind == 6:
            wide = wide * 400 - 3276800
        elif kind == 7:
            wide = wide % 32
        values.append(wide / 1024)
    if kind == 4:
        values = [-INFINITY] * size
    if kind == 5 and max(values) == -INFINITY:
        values[0] = 1.0
    if kind in (3, 4):
        values[numbers.next(size)] = 30.0
    return np.array(values, np.float64)


def text_of(r):
    """A history of few different tokens, so that it repeats itself."""
    numbers = Numbers(r + 5000)
    length = numbers.next(90)
    kinds = 1 + numbers.next(6)
    return [numbers.next(kinds) for _ in range(length)]


def f32(x):
    return float(np.float32(x))


class Rest:
    """Ids and logits that are left; logits as they count, after temperature."""

    def __init__(self, logits):
        self.ids = np.arange(len(logits))
        self.logits = logits

    def keep(self, mask):
        self.ids, self.logits = self.ids[mask], self.logits[mask]

    def order(self):
        """Best first."""
        return np.lexsort((self.ids, -self.logits))

    def log_shares(self):
        moved = self.logits - self.logits.max()
        return moved - np.log(np.exp(moved).sum())

    def shares(self):
        return np.exp(self.log_shares())

    def weights(self):
        """Shares but for a factor: exact where all are equal."""
        return np.exp(self.logits - self.logits.max())


def keep_in_order(rest, order, is_enough):
    sums = np.cumsum(rest.weights()[order])
    enough = np.nonzero(is_enough(sums, rest.weights().sum()))[0]
    count = enough[0] + 1 if len(enough) else len(order)
    mask = np.zeros(len(order), bool)
    mask[order[:count]] = True
    rest.keep(mask)


def top_k(rest, k):
    mask = np.zeros(len(rest.ids), bool)
    mask[rest.order()[:k]] = True
    rest.keep(mask)


def top_p(rest, p):
    keep_in_order(rest, rest.order(), lambda sums, total: sums >= p * total)


def min_p(rest, p):
    rest.keep(rest.weights() >= p)


def entropy(rest):
    shares, logs = rest.shares(), rest.log_shares()
    with np.errstate(invalid="ignore"):
        return -np.where(shares > 0, shares * logs, 0.0).sum()


def typical(rest, p):
    far = np.abs(-rest.log_shares() - entropy(rest))
    # Equal logits are equally far; rounding must not part them.
    order = np.lexsort((rest.ids, -rest.logits, np.round(far, 11)))
    keep_in_order(rest, order, lambda sums, total: sums > p * total)


def top_n_sigma(rest, n):
    finite = rest.logits[np.isfinite(rest.logits)]
    rest.keep(rest.logits >= finite.max() - n * np.std(finite))


def xtc(rest, threshold):
    top = rest.weights() >= threshold * rest.weights().sum()
    order = [i for i in rest.order() if top[i]]
    mask = np.ones(len(top), bool)
    mask[order[:-1]] = False
    rest.keep(mask)


def temperature(rest, t, spread=0.0, exponent=1.0):
    if spread > 0 and len(rest.ids) > 1:
        share = min(max(entropy(rest) / np.log(len(rest.ids)), 0.0), 1.0)
        low, high = max(0.0, t - spread), t + spread
        t = low + (high - low) * share**exponent
    if t <= 0:
        top_k(rest, 1)
    else:
        rest.logits = rest.logits / t


def mirostat(rest, mu):
    rest.keep(np.isfinite(rest.logits))
    n = len(rest.ids)
    if n == 1:
        return
    logs = rest.log_shares()[rest.order()][:100]
    ranks = np.arange(1, len(logs))
    steps = np.log((ranks + 1) / ranks)
    s = (steps * (logs[:-1] - logs[1:])).sum() / (steps * steps).sum()
    if s < 1e-12:  # all are equal: the formula's limit
        k = n if 2.0**mu / (n - 1) > 1 else 1
    else:
        e = s - 1
        ratio = 1 / np.log(n) if abs(e) < 1e-9 else e / -np.expm1(-e * np.log(n))
        k = np.exp(min(np.log(ratio * 2.0**mu) / s, 20.0))
    top_k(rest, max(1, int(k)))


def mirostat_2(rest, mu):
    keep = -rest.log_shares() / np.log(2) <= mu
    keep[rest.order()[0]] = True
    rest.keep(keep)


def penalties(rest, text, last, repeat, presence, frequency):
    seen = text[-last:] if last else []
    logits = rest.logits.astype(np.float32)
    for i, token in enumerate(rest.ids):
        count = seen.count(int(token))
        if count:
            x = logits[i]
            x = x * np.float32(repeat) if x <= 0 else x / np.float32(repeat)
            x = x - np.float32(count) * np.float32(frequency)
            logits[i] = x - np.float32(presence)
    rest.logits = logits.astype(np.float64)


def dry(rest, text, breakers, multiplier, base, allowed, last):
    text = text[-last:]
    # The last breaker that is all there bounds a repetition.
    limit = len(text)
    for at in range(len(text) - 1, -1, -1):
        fits = [len(b) for b in breakers if tuple(text[at : at + len(b)]) == b]
        if fits:
            limit = len(text) - at - max(fits)
            break
    longest = {}
    for at in range(len(text)):  # would text[at] repeat what followed the same tokens before it?
        length = 0
        while length < min(at, limit) and text[at - 1 - length] == text[len(text) - 1 - length]:
            length += 1
        if at > 0:
            longest[text[at]] = max(longest.get(text[at], 0), length)
    if len(text) <= allowed or limit < allowed:
        return
    logits = rest.logits.astype(np.float32)
    for i, token in enumerate(rest.ids):
        length = longest.get(int(token), -1)
        if length >= allowed and (int(token),) not in breakers:
            logits[i] = np.float32(float(logits[i]) - multiplier * base ** (length - allowed))
    rest.logits = logits.astype(np.float64)


BREAKERS = [[], [(0,)], [(1, 2)], [(2,), (2, 0), (0, 1, 1)]]
ORDERS = [
    "edskypmxt", "txmpyksde", "tkpm", "ktyds", "mtxk", "ptske", "dext", "yxkst", "", "kt", "xpe",
]
LETTERS = {"penalties": "e", "dry": "d", "top_n_sigma": "s", "top_k": "k", "typ_p": "y",
           "top_p": "p", "min_p": "m", "xtc": "x", "temperature": "t"}
NAMES = [*LETTERS, "mirostat", "mirostat_2", "chain"]


def pick(values, r):
    return values[r % len(values)]


def apply_letter(letter, rest, r):
    """A step of a chain with the options of row r."""
    text = text_of(r)
    if letter == "e":
        penalties(rest, text, pick([64, 5, 9], r), 1.25, 0.125, 0.5)
    elif letter == "d":
        dry(rest, text, pick(BREAKERS, r), f32(pick([0.8, 0.3, 2.5], r)), 1.75,
            pick([2, 1, 0, 4, 3], r), pick([64, 7, 20], r))
    elif letter == "s":
        top_n_sigma(rest, f32(pick([1.3, 0.7, 2.1], r)))
    elif letter == "k":
        top_k(rest, pick([40, 5, 17], r))
    elif letter == "y":
        typical(rest, f32(pick([0.9, 0.95, 0.3, 0.5, 0.2, 0.0, 0.75], r)))
    elif letter == "p":
        top_p(rest, f32(pick([0.95, 0.6, 0.85], r)))
    elif letter == "m":
        min_p(rest, f32(pick([0.05, 0.01, 0.3], r)))
    elif letter == "x":
        xtc(rest, f32(pick([0.1, 0.05, 0.2, 0.3, 0.5, 0.01, 0.15], r)))
    elif letter == "t":
        temperature(rest, f32(pick([0.8, 1.5, 0.6, 1.0, 0.3, 2.5, 0.7], r)),
                    f32(pick([0.0, 0.5, 0.7, 2.0], r)), f32(pick([1.0, 0.6, 2.0], r)))


def left(name, r):
    rest = Rest(row_of(r))
    if name == "mirostat" or name == "mirostat_2":
        temperature(rest, f32(pick([0.8, 1.5, 0.6, 1.0, 0.3, 2.5, 0.7], r)))
        mu = pick([10.1, 3.3, 0.7, 5.9, 2.2, -1.5, 7.7, 1.4, 4.6], r)
        (mirostat if name == "mirostat" else mirostat_2)(rest, mu)
    else:
        for letter in LETTERS.get(name) or pick(ORDERS, r):
            apply_letter(letter, rest, r)
    return rest




def digest(rest):
    order = np.argsort(rest.ids)
    hashed = 2166136261
    for token in rest.ids[order]:
        for byte in struct.pack("<I", int(token)):
            hashed = ((hashed ^ byte) * 16777619) & 0xFFFFFFFF
    shares = rest.shares()
    numbers = (rest.ids.astype(np.uint64) * 2654435761 % 2**32).astype(np.float64) / 2**32
    return (len(order), hashed), (shares.max(), (shares * numbers).sum())


def main():
    parts, header, at = [], {}, 0
    for name in NAMES:
        digests = [digest(left(name, r)) for r in range(ROWS)]
        for suffix, dtype, numpy_type, column in [("sets", "I32", np.uint32, 0),
                                                  ("shares", "F32", np.float32, 1)]:
            data = np.array([d[column] for d in digests]).astype(numpy_type).tobytes()
            header[f"{name}.{suffix}"] = {"dtype": dtype, "shape": [ROWS, 2],
                                          "data_offsets": [at, at + len(data)]}
            parts.append(data)
            at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(sys.argv[1], "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


main()
