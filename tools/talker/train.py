#!/usr/bin/env python3
"""Teaches a story model to converse.

    tools/talker/train.py --model STORY_MODEL --out OUT [--begin TRAINED] [--seconds 330]

The loss is the cross entropy of answers plus the divergence from the model as it was on stories
that it told itself. In the last part weights are rounded to 4 bits in the forward pass, so that the
quantised model answers as the trained one. Writes a bf16 checkpoint and log.json into OUT; with the
tokenizer's files and chat_template.jinja and generation_config.json of this folder it is a model.
"""

import argparse
import json
import math
import multiprocessing
import os
import shutil
import time

import numpy
import torch
import torch.nn.functional as F

import dialogues
from examples import Format, Shards, pack
from network import Network, load_weights, read_config, save_weights
from entities import ANIMALS
from questions import with_article
from stories import HEROES, OPENINGS, continue_texts

QUANTISED_LAST = 0.4  # the part of training with rounded weights
GROUP = 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", required=True,
                        help="bf16 checkpoint of the story model, with tokenizer")
    parser.add_argument("--begin", help="checkpoint to go on from (default: the story model)")
    parser.add_argument("--out", required=True)
    parser.add_argument("--held-out-text", help="a story text to measure the loss on")
    parser.add_argument("--held-out-tokens", type=int, default=47104, help="of it, at most")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--seconds", type=float, default=0, help="end here if steps take longer")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--dialogue-rows", type=int, default=32)
    parser.add_argument("--told-rows", type=int, default=2)
    parser.add_argument("--story-rows", type=int, default=6)
    parser.add_argument("--story-batches", type=int, default=2)
    parser.add_argument("--story-batch", type=int, default=4096)
    parser.add_argument("--story-length", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--story-weight", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--shard", type=int, default=512, help="dialogues a worker makes at once")
    parser.add_argument("--first-shard", type=int, default=0, help="of dialogues not seen yet")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compiled", type=int, default=2, help="how much, see network.py")
    return parser.parse_args()


def is_quantised(name, value):
    """What `moeflux quantize --type affine-4` gives four bits."""
    return value.dim() > 1 and not name.endswith(
        ("mlp.gate.weight", "shared_expert_gate.weight", "conv1d.weight"))


@torch.no_grad()
def rounded(weight):
    """To affine codes of 4 bits and back, as MLX chooses scale and bias of a group."""
    groups = weight.reshape(-1, GROUP)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp_min(1e-7)
    low_edge = low.abs() > high.abs()
    edge = torch.where(low_edge, low, high)
    scale = torch.where(low_edge, scale, -scale)
    code = (edge / scale).round()
    scale = torch.where(code == 0, scale, edge / code).bfloat16().float()
    bias = torch.where(code == 0, torch.zeros_like(edge), edge).bfloat16().float()
    codes = ((groups - bias) / scale).round().clamp(0, 15)
    return (codes * scale + bias).view(weight.shape)


class RoundedWeights:
    """Within it, parameters hold rounded values; gradients go to the exact ones."""

    def __init__(self, weights, active):
        self.pairs = [(v, v.data) for n, v in weights.items() if active and is_quantised(n, v)]

    def __enter__(self):
        for value, exact in self.pairs:
            value.data = rounded(exact)

    def __exit__(self, *_):
        for value, exact in self.pairs:
            value.data = exact


