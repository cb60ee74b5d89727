"""Short stories in the prompt and questions that only the prompt can answer."""

from questions import Exchange, sentence, with_article
from entities import (ANIMALS, COLOURS, CONTAINERS, FEELINGS, MADE_OF, PLACES, SPOTS, THINGS, TOWNS,
                      entities, entity, two_names, usual)
import world


class Scene:
    """Sentences of a story, and for each fact (kind, phrases, answer, short, expected words)."""

    def __init__(self):
        self.lines = []
        self.facts = []

    def tell(self, line):
        self.lines.append(line)

    def fact(self, kind, phrases, answer, short, reject=()):
        self.facts.append((kind, phrases, answer, short, list(reject)))


def walk(draw):
    """Somebody finds something somewhere and gives it away."""
    s, (who, other) = Scene(), two_names(draw)
    beast, beast2 = entities(draw, "animal", ANIMALS, 2)
    thing, colour = entity(draw, "thing", THINGS), usual(draw, COLOURS)
    place, day = usual(draw, PLACES), draw.any(world.DAYS)
    feeling = usual(draw, FEELINGS)
    s.tell(draw.any([f"{who} was {with_article(beast)}.",
                     f"There was once {with_article(beast)} called {who}.",
                     f"Once there lived {with_article(beast)} whose name was {who}.",
                     f"A {draw.any(['little', 'young', 'clever', 'poor'])} {beast} was named "
                     f"{who}."]))
    s.fact("what animal", ["What kind of animal was {who}?", "What animal was {who}?",
                           "What was {who}?",
                           "Was {who} a man or an animal, and which?", "Which animal was {who}?",
                           "Tell me what animal {who} was."],
           f"{who} was {with_article(beast)}.", beast, [beast2])
    s.fact("name of", ["What was the {beast} called?", "What was the name of the {beast}?",
                       "Who was the {beast}?", "How was the {beast} called?", "Name the {beast}."],
           f"The {beast} was called {who}.", who, [other])
    s.tell(draw.any([f"On {day} {who} went to the {place}.",
                     f"One {day} {who} walked to the {place}.",
                     f"It was {day}, and {who} ran to the {place}."]))
    s.fact("where went", ["Where did {who} go?", "Where did {who} go on {day}?",
                          "To what place did {who} go?",
                          "Which place did {who} visit?", "Where was {who} on {day}?"],
           f"{who} went to the {place}.", "the " + place)
    s.fact("when", ["When did {who} go to the {place}?",
                    "On which day did {who} go to the {place}?",
                    "What day was it when {who} went to the {place}?", "On what day was that?",
                    "Which day was it?"], f"{who} went there on {day}.", day)
    s.tell(draw.any([f"There {who} found a {colour} {thing}.",
                     f"{who} saw a {colour} {thing} there and took it.",
                     f"A {colour} {thing} lay there, and {who} found it."]))
    s.fact("what found", ["What did {who} find?", "What did {who} find there?",
                          "What did {who} find at the {place}?",
                          "Which thing did {who} find?", "What lay at the {place}?",
                          "What was found by {who}?"],
           f"{who} found a {colour} {thing}.", thing)
    s.fact("what colour", ["What colour was the {thing}?", "Which colour had the {thing}?",
                           "Of what colour was the {thing}?", "Tell me the colour of the {thing}.",
                           "What was the colour of the {thing}?"],
           f"The {thing} was {colour}.", colour)
    s.fact("who found", ["Who found the {thing}?", "Who found the {colour} {thing}?",
                         "Who took the {thing}?",
                         "By whom was the {thing} found?", "Tell me who found the {thing}."],
           f"{who} found the {thing}.", who, [other])
    s.tell(draw.any([f"{who} gave it to {other} the {beast2}, who was {feeling}.",
                     f"Then {who} gave it to {other}, {with_article(beast2)}, and {other} was "
                     f"{feeling}.",
                     f"{other} the {beast2} was {feeling} when {who} gave it to "
                     f"{draw.any(['him', 'her'])}."]))
    s.fact("to whom", ["To whom did {who} give the {thing}?", "Who got the {thing}?",
                       "Who got it in the end?",
                       "Who was given the {thing}?", "Whom did {who} give it to?",
                       "Who has the {thing} now?"], f"{who} gave the {thing} to {other}.", other)
    s.fact("feeling", ["How was {other}?", "How did {other} feel?", "What did {other} feel?",
                       "How was {other} then?", "In what mood was {other}?"],
           f"{other} was {feeling}.", feeling)
    return s, {"who": who, "other": other, "beast": beast, "thing": thing, "colour": colour,
               "place": place, "day": day}


