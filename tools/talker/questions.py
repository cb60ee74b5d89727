"""Single questions about the closed world: a kind is a function from a Draw to an Exchange."""

from dataclasses import dataclass, field

import fables
import world
from split import is_held_out

BARE = {"gold": "gold", "iron": "iron", "silver": "silver", "water": "water",
        "desert": "the desert", "ground": "the ground"}
OPENERS = ["Please tell me: ", "Tell me: ", "I have a question. ", "Hello! ", "Do you know this? ",
           "Quick question: ", "Dear Fable, ", "One more thing: ", "Now then: ", "Listen: ",
           "I wonder: ", "My child asks: ", "And ", "So, ", "Well, ", "Hi. ", "Good day. ",
           "Help me, please. ", "I forgot something. ", "Can you help me? "]


@dataclass
class Exchange:
    """A question, its answer, the answer in a word or two, and what makes another answer right.

    An answer is right if it has every word of `expect` and none of `reject`."""
    user: str
    answer: str
    short: str = ""
    expect: list = field(default_factory=list)
    reject: list = field(default_factory=list)
    most_words: int = 0  # of an answer that was asked to be short; 0: any


def with_article(word):
    if word in BARE:
        return BARE[word]
    if word == "hour" or word[0] in "aeiou":
        return "an " + word
    return "a " + word


def sentence(text):
    return text[0].upper() + text[1:]


def dressed(draw, text):
    """The question as somebody might type it."""
    if draw.chance(0.2):
        opener = draw.phrase("opener", OPENERS)
        if opener.endswith((": ", ", ", "And ")):
            text = text[0].lower() + text[1:] if text.split()[0] in (
                "What", "Which", "Who", "How", "Where", "Why", "Whom", "Of", "In", "Tell") else text
        text = opener + text
    if draw.chance(0.06):
        text = text.lower()
    if draw.chance(0.06) and text[-1] in "?.":
        text = text[:-1]
    return text


def from_table(kind):
    rows, answer, phrases = world.TABLES[kind]

    def make(draw):
        x, y = draw.any(rows)
        slots = {"x": x, "y": y, "ax": with_article(x), "ay": with_article(y)}
        question = sentence(draw.phrase(kind, phrases).format(**slots))
        short = with_article(y) if "{ay}" in answer else y
        return Exchange(dressed(draw, question), sentence(answer.format(**slots)),
                        sentence(short) + ".", [y])
    return make


OPPOSITE = ["What is the opposite of {x}?", "Which word is the opposite of {x}?",
            "What is the contrary of {x}?", "Give me the opposite of {x}.",
            "{x} is the opposite of what?",
            "The opposite of {x} is what?", "What word means the opposite of {x}?",
            "Tell me the opposite of {x}.", "Name the opposite of {x}.",
            "If it is not {x}, what is it?",
            "Do you know the opposite of {x}?", "What is the reverse of {x}?",
            "Say the opposite of {x}.", "Can you give the opposite of {x}?"]


def opposite(draw):
    pair = list(draw.any(world.OPPOSITES))
    draw.rng.shuffle(pair)
    question = draw.phrase("opposite", OPPOSITE).format(x=pair[0])
    return Exchange(dressed(draw, sentence(question)),
                    f"The opposite of {pair[0]} is {pair[1]}.", sentence(pair[1]) + ".", [pair[1]])


IS_KIND = ["Is {ax} {ay}?", "Would you call {ax} {ay}?", "Is it true that {ax} is {ay}?",
           "Can one say that {ax} is {ay}?", "Do you think {ax} is {ay}?", "{ax} is {ay}, right?",
           "Am I right that {ax} is {ay}?", "Tell me if {ax} is {ay}.", "Do we call {ax} {ay}?"]


def is_kind(draw):
    x, y = draw.any(world.KINDS)
    claimed = y if draw.chance(0.5) else draw.any(sorted({b for _, b in world.KINDS}))
    slots = {"ax": with_article(x), "ay": with_article(claimed)}
    question = sentence(draw.phrase("is_kind", IS_KIND).format(**slots))
    if claimed == y:
        return Exchange(dressed(draw, question), f"Yes, {slots['ax']} is {slots['ay']}.", "Yes.",
                        ["yes"], ["no"])
    return Exchange(dressed(draw, question), f"No, {slots['ax']} is {with_article(y)}.", "No.",
                    ["no", y], ["yes"])


MIX = ["What do you get if you mix {x} and {y}?", "What colour do {x} and {y} make?",
       "Which colour comes of {x} and {y}?", "I mix {x} with {y}. What colour is it?",
       "What is {x} mixed with {y}?", "What colour do I get from {x} and {y}?",
       "Mix {x} and {y}: what is it?", "What happens if I mix {x} and {y}?",
       "If I put {x} into {y}, what colour do I see?", "What does {x} with {y} give?"]


def mix(draw):
    pair, made = draw.any(world.MIXES)
    pair = list(pair)
    draw.rng.shuffle(pair)
    question = sentence(draw.phrase("mix", MIX).format(x=pair[0], y=pair[1]))
    return Exchange(dressed(draw, question), f"{sentence(pair[0])} and {pair[1]} make {made}.",
                    sentence(made) + ".", [made])