def story_openings(count):
    """[(hero, how a story of it begins)]"""
    heroes = ANIMALS + HEROES
    chosen = [(heroes[n % len(heroes)], OPENINGS[n // len(heroes) % len(OPENINGS)])
              for n in range(count)]
    return [(hero, opening.format(ax=with_article(hero))) for hero, opening in chosen]


def told_examples(chat, openings, told):
    """Dialogues in which a story is asked for and told, up to the end of a sentence."""
    examples = []
    for n, ((hero, _), ids) in enumerate(zip(openings, told)):
        text = chat.tokenizer.decode(ids[: 40 + n % 88])
        text = text[: max(text.rfind(mark) for mark in (".", "!", "?")) + 1].strip()
        if len(text) > 80:
            request = dialogues.story_request(n, hero)
            examples.append(chat.example([{"role": "user", "content": request},
                                          {"role": "assistant", "content": text}]))
    return examples


def tell_stories(weights, config, chat, arguments, device):
    """(packed rows of free stories, packed rows of dialogues in which a story is told)."""
    generator = torch.Generator(device).manual_seed(arguments.seed)
    length, batch = arguments.story_length, arguments.story_batch
    free = [continue_texts(weights, config, [[0]] * batch, length, generator)
            for _ in range(arguments.story_batches)]
    free = [row[n % 2:] for n, row in enumerate(torch.cat(free).tolist())]
    openings = story_openings(batch)
    prompts = [chat.encode(text) for _, text in openings]
    told = continue_texts(weights, config, prompts, 128, generator, temperature=0.8, top_k=40)
    examples = told_examples(chat, openings, told.tolist())
    return (pack([(ids, [1.0] * len(ids)) for ids in free], arguments.length),
            pack(examples, arguments.length))


def row_cycle(packed, count, seed):
    """Endless draws of `count` rows, each row once a round."""
    order = torch.Generator().manual_seed(seed)
    kept = torch.empty(0, dtype=torch.long)
    while True:
        while len(kept) < count:
            kept = torch.cat([kept, torch.randperm(len(packed[0]), generator=order)])
        yield [part[kept[:count].numpy()] for part in packed]
        kept = kept[count:]


def joined(first, second):
    return [numpy.concatenate(pair) for pair in zip(first, second)]


def dialogue_rows(shards, count):
    kept = None
    for packed in shards:
        kept = packed if kept is None else joined(kept, packed)
        while len(kept[0]) >= count:
            yield [part[:count] for part in kept]
            kept = [part[count:] for part in kept]


def shifted(ids, weights, document):
    """Targets and their weights: a document's first token is nobody's target."""
    same = document[:, 1:] == document[:, :-1]
    return ids[:, 1:], weights[:, 1:] * same


class Trainer:
    def __init__(self, arguments):
        self.arguments, self.device = arguments, arguments.device
        self.config = read_config(arguments.model)
        self.chat = Format(arguments.model)
        self.teacher = load_weights(arguments.model, self.device)
        begin = load_weights(arguments.begin or arguments.model, self.device)
        self.weights = {n: v.requires_grad_() for n, v in begin.items()}
        self.plain = Network(self.config)
        self.network = Network(self.config, compiled=arguments.compiled)
        small = [v for v in self.weights.values() if v.dim() < 2]
        large = [v for v in self.weights.values() if v.dim() >= 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": large, "weight_decay": 0.01}, {"params": small, "weight_decay": 0.0}],
            lr=arguments.rate, betas=(0.9, 0.95), fused=self.device == "cuda")
        self.log = []

    def to_device(self, packed):
        ids, weights, *places = (torch.from_numpy(part).to(self.device) for part in packed)
        return [ids.long(), weights, *(place.long() for place in places)]

    def losses(self, talk, story):
        """(cross entropy of answers, divergence from the teacher on stories)."""
        ids, weights, document, position = (torch.cat(pair) for pair in zip(talk, story))
        rows = len(talk[0])
        with torch.autocast(self.device, torch.bfloat16):
            hidden = self.network.hidden(self.weights, ids, document, position)
            with torch.no_grad():
                before = self.plain.hidden(self.teacher, story[0], story[2], story[3])
        targets, counts = shifted(ids, weights, document)
        answer = self.answer_loss(hidden[:rows, :-1], targets[:rows], counts[:rows])
        return answer, self.divergence(hidden[rows:, :-1], before[:, :-1], counts[rows:] > 0)

    def answer_loss(self, hidden, targets, counts):
        chosen = counts > 0
        with torch.autocast(self.device, torch.bfloat16):
            logits = self.network.logits(self.weights, hidden[chosen])
        each = F.cross_entropy(logits.float(), targets[chosen], reduction="none")
        return (each * counts[chosen]).sum() / counts.sum()

    def divergence(self, hidden, before, chosen):
        with torch.autocast(self.device, torch.bfloat16):
            mine = self.network.logits(self.weights, hidden[chosen])
            with torch.no_grad():
                its = self.network.logits(self.teacher, before[chosen])
        return F.kl_div(F.log_softmax(mine.float(), -1), F.log_softmax(its.float(), -1),
                        log_target=True, reduction="batchmean")

    def backward(self, talk, story):
        answer, divergence = self.losses(self.to_device(talk), self.to_device(story))
        (answer + self.arguments.story_weight * divergence).backward()
        return answer, divergence

    def backward_compiled(self, talk, story):
        """backward(); what does not compile here is not compiled any more."""
        while True:
            try:
                return self.backward(talk, story)
            except Exception as error:  # what a compiler may raise has no common name
                if self.network.compiled == 0:
                    raise
                print(f"compiling less: {error}"[:1500], flush=True)
                self.network = Network(self.config, self.network.compiled - 1)
                self.optimizer.zero_grad(set_to_none=True)

    def set_rate(self, step, progress):
        rate = self.arguments.rate * min(1.0, (step + 1) / 80) * (
            0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def step(self, talk, story, rounding):
        with RoundedWeights(self.weights, rounding):
            answer, divergence = self.backward_compiled(talk, story)
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return answer, divergence

    @torch.no_grad()
    def text_loss(self, weights, path):
        """Nats a token in windows of 512."""
        with open(path, encoding="utf-8") as file:
            ids = torch.tensor(self.chat.encode(file.read())[: self.arguments.held_out_tokens],
                               device=self.device)
        ids = ids[: len(ids) // 512 * 512].view(-1, 512)
        total = 0.0
        for part in ids.split(16):
            document = torch.zeros_like(part)
            position = torch.arange(512, device=self.device).expand_as(part)
            hidden = self.plain.hidden(weights, part, document, position)
            logits = self.plain.logits(weights, hidden[:, :-1])
            total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].reshape(-1),
                                     reduction="sum").item()
        return total / (ids.shape[0] * 511)

    def run(self, shards):
        arguments, start = self.arguments, time.monotonic()
        torch.set_float32_matmul_precision("high")  # enough to draw stories
        free, told = tell_stories(self.teacher, self.config, self.chat, arguments, self.device)
        print(f"{len(free[0])} rows of stories, {len(told[0])} rows of told ones, "
              f"{time.monotonic() - start:.0f} s", flush=True)
        torch.set_float32_matmul_precision("highest")
        free_rows = row_cycle(free, arguments.story_rows, arguments.seed)
        told_rows = row_cycle(told, arguments.told_rows, arguments.seed + 1)
        begin = time.monotonic()
        for step, talk in zip(range(arguments.steps), dialogue_rows(shards,
                                                                    arguments.dialogue_rows)):
            spent = time.monotonic() - begin
            progress = max(step / arguments.steps, spent / arguments.seconds if arguments.seconds
                           else 0)
            if progress >= 1:
                break
            if step == 2:  # the first ones compile
                begin = time.monotonic()
            self.set_rate(step, progress)
            talk = joined(talk, next(told_rows))
            rounding = progress > 1 - QUANTISED_LAST
            answer, divergence = self.step(talk, next(free_rows), rounding)
            if step % 50 == 0 or step < 10 and self.device == "cpu":
                self.log.append({"step": step, "seconds": round(spent, 1),
                                 "answer_loss": round(answer.item(), 4),
                                 "story_divergence": round(divergence.item(), 4),
                                 "rounded": rounding})
                print(json.dumps(self.log[-1]), flush=True)
        return {"steps": step + 1, "seconds": round(time.monotonic() - begin, 1), "log": self.log}


def shards_needed(arguments):
    """Dialogues have some 147 tokens; a third more than needed."""
    tokens = arguments.steps * arguments.dialogue_rows * arguments.length
    return 2 + tokens * 4 // (3 * 147 * arguments.shard)


def main():
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    os.makedirs(arguments.out, exist_ok=True)
    shards = Shards(arguments.model, arguments.shard, arguments.length)
    numbers = range(arguments.first_shard, arguments.first_shard + shards_needed(arguments))
    with multiprocessing.get_context("spawn").Pool(arguments.workers) as pool:
        trainer = Trainer(arguments)
        record = trainer.run(pool.imap(shards, numbers))
        pool.terminate()
    weights = {n: v.detach() for n, v in trainer.weights.items()}
    save_weights(weights, arguments.out)
    shutil.copy(os.path.join(arguments.model, "config.json"), arguments.out)
    if arguments.held_out_text:
        few = {n: rounded(v) if is_quantised(n, v) else v for n, v in weights.items()}
        before = {n: rounded(v) if is_quantised(n, v) else v for n, v in trainer.teacher.items()}
        record["text_loss"] = {
            name: round(trainer.text_loss(w, arguments.held_out_text), 4) for name, w in
            (("before", trainer.teacher), ("after", weights), ("before, 4 bits", before),
             ("after, 4 bits", few))}
        print(json.dumps(record["text_loss"]))
    record["arguments"] = vars(arguments)
    with open(os.path.join(arguments.out, "log.json"), "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