def household(draw):
    """A person with a job, children and a house."""
    s, (who, child) = Scene(), two_names(draw)
    job, town = draw.any(world.JOBS)[0], entity(draw, "town", TOWNS).capitalize()
    number, kin = draw.between(2, 9), draw.any(["sons", "daughters", "brothers", "sisters",
                                                "children"])
    stuff, colour = usual(draw, MADE_OF), usual(draw, COLOURS)
    s.tell(draw.any([f"{who} was {with_article(job)} in {town}.",
                     f"In {town} there lived {with_article(job)} called {who}.",
                     f"{with_article(job).capitalize()} named {who} lived in {town}."]))
    s.fact("job", ["What was the job of {who}?", "What was {who}?",
                   "What did {who} do for a living?",
                   "What work did {who} do?", "Which job did {who} have?"],
           f"{who} was {with_article(job)}.", job)
    s.fact("who was", ["Who was the {job}?", "What was the {job} called?",
                       "What was the name of the {job}?",
                       "Which name did the {job} have?"], f"The {job} was called {who}.", who,
           [child])
    s.fact("town", ["Where did {who} live?", "In which town did {who} live?",
                    "Which town did {who} live in?",
                    "Where was the {job} at home?", "In what town was that?"],
           f"{who} lived in {town}.", town)
    count = world.NUMBERS[number]
    s.tell(draw.any([f"{who} had {count} {kin}, and the youngest was {child}.",
                     f"Of {count} {kin} of {who} the youngest was called {child}.",
                     f"There were {count} {kin}; the youngest of them was {child}."]))
    s.fact("how many", ["How many {kin} did {who} have?", "How many {kin} were there?",
                        "How many {kin} had {who}?",
                        "What number of {kin} did {who} have?", "Count the {kin} of {who}."],
           f"{who} had {count} {kin}.", count)
    s.fact("youngest", ["Who was the youngest?", "What was the youngest called?",
                        "What was the name of the youngest?",
                        "Which of the {kin} was the youngest?", "Name the youngest of the {kin}."],
           f"The youngest was {child}.", child, [who])
    s.tell(draw.any([f"The house was made of {stuff} and had a {colour} door.",
                     f"They had a house of {stuff} with a {colour} door."]))
    s.fact("made of", ["What was the house made of?", "Of what was the house?",
                       "Of what was the house made?",
                       "What was the house built of?", "Which stuff was the house made of?"],
           f"The house was made of {stuff}.", stuff)
    s.fact("door", ["What colour was the door?", "Which colour had the door?",
                    "What was the colour of the door?",
                    "Of what colour was the door?", "How was the door painted?"],
           f"The door was {colour}.", colour)
    return s, {"who": who, "job": job, "kin": kin, "other": child}


def things(draw):
    """Things and the places where they lie."""
    s = Scene()
    count = draw.between(2, 4)
    names = entities(draw, "thing", THINGS, count)
    spots = draw.rng.sample(SPOTS + [f"in the {c}" for c in CONTAINERS], count)
    for thing, spot in zip(names, spots):
        s.tell(draw.any([f"The {thing} is {spot}.", f"The {thing} lies {spot}.",
                         f"You find the {thing} {spot}."]))
        s.fact("where is", ["Where is the " + thing + "?", "Where does the " + thing + " lie?",
                            "Where can I find the " + thing + "?",
                            "Where do I find the " + thing + "?",
                            "Where should I look for the " + thing + "?",
                            "I need the " + thing + ". Where is it?"],
               f"The {thing} is {spot}.", spot, [other for other in spots if other != spot])
        s.fact("what is there", ["What is " + spot + "?", "What lies " + spot + "?",
                                 "Which thing is " + spot + "?",
                                 "What can I find " + spot + "?", "What do I find " + spot + "?"],
               f"The {thing} is {spot}.", thing, [other for other in names if other != thing])
    return s, {}


def race(draw):
    """Who comes first and last."""
    s = Scene()
    a, b, c = entities(draw, "animal", ANIMALS, 3)
    place = usual(draw, PLACES)
    s.tell(f"The {a}, the {b} and the {c} ran a race to the {place}." if draw.chance(0.5) else
           f"Three animals ran to the {place}.")
    first, second, last = draw.rng.sample([a, b, c], 3)
    s.tell(draw.any([f"The {first} came first, the {second} second, and the {last} was last.",
                     f"The {last} was last, the {second} came second, and the {first} won.",
                     f"First came the {first}, then the {second}, and last of all the {last}."]))
    s.fact("first", ["Who won?", "Who won the race?", "Who came first?",
                     "Which animal was the fastest?",
                     "Who was the winner?", "Which animal came first?"],
           f"The {first} came first.", first, [second, last])
    s.fact("last", ["Who was last?", "Who came last?", "Which animal was the slowest?",
                    "Which animal came last?",
                    "Who lost the race?"], f"The {last} came last.", last, [first, second])
    s.fact("second", ["Who was second?", "Who came second?", "Which animal came second?",
                      "Who was neither first nor last?"], f"The {second} came second.", second,
           [first, last])
    s.fact("whither", ["Where did they run?", "Where did the animals run to?",
                       "Where was the race?",
                       "To what place did they run?"], f"They ran to the {place}.", place)
    return s, {}


