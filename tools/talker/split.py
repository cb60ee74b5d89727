"""What is taught and what is held out, decided by hash; and draws that keep to one side."""

import functools
import hashlib
import random

HELD_OUT_SHARE = 6  # one in so many


def number_of(*parts):
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:8], "big")


def is_held_out(kind, item):
    return number_of(kind, item) % HELD_OUT_SHARE == 0


@functools.lru_cache(maxsize=None)
def divide(kind, items):
    """(taught, held out): both have at least one item, and at most a third is held out."""
    order = sorted(items, key=lambda item: (not is_held_out(kind, item), number_of(kind, item)))
    held = sum(is_held_out(kind, item) for item in items)
    held = max(1, min(held, len(items) // 3))
    return order[held:], order[:held]


class Draw:
    """Random choices for one dialogue. A side says whether phrases, or entities, are held out."""

    def __init__(self, seed, held_phrases=False, held_entities=False):
        self.rng = random.Random(seed)
        self.held_phrases = held_phrases
        self.held_entities = held_entities

    def phrase(self, kind, phrases):
        return self.rng.choice(divide("phrase " + kind, tuple(phrases))[self.held_phrases])

    def my_entities(self, kind, items):
        return divide("entity " + kind, tuple(items))[self.held_entities]

    def entity(self, kind, items):
        return self.rng.choice(self.my_entities(kind, items))

    def entities(self, kind, items, count):
        return self.rng.sample(self.my_entities(kind, items), count)

    def any(self, items):
        return self.rng.choice(items)

    def chance(self, share):
        return self.rng.random() < share

    def between(self, low, high):
        return self.rng.randint(low, high)
