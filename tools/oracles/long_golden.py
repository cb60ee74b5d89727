#!/usr/bin/env python3
"""A text of 1,100 tokens for a model of tests/golden/models, and what transformers makes of it in
float64: longer than four pages, two chunks of a prompt and the ring of any window.

Writes TARGET with
- `tokens` [1100] i32;
- `top_ids` [1100, 8] i32 and `top_logits` [1100, 8] f32, the eight greatest, best first;
- `checks` [1100, 2] f32: the sum over a row's logits of logit[j] * sin(j + 1), and their length.

No choice is near a tie. In every router, and in every index of keys, the last one chosen is more
than MARGIN above the first one left out (an index: that part of the deviation of the scores that it
sees). Tokens are drawn from a seed until that holds.

usage: long_golden.py FOLDER TARGET        (transformers 5.24, torch 2.15, safetensors; minutes)
"""
import contextlib
import pathlib
import sys

import golden_models
import torch
from safetensors.torch import save_file

TOKENS = 1100
STEP = 64  # so many more are looked at once all before them are good
TOP = 8
MARGIN = 2e-3
SEED = 7
FIRST_TOKEN = 3  # behind those that begin, end and fill
UNSEEN = -1e30  # what a mask adds, or less


def deviations(rows):
    """The deviations of what each row sees."""
    seen = rows > UNSEEN
    count = seen.sum(-1).clamp(min=1)
    means = rows.masked_fill(~seen, 0.0).sum(-1) / count
    off = (rows - means[:, None]).masked_fill(~seen, 0.0)
    return (off.square().sum(-1) / count).sqrt()


class Choices:
    """The positions whose choice is near a tie, of every topk() while it is looked at."""

    def __init__(self):
        self.first_bad = TOKENS
        self.least = float("inf")

    def look_at(self, scores, count):
        is_index = scores.dim() == 3 and scores.shape[0] == 1
        if scores.dim() == 3 and not is_index:
            return  # the best two of each group of experts, whose sum has no edge
        rows = scores[0] if is_index else scores
        if count >= rows.shape[-1]:
            return
        best = rows.topk_kept(count + 1, dim=-1).values
        margins = best[:, count - 1] - best[:, count]
        if is_index:
            margins = margins / deviations(rows)
        margins = margins.masked_fill(best[:, count] < UNSEEN, float("inf"))
        self.least = min(self.least, margins.min().item())
        bad = torch.nonzero(margins <= MARGIN)
        if len(bad):
            self.first_bad = min(self.first_bad, bad[0].item())


@contextlib.contextmanager
def looking():
    choices = Choices()
    kept = torch.topk, torch.Tensor.topk

    def topk(scores, k, *args, **kwargs):
        choices.look_at(scores, k)
        return kept[0](scores, k, *args, **kwargs)

    torch.Tensor.topk_kept = kept[1]
    torch.topk = torch.Tensor.topk = topk
    try:
        yield choices
    finally:
        torch.topk, torch.Tensor.topk = kept


def draw(model, vocab_size):
    """Tokens, their logits, and the least margin."""
    generator = torch.Generator().manual_seed(SEED)

    def drawn(count):
        return torch.randint(FIRST_TOKEN, vocab_size, (count,), generator=generator)

    tokens = drawn(TOKENS)
    good, redrawn = 0, 0
    while True:
        end = min(good + STEP, TOKENS)
        with looking() as choices, torch.no_grad():
            logits = model(input_ids=tokens[None, :end], use_cache=False).logits[0]
        good = min(choices.first_bad, end)
        if good == TOKENS:
            print("drawn again", redrawn, "least margin", choices.least)
            return tokens, logits, choices.least
        if good < end:
            tokens[good] = drawn(1)
            redrawn += 1
            print("near a tie at", good, flush=True)


def main(folder, target):
    with golden_models.in_float64():
        model = golden_models.load(folder, torch.float64)
        tokens, logits, margin = draw(model, model.lm_head.weight.shape[0])
    assert logits.dtype == torch.float64
    top = logits.topk(TOP, dim=-1)
    weights = torch.sin(torch.arange(1, logits.shape[1] + 1, dtype=torch.double))
    checks = torch.stack([logits @ weights, logits.norm(dim=-1)], dim=-1)
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    save_file({"tokens": tokens.int(), "top_ids": top.indices.int().contiguous(),
               "top_logits": top.values.to(torch.float32).contiguous(),
               "checks": checks.to(torch.float32).contiguous()}, target,
              {"source": f"{golden_models.versions()} float64 cpu eager",
               "least_margin": str(margin)})
    print(target, "deviation", logits.std().item())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