def market(draw):
    """Who buys how many of what."""
    s, (who, other) = Scene(), two_names(draw)
    x, y = entities(draw, "thing", THINGS, 2)
    n, m = draw.rng.sample(range(2, 12), 2)
    place = draw.any(["market", "fair", "shop", "harbour"])
    plural = {word: word + ("es" if word.endswith(("x", "h")) else "s") for word in (x, y)}
    plural.update({"knife": "knives"} if "knife" in (x, y) else {})
    px, py = plural[x], plural[y]
    s.tell(f"{who} and {other} went to the {place}.")
    s.tell(f"{who} bought {world.NUMBERS[n]} {px}, and {other} bought {world.NUMBERS[m]} {py}.")
    s.fact("how many bought", ["How many " + px + " did {who} buy?",
                               "How many " + px + " were bought?",
                               "How many " + px + " has {who}?", "Count the " + px + " of {who}."],
           f"{who} bought {world.NUMBERS[n]} {px}.", world.NUMBERS[n])
    s.fact("how many bought", ["How many " + py + " did {other} buy?",
                               "How many " + py + " were bought?",
                               "How many " + py + " has {other}?",
                               "Count the " + py + " of {other}."],
           f"{other} bought {world.NUMBERS[m]} {py}.", world.NUMBERS[m])
    s.fact("who bought", ["Who bought the " + px + "?", "Who bought " + px + "?",
                          "Who has " + px + " now?",
                          "Which of them bought " + px + "?"], f"{who} bought the {px}.", who,
           [other])
    s.fact("who bought", ["Who bought the " + py + "?", "Who bought " + py + "?",
                          "Who has " + py + " now?",
                          "Which of them bought " + py + "?"], f"{other} bought the {py}.", other,
           [who])
    s.fact("what bought", ["What did {other} buy?", "What did {other} get?",
                           "Which things did {other} buy?",
                           "What has {other} bought?"], f"{other} bought {world.NUMBERS[m]} {py}.",
           py, [px])
    s.fact("what bought", ["What did {who} buy?", "What did {who} get?",
                           "Which things did {who} buy?",
                           "What has {who} bought?"], f"{who} bought {world.NUMBERS[n]} {px}.", px,
           [py])
    return s, {"who": who, "other": other}


NOT_TOLD = ["How old was {x}?", "What did {x} eat?", "Who was the mother of {x}?",
            "What did {x} say?",
            "Why did {x} laugh?", "How tall was {x}?", "What did {x} drink?", "Where was {x} born?",
            "What did {x} dream of?", "Whom did {x} marry?", "What did {x} wear?",
            "How much did it cost?",
            "What was the weather like?", "What did {x} sing?", "Who was the king?",
            "What time was it?"]
NOT_TOLD_ANSWER = "The story does not say."
SCENES = {"walk": walk, "household": household, "things": things, "race": race, "market": market}
FRAMES = ["{story}\n\n{question}", "{story} {question}", "Read this story: {story}\n\n{question}",
          "Here is a story. {story} {question}", "{story}\n{question}",
          "Story: {story}\nQuestion: {question}",
          "Listen to this: {story} Now tell me: {question}", "\"{story}\" {question}",
          "{question}\n\n{story}", "Answer from the text.\n{story}\n{question}"]
OFFERS = ["Here is a story: {story}", "Listen: {story}", "I will tell you a story. {story}",
          "{story}",
          "Please read this and remember it. {story}", "Let me tell you something. {story}"]
THANKS = "I have read it. What would you like to know?"


def exchange_about(draw, scene, slots):
    if draw.chance(0.1):
        question = draw.phrase("not told", NOT_TOLD).format(x=slots.get("who", draw.any(["he",
                                                                                         "she"])))
        return Exchange(question, NOT_TOLD_ANSWER, NOT_TOLD_ANSWER, ["not say"])
    kind, phrases, answer, short, reject = draw.any(scene.facts)
    question = phrases[_place(draw, kind, len(phrases))].format(**slots)
    reject = [word for word in reject if word.lower() not in answer.lower()]
    return Exchange(question, answer, sentence(short) + ".", [short], reject)


def _place(draw, kind, count):
    """Phrases of scenes hold words of the story, so they are taught or held out by their place."""
    return int(draw.phrase("scene " + kind, [str(i) for i in range(count)]))


def scene_question(draw, which=None):
    """One message: the story and a question."""
    scene, slots = SCENES[which or draw.any(list(SCENES))](draw)
    exchange = exchange_about(draw, scene, slots)
    exchange.user = draw.phrase("frame", FRAMES).format(story=" ".join(scene.lines),
                                                        question=exchange.user)
    return exchange


def scene_conversation(draw):
    """The story first, then several questions about it."""
    scene, slots = SCENES[draw.any(list(SCENES))](draw)
    first = Exchange(draw.phrase("offer", OFFERS).format(story=" ".join(scene.lines)), THANKS,
                     THANKS)
    asked = {}
    for _ in range(draw.between(1, 4)):
        exchange = exchange_about(draw, scene, slots)
        asked.setdefault(exchange.answer, exchange)
    return [first, *asked.values()]