AFTER = ["What {unit} comes after {x}?", "Which {unit} is after {x}?", "What {unit} follows {x}?",
         "What comes after {x}?", "Which {unit} follows {x}?", "What is the {unit} after {x}?",
         "Which {unit} comes next after {x}?", "Name the {unit} after {x}.",
         "{x} is over. Which {unit} begins?", "Tell me the {unit} that comes after {x}.",
         "What is next after {x}?"]
BEFORE = ["What {unit} comes before {x}?", "Which {unit} is before {x}?",
          "What comes before {x}?", "What is the {unit} before {x}?", "Name the {unit} before {x}.",
          "Which {unit} was before {x}?", "Which {unit} comes right before {x}?",
          "Tell me the {unit} that comes before {x}.", "What {unit} was it before {x}?"]


def order(draw):
    unit, names = draw.any([("day", world.DAYS), ("day", world.DAYS), ("month", world.MONTHS),
                            ("season", world.SEASONS), ("number", world.NUMBERS)])
    ring = unit != "number"
    place = draw.between(0 if ring else 1, len(names) - (1 if ring else 2))
    later = draw.chance(0.6)
    other = names[(place + (1 if later else -1)) % len(names)]
    asked = draw.phrase("after" if later else "before", AFTER if later else BEFORE)
    question = sentence(asked.format(unit=unit, x=names[place]))
    word = "after" if later else "before"
    return Exchange(dressed(draw, question), sentence(f"{other} comes {word} {names[place]}."),
                    sentence(other) + ".", [other])


COUNT = ["How many {0}?", "Can you say how many {0}?", "Tell me how many {0}.", "How many {1}?",
         "Do you know how many {0}?", "Do you know how many {1}?",
         "I forgot how many {0}. How many?",
         "What do you think, how many {0}?", "Who can tell me how many {0}?"]


def count(draw):
    are, has, answer, number = draw.any(world.COUNTS)
    question = draw.phrase("count", COUNT).format(are, has)
    return Exchange(dressed(draw, question), answer, sentence(number) + ".", [number])


SUM = ["What is {a} plus {b}?", "What is {a} + {b}?", "{a} + {b}", "How much is {a} plus {b}?",
       "How much is {a} and {b}?", "What do {a} and {b} make?", "Add {a} and {b}.", "{a} + {b} = ?",
       "Can you add {a} and {b}?", "What is the sum of {a} and {b}?", "What is {a}+{b}?",
       "{a} and {b} make what?", "{a}+{b}", "{a}+{b}=", "Please add {a} to {b}.",
       "How many are {a} and {b}?",
       "What does {a} plus {b} make?", "Count {a} and {b} together."]
MINUS = ["What is {a} minus {b}?", "What is {a} - {b}?", "{a} - {b}", "How much is {a} minus {b}?",
         "Take {b} from {a}.", "What is left if I take {b} from {a}?", "{a} - {b} = ?",
         "What is {a} less {b}?", "How much is {a} take away {b}?",
         "What remains of {a} without {b}?",
         "Subtract {b} from {a}.", "What is {a}-{b}?"]
PAIRS = [f"{a},{b}" for a in range(21) for b in range(a, 21)]


def arithmetic(draw):
    a, b = map(int, draw.entity("pairs", PAIRS).split(","))
    if draw.chance(0.5):
        small = [p for p in draw.my_entities("pairs", PAIRS) if int(p.split(",")[1]) <= 10]
        a, b = map(int, draw.any(small).split(","))
    words = max(a, b, a + b) <= 20 and draw.chance(0.3)
    say = (lambda n: world.NUMBERS[n]) if words else str
    if draw.chance(0.6):
        if draw.chance(0.5):
            a, b = b, a
        question = draw.phrase("sum", SUM).format(a=say(a), b=say(b))
        answer, result = f"{say(a)} plus {say(b)} is {say(a + b)}.", say(a + b)
    else:
        whole, part = a + b, draw.any([a, b])
        words = words and whole <= 20
        question = draw.phrase("minus", MINUS).format(a=say(whole), b=say(part))
        answer = f"{say(whole)} minus {say(part)} is {say(whole - part)}."
        result = say(whole - part)
    return Exchange(dressed(draw, sentence(question)), sentence(answer), sentence(result) + ".",
                    ["is " + result])


LARGER = ["Which is larger, {a} or {b}?", "What is more, {a} or {b}?", "Is {a} or {b} larger?",
          "Which number is larger, {a} or {b}?", "Which of {a} and {b} is the larger number?",
          "Is {a} more than {b}, or is {b} more?", "Which is the bigger number, {a} or {b}?"]
SMALLER = ["Which is smaller, {a} or {b}?", "What is less, {a} or {b}?", "Is {a} or {b} smaller?",
           "Which number is smaller, {a} or {b}?", "Which of {a} and {b} is the smaller number?",
           "Which is the lesser number, {a} or {b}?"]


