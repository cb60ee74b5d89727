#!/usr/bin/env python3
"""Dialogues of the talking model, made from a seed.

    tools/talker/dialogues.py --count 20 [--first 0]

prints the conversations of some seeds. train.py makes its own by conversation(seed); evaluate.py
asks held_out_questions() and held_out_tool_prompts(), whose phrases, names, numbers and tools
(split.py decides by hash) no conversation has.
"""

import argparse
import json

import echoes
import entities
import scenes
import smalltalk
import toolbox
from questions import KINDS
from split import Draw

# How often a single question is of a kind.
WEIGHTS = {"arithmetic": 7, "compare": 3, "opposite": 3, "order": 2, "tale": 4, "unknown": 3,
           "is_kind": 2, "kind": 2, "colour": 2, "young": 2, "food": 2}
STORY_ASKS = ["Tell me a story about {ax}.", "Tell me a story.", "Tell a story about {ax}.",
              "I want to hear a story of {ax}.", "A story about {ax}, please.", "Once upon a time",
              "Can you tell me a story about {ax}?", "Please tell me a tale of {ax}.",
              "Write a story about {ax}.", "Make up a story about {ax}.",
              "Do you know a story about {ax}?"]


def question(draw):
    kinds = list(KINDS)
    weights = [WEIGHTS.get(kind, 1) for kind in kinds]
    return KINDS[draw.rng.choices(kinds, weights)[0]](draw)


def small_thing(draw):
    """Any exchange that stands for itself."""
    roll = draw.rng.random()
    if roll < 0.7:
        return question(draw)
    if roll < 0.85:
        return smalltalk.talk(draw)
    return smalltalk.who_are_you(draw)


def exchanges(draw):
    """(system message or none, exchanges) of a conversation without tools."""
    roll = draw.rng.random()
    if roll < 0.14:
        return None, echoes.echoes(draw)
    if roll < 0.38:
        system = draw.phrase("system", smalltalk.PLAIN_SYSTEM) if draw.chance(0.25) else None
        return system, [small_thing(draw) for _ in range(draw.any([1, 1, 2, 3, 4]))]
    if roll < 0.55:
        system = draw.phrase("system", smalltalk.PLAIN_SYSTEM) if draw.chance(0.15) else None
        turns = [scenes.scene_question(draw) for _ in range(draw.any([1, 1, 2]))]
        if draw.chance(0.3):
            turns.insert(draw.between(0, len(turns)), small_thing(draw))
        return system, turns
    if roll < 0.67:
        return None, scenes.scene_conversation(draw) + [small_thing(draw)] * draw.any([0, 0, 1])
    if roll < 0.78:
        return None, smalltalk.remembered(draw, small_thing)
    if roll < 0.84:
        called = entities.name(draw)
        system = draw.phrase("named", smalltalk.NAMED).format(x=called)
        turns = [smalltalk.who_are_you(draw, called)]
        while draw.chance(0.5):
            turns.insert(draw.between(0, len(turns)), question(draw))
        return system, turns
    if roll < 0.97:
        return obedient(draw)
    return None, [smalltalk.not_told(draw, []), small_thing(draw)]


def obedient(draw):
    system, way, saying = smalltalk.obeyed(draw)
    make = smalltalk.shortly_answered if way == "word" else small_thing
    turns = [make(draw) for _ in range(draw.any([1, 1, 2, 3]))]
    return system, [smalltalk.obey(turn, way, saying) for turn in turns]


def conversation(seed):
    """{"messages", "tools"}; the assistant's messages are what is learnt."""
    draw = Draw(seed)
    if draw.chance(0.3):
        tools, messages = toolbox.tool_conversation(draw)
        if draw.chance(0.3):
            messages.insert(0, {"role": "system",
                                "content": draw.phrase("system", smalltalk.PLAIN_SYSTEM)})
        return {"messages": messages, "tools": tools}
    system, turns = exchanges(draw)
    messages = [] if system is None else [{"role": "system", "content": system}]
    for turn in turns:
        messages += [{"role": "user", "content": turn.user},
                     {"role": "assistant", "content": turn.answer}]
    return {"messages": messages, "tools": None}


def story_request(seed, animal):
    """What a user says to hear a story about `animal`; train.py has the story model tell it."""
    draw = Draw(seed)
    return draw.phrase("story", STORY_ASKS).format(ax=scenes.with_article(animal))


def test_case(kind, system, turns):
    """The last exchange is asked; those before it have happened."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    for turn in turns[:-1]:
        messages += [{"role": "user", "content": turn.user},
                     {"role": "assistant", "content": turn.answer}]
    last = turns[-1]
    messages.append({"role": "user", "content": last.user})
    return {"kind": kind, "messages": messages, "expect": last.expect, "reject": last.reject,
            "most_words": last.most_words, "answer": last.answer}


def held_out_case(number):
    """Of 20 questions 9 are of facts, 5 of stories, 2 of what was told, 3 of system messages."""
    place = number % 20
    facts = Draw(f"held out, drawn again {number}", held_phrases=True, held_entities=True)
    other = Draw(f"held out, drawn again {number}", held_phrases=number % 40 < 20,
                 held_entities=True)
    if place < 9:
        kinds = list(KINDS)
        kind = kinds[(number // 20 * 9 + place) % len(kinds)]
        return test_case(kind, None, [KINDS[kind](facts)])
    if place < 12:
        which = list(scenes.SCENES)[(number // 20 + place) % len(scenes.SCENES)]
        return test_case("story " + which, None, [scenes.scene_question(other, which)])
    if place < 14:
        return test_case("story, later turn", None, scenes.scene_conversation(other))
    if place < 16:
        taught = Draw(f"filler {number}")
        told = smalltalk.told(other, other.any(["name", *smalltalk.TOLD]))
        return test_case("told", None, [told[0], small_thing(taught), told[1]])
    if place == 16:
        called = entities.name(other)
        return test_case("named", other.phrase("named", smalltalk.NAMED).format(x=called),
                         [smalltalk.who_are_you(other, called)])
    if place < 19:
        system, turns = obedient(facts)
        return test_case("obeys", system, turns[:1])
    return test_case("talk", None, [smalltalk.talk(facts)])


def held_out_questions(count=200):
    return [held_out_case(number) for number in range(count)]


def held_out_tool_prompts(count=50):
    """Two to four tools each, and a request for one of them."""
    cases = []
    for number in range(count):
        draw = Draw(f"held out tools, drawn again {number}", held_phrases=number % 2 == 0,
                    held_entities=True)
        tools = toolbox.toolset(draw, 2 + number % 3)
        ask, call, _, _ = toolbox.make_request(draw, *draw.any(tools))
        cases.append({"messages": [{"role": "user", "content": ask}],
                      "tools": [tool for _, tool, _ in tools], "call": call})
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    for seed in range(arguments.first, arguments.first + arguments.count):
        print(json.dumps(conversation(seed), ensure_ascii=False))


if __name__ == "__main__":
    main()
