"""Exercises in reading: repeat this, what stands behind that. They teach to copy any word."""

from entities import odd_word, odd_words
from questions import Exchange, sentence

REPEAT = ["Repeat: {x}", "Repeat after me: {x}", "Say: {x}", "Say this: {x}",
          "Write this again: {x}",
          "Please repeat the words: {x}", "Copy this line: {x}", "Say \"{x}\"", "Write \"{x}\"",
          "{x}\n\nRepeat that.", "Read this aloud: {x}", "What does this say? {x}"]
FIRST = ["What is the first word of: {x}", "Which word comes first? {x}",
         "Give me the first word: {x}",
         "{x}\nWhat is the first word?"]
LAST = ["What is the last word of: {x}", "Which word comes last? {x}", "Give me the last word: {x}",
        "{x}\nWhat is the last word?"]
AFTER = ["Which word comes after {y}? {x}", "{x}\nWhich word comes after {y}?",
         "In this line, what follows {y}? {x}", "{x}\nWhat stands behind {y}?"]
PAIRS = ["{k} is {v}.", "{k}: {v}", "{k} = {v}", "The {k} is {v}.", "{k} has {v}."]
ASK = ["What is {k}?", "{k}?", "What stands beside {k}?", "And {k}?", "Tell me {k}.",
       "What about {k}?"]
BACK = ["Which one is {v}?", "What has {v}?", "Where do you see {v}?"]


def repeat(draw):
    words = odd_words(draw, 1, draw.any([4, 8, 16, 30]))
    words = draw.any([words, sentence(words) + ".", words.title()])
    return Exchange(draw.phrase("repeat", REPEAT).format(x=words), words)


def pick(draw):
    words = list(dict.fromkeys(odd_word(draw) for _ in range(draw.between(3, 10))))
    place = draw.between(0, len(words) - 2)
    phrases, answer = draw.any([(FIRST, words[0]), (LAST, words[-1]), (AFTER, words[place + 1])])
    asked = draw.phrase("pick " + phrases[0], phrases)
    return Exchange(asked.format(x=" ".join(words), y=words[place]), answer)


def look_up(draw):
    """Some pairs, then several questions for them."""
    count = draw.between(2, 9)
    words = list(dict.fromkeys(odd_word(draw) for _ in range(2 * count)))
    pairs = list(zip(words[::2], words[1::2]))
    form = draw.any(PAIRS)
    lines = draw.any([" ", "\n"]).join(form.format(k=k, v=v) for k, v in pairs)
    turns = []
    for k, v in draw.rng.sample(pairs, min(len(pairs), draw.between(1, 4))):
        if draw.chance(0.75):
            turns.append(Exchange(draw.phrase("ask pair", ASK).format(k=k), form.format(k=k, v=v)))
        else:
            turns.append(Exchange(draw.phrase("ask back", BACK).format(v=v), form.format(k=k, v=v)))
    turns[0].user = draw.any([f"{lines}\n\n{turns[0].user}", f"{lines}\n{turns[0].user}",
                              f"{turns[0].user}\n\n{lines}"])
    return turns


def echoes(draw):
    if draw.chance(0.5):
        return look_up(draw)
    return [draw.any([repeat, repeat, pick])(draw) for _ in range(draw.between(1, 3))]