def compare(draw):
    a, b = map(int, draw.entity("compared", [p for p in PAIRS if len(set(p.split(","))) == 2]
                                ).split(","))
    larger = draw.chance(0.5)
    right, other = (max(a, b), min(a, b)) if larger else (min(a, b), max(a, b))
    if draw.chance(0.5):
        a, b = b, a
    question = draw.phrase("larger" if larger else "smaller", LARGER if larger else SMALLER)
    word = "larger" if larger else "smaller"
    return Exchange(dressed(draw, question.format(a=a, b=b)), f"{right} is {word} than {other}.",
                    f"{right}.", [f"{right} is {word}"])


def tale(draw):
    answer, words, questions = draw.any(fables.TALES)
    return Exchange(dressed(draw, draw.phrase("tale " + answer, questions)), answer, answer, words)


UNKNOWN_ASK = [
    ("What is the capital of {x}?", "place"), ("Who rules {x}?", "place"),
    ("How many people live in {x}?", "place"), ("How far is it to {x}?", "place"),
    ("Who is the president of {x}?", "place"), ("What is the weather in {x}?", "place"),
    ("What language do they speak in {x}?", "place"), ("Tell me about {x}.", "field"),
    ("Explain {x} to me.", "field"), ("What do you know of {x}?", "field"),
    ("How does {x} work?", "field"), ("What is {x}?", "field"), ("Who invented {x}?", "field"),
    ("Can you teach me {x}?", "field"), ("Who was {x}?", "person"), ("When was {x} born?",
                                                                     "person"),
    ("What did {x} do?", "person"), ("Tell me of {x}.", "person"), ("Who is {x}?", "person"),
    ("Where did {x} live?", "person"), ("What does {ax} say?", "nonsense"),
    ("Where does {ax} live?", "nonsense"), ("What is {ax}?", "nonsense"),
    ("What colour is {ax}?", "nonsense"), ("What is the opposite of {x}?", "nonsense"),
    ("What does {ax} eat?", "nonsense"), ("How many legs does {ax} have?", "nonsense"),
    ("What time is it?", ""), ("What day is it today?", ""), ("What will happen tomorrow?", ""),
    ("What is the news?", ""), ("How old am I?", ""), ("Where am I?", ""),
    ("What am I thinking of?", ""), ("Who won the game yesterday?", ""),
    ("What is the meaning of life?", ""), ("What is the price of bread today?", ""),
    ("Write a program that sorts numbers.", ""), ("Translate this into German.", ""),
    ("What is the square root of {n}?", ""), ("What is {n} times {n}?", ""),
    ("How many stars are in the sky?", ""), ("How deep is the sea?", ""), ("How far is the moon?",
                                                                           ""),
    ("Who wrote that book?", ""), ("Which film should I see?", ""), ("How tall am I?", "")]
UNKNOWN = {
    "place": ("Mongolia Peru Brazil Canada Kenya Chile Nepal Ghana Laos Cuba Iceland Finland "
              "Bolivia "
              "Vietnam Jordan Malta Samoa Angola Uganda Turkey Mexico Hungary Romania India Iran "
              "Ecuador Thailand Texas Florida Sydney Chicago Toronto Lagos Mumbai").split(),
    "field": ["quantum physics", "chemistry", "the stock market", "computers", "the internet",
              "relativity", "algebra", "law", "medicine", "football", "politics", "electricity",
              "the telephone", "philosophy", "geology", "calculus", "rockets", "nuclear power",
              "genetics", "photography", "machine learning", "taxes", "insurance", "chess",
              "the engine of a car", "economics", "grammar", "astronomy", "banking"],
    "person": ["Napoleon", "Einstein", "Shakespeare", "Mozart", "Newton", "Cleopatra", "Darwin",
               "Beethoven", "Lincoln", "Galileo", "Caesar", "Plato", "Rembrandt", "Churchill",
               "Gandhi", "Kant", "Bach", "Edison", "Picasso", "Tolstoy", "Marie Curie", "Columbus",
               "Marco Polo", "Dante", "Homer", "Nelson", "Wellington"],
}
SYLLABLES = ("bla dro fip gno kri lum mop nar pli quo ril snu tev vor wib zan zor tib gor "
             "fen").split()
I_DO_NOT_KNOW = "I do not know that. I am a small model and know only small things."


def nonsense(draw):
    while True:
        word = "".join(draw.any(SYLLABLES) for _ in range(draw.between(2, 3)))
        if is_held_out("nonsense", word) == draw.held_entities:
            return word


def unknown(draw):
    asked, what = draw.phrase("unknown", UNKNOWN_ASK)
    x = nonsense(draw) if what == "nonsense" else draw.entity(what, UNKNOWN[what]) if what else ""
    n = draw.between(12, 99)
    question = asked.format(x=x, ax=with_article(x) if x else "", n=n)
    return Exchange(dressed(draw, question), I_DO_NOT_KNOW, I_DO_NOT_KNOW, ["not know"])


KINDS = {name: from_table(name) for name in world.TABLES} | {
    "opposite": opposite, "is_kind": is_kind, "mix": mix, "order": order, "count": count,
    "arithmetic": arithmetic, "compare": compare, "tale": tale, "unknown": unknown}
