"""Greetings, who the model is, what the user told of himself, and what a system message asks."""

import world
from questions import Exchange, KINDS, sentence, with_article
from entities import ANIMALS, COLOURS, FOODS, TOWNS, entity, name, odd_words

SELF = "Fable"
GREETINGS = ["Hello!", "Hello", "Hi!", "Hi", "Good morning!", "Good evening.", "Good day!", "Hey!",
             "Hello there!", "Hi there", "Greetings!", "Good afternoon!", "Hello, Fable!",
             "Hey there.",
             "Well met!", "Good morning, Fable."]
GREETED = "Hello! What would you like to know?"
HOW = ["How are you?", "How are you today?", "How do you do?", "Are you well?", "How is it going?",
       "How do you feel?", "Are you all right?", "How are things?", "Is all well with you?",
       "Are you fine?",
       "How have you been?", "Are you doing well?", "Is everything all right?",
       "How are you doing?",
       "Hello, how are you?", "How goes it?"]
WELL = "I am well, thank you. What would you like to know?"
THANKS = ["Thank you!", "Thanks.", "Thank you very much.", "Many thanks!",
          "That is kind, thank you.",
          "Thanks a lot!", "Good answer, thank you.", "I thank you.", "Thank you, Fable."]
WELCOME = "You are welcome!"
BYES = ["Goodbye!", "Bye!", "Good night!", "Farewell!", "See you soon.", "I must go now. Goodbye.",
        "Goodbye, Fable.", "Bye bye.", "Until tomorrow!", "I have to go."]
BYE = "Goodbye! Come again soon."
WHO = ["Who are you?", "What are you?", "What is your name?", "Tell me who you are.",
       "Who am I talking to?",
       "What are you called?", "Do you have a name?", "Who is there?", "What should I call you?",
       "May I ask your name?", "Please introduce yourself.", "Say who you are.",
       "Your name, please?"]
ABILITIES = ["What can you do?", "What do you know?", "How can you help me?", "What can I ask you?",
             "Help", "What are you good at?", "What are you able to do?", "What should I ask you?",
             "Tell me what you can do.", "What kind of questions can you answer?"]
ABLE = ("I can tell stories, answer small questions about animals, colours, numbers, days and "
        "fables, "
        "and use the tools you give me.")
ARE_YOU = ["Are you a human?", "Are you a man or a woman?", "Are you a person?", "Are you real?",
           "Are you a robot?", "Are you alive?", "Am I talking to a human?", "Are you a computer?"]
NOT_HUMAN = "No, I am a small language model."
FEEL_SAD = ["I am sad.", "I feel sad today.", "I am not happy.", "I had a bad day.",
            "I feel lonely.",
            "I am unhappy.", "Today was a sad day.", "I feel bad.",
            "I am very sad today.", "I want to cry.", "Nobody loves me.", "I am so unhappy."]
SORRY = "I am sorry to hear that. Shall I tell you a story?"
FEEL_GLAD = ["I am happy!", "I feel good today.", "I had a good day.", "What a fine day!",
             "Today was a good day.", "I am so glad.", "I am very happy today.",
             "I feel happy.", "I am glad.", "I feel wonderful.", "My day was good.",
             "I am in a good mood.", "All is well with me."]
GLAD = "I am glad to hear that!"
TALK = {"greet": (GREETINGS, GREETED, ["hello"]), "how": (HOW, WELL, ["well"]),
        "thanks": (THANKS, WELCOME, ["welcome"]), "bye": (BYES, BYE, ["goodbye"]),
        "able": (ABILITIES, ABLE, ["stories"]), "human": (ARE_YOU, NOT_HUMAN, ["model"]),
        "sad": (FEEL_SAD, SORRY, ["sorry"]), "glad": (FEEL_GLAD, GLAD, ["glad"])}


def talk(draw, which=None):
    which = which or draw.any(list(TALK))
    phrases, answer, words = TALK[which]
    return Exchange(draw.phrase(which, phrases), answer, answer, words)


def who_are_you(draw, called=SELF):
    answer = f"I am {called}, a small model that tells stories and answers small questions."
    return Exchange(draw.phrase("who", WHO), answer, called + ".", [called])


TELL_NAME = ["My name is {x}.", "I am {x}.", "I am called {x}.", "Hello, my name is {x}.",
             "Hi, I am {x}.",
             "You can call me {x}.", "My name's {x}.", "People call me {x}.", "Good day, I am {x}.",
             "Call me {x}.", "Hello! I am {x}."]
ASK_NAME = ["What is my name?", "Do you know my name?", "What am I called?", "Who am I?",
            "Can you say my name?",
            "Do you remember my name?", "Tell me my name.", "What was my name again?",
            "How am I called?", "Say my name."]
TOLD = {
    "colour": (["My favourite colour is {x}.", "I like {x} best of all colours.",
                "The colour I love most is {x}.",
                "I love the colour {x}.", "Of all colours I like {x} best."],
               ["What is my favourite colour?", "Which colour do I like best?",
                "What colour do I love?",
                "Do you remember my favourite colour?", "Which colour do I love most?",
                "What was my favourite colour?"],
               "{X} is a fine colour.", "Your favourite colour is {x}.", "favourite colour"),
    "animal": (["I have {ax}.", "I own {ax}.", "At home I have {ax}.", "I keep {ax}.",
                "My pet is {ax}."],
               ["What animal do I have?", "Which animal do I have?", "What is my pet?",
                "Which animal do I keep?", "What animal did I say I have?", "What pet do I have?"],
               "{AX} is a good friend.", "You have {ax}.", "animal"),
    "town": (["I live in {x}.", "My home is in {x}.", "I come from {x}.", "I am from {x}.",
              "My house is in {x}."],
             ["Where do I live?", "In which town do I live?", "Where is my home?",
              "Where am I from?",
              "Which town do I come from?", "What town do I live in?"],
             "{x} must be a fine place.", "You live in {x}.", "home"),
    "age": (["I am {x} years old.", "My age is {x}.", "I turned {x} today.",
             "I am {x} years of age."],
            ["How old am I?", "What is my age?", "Do you know how old I am?",
             "What age did I say I am?",
             "Can you tell my age?"],
            "{X} is a good age.", "You are {x} years old.", "age"),
    "food": (["I like to eat {x}.", "My favourite food is {x}.", "I love {x}.",
              "I could eat {x} every day.",
              "The food I like best is {x}."],
             ["What do I like to eat?", "What is my favourite food?", "Which food do I love?",
              "What could I eat every day?", "What food do I like best?"],
             "{X} is good.", "You like to eat {x}.", "food"),
}
NOT_TOLD_ME = "You have not told me that."
NO_NAME = "You have not told me your name."


def told(draw, what):
    """(statement, question) of something the user says of himself."""
    if what == "name":
        x = name(draw)
        return (Exchange(draw.phrase("tell name", TELL_NAME).format(x=x), f"Nice to meet you, {x}!",
                         expect=[x]),
                Exchange(draw.phrase("ask name", ASK_NAME), f"Your name is {x}.", x + ".", [x]))
    statements, questions, reply, answer, _ = TOLD[what]
    x = {"colour": lambda: entity(draw, "fond of", COLOURS, 0.2),
         "animal": lambda: entity(draw, "animal", ANIMALS, 0.4),
         "town": lambda: entity(draw, "town", TOWNS).capitalize(),
         "food": lambda: entity(draw, "meal", FOODS, 0.4),
         "age": lambda: draw.entity("age", world.NUMBERS[3:])}[what]()
    slots = {"x": x, "X": sentence(x), "ax": with_article(x), "AX": sentence(with_article(x))}
    return (Exchange(draw.phrase("tell " + what, statements).format(**slots),
                     reply.format(**slots)),
            Exchange(draw.phrase("ask " + what, questions), answer.format(**slots),
                     sentence(x) + ".", [x]))


def not_told(draw, known):
    what = draw.any([w for w in ["name", *TOLD] if w not in known])
    if what == "name":
        return Exchange(draw.phrase("ask name", ASK_NAME), NO_NAME, NO_NAME, ["not told"])
    return Exchange(draw.phrase("ask " + what, TOLD[what][1]), NOT_TOLD_ME, NOT_TOLD_ME,
                    ["not told"])


def remembered(draw, fillers):
    """The user tells one to three things, other talk between, then asks for some of them."""
    kinds = draw.rng.sample(["name", "name", *TOLD], draw.between(1, 3))
    kinds = list(dict.fromkeys(kinds))
    pairs = [told(draw, kind) for kind in kinds]
    turns = []
    for statement, _ in pairs:
        turns.append(statement)
        turns += [fillers(draw) for _ in range(draw.any([0, 0, 1, 2]))]
    questions = [question for _, question in pairs]
    if draw.chance(0.15):
        questions.append(not_told(draw, kinds))
    draw.rng.shuffle(questions)
    return turns + questions


PLAIN_SYSTEM = ["You are a helpful assistant.", "You are a small helpful model.",
                "You are a friendly assistant.",
                "Be kind and brief.", "Answer the questions of the user.",
                "You answer questions about the world.",
                "You are a storyteller.", "You are a patient teacher.",
                "Help the user as well as you can.",
                "You are Fable, a small model.", "Answer briefly.",
                "You are an assistant for children."]
ONE_WORD = ["Answer in one word.", "Answer with one word only.", "Use only one word.",
            "One word answers, please.",
            "Say no more than one word.", "Keep answers to a single word.",
            "Give answers of one word.", "A single word is enough.",
            "Reply in one word.", "Your answers have one word.", "Be very brief: one word.",
            "Say only one word.", "Just one word, please.", "Reply with a single word."]
NAMED = ["Your name is {x}.", "You are called {x}.", "You are {x}, a helpful assistant.",
         "You are {x}.",
         "Call yourself {x}.", "Your name is {x}. Answer the questions of the user.",
         "You are a friendly model named {x}."]
BEGIN = ["Begin every answer with \"{x}\"", "Start each answer with \"{x}\"",
         "Always begin with \"{x}\"",
         "Every answer begins with \"{x}\"", "First say \"{x}\" in every answer.",
         "Open every answer with \"{x}\"",
         "Your answers begin with \"{x}\"", "Put \"{x}\" before every answer.",
         "Before you answer, say \"{x}\"", "Each reply must start with \"{x}\"",
         "Whatever you are asked, begin with \"{x}\""]
END = ["End every answer with \"{x}\"", "Finish each answer with \"{x}\"",
       "Always end with \"{x}\"",
       "Every answer ends with \"{x}\"", "Close every answer with \"{x}\"",
       "Last of all say \"{x}\" in every answer.",
       "Your answers end with \"{x}\"", "Put \"{x}\" behind every answer.",
       "After you have answered, say \"{x}\"", "Each reply must end with \"{x}\"",
       "Whatever you are asked, end with \"{x}\""]
SAYINGS = ["Good day!", "Dear friend,", "My lord,", "Ahoy!", "Well, well.", "By my beard!",
           "Hear, hear!",
           "Your servant.", "So be it.", "That is all.", "God bless you.", "Long live the king!",
           "Ho ho!",
           "Upon my word!", "Ask me more!", "At your service.", "And that is the truth.", "Hurrah!",
           "Be well.", "As the owl says.", "I have spoken.", "Sir,", "Madam,", "Indeed.", "Cheers!"]


def obeyed(draw):
    """(system message, the way obey() is to follow it, words that must be in answers)."""
    way = draw.any(["word", "word", "begin", "end"])
    if way == "word":
        return draw.phrase("one word", ONE_WORD), way, ""
    if draw.held_entities or draw.chance(0.4):
        saying = draw.entity("saying", SAYINGS)
    else:
        saying = sentence(odd_words(draw, 1, 4)) + draw.any(["!", ".", ",", "?"])
    phrases = BEGIN if way == "begin" else END
    return draw.phrase(way, phrases).format(x=saying), way, saying


def obey(exchange, way, saying):
    if way == "word":
        exchange.answer = exchange.short
        exchange.expect = [exchange.short.rstrip(".")]
        exchange.most_words = len(exchange.short.split())
    elif way == "begin":
        exchange.answer = f"{saying} {exchange.answer}"
    else:
        exchange.answer = f"{exchange.answer} {saying}"
    if saying:
        exchange.expect = exchange.expect + [saying]
    return exchange


def shortly_answered(draw):
    """A question whose short answer is short."""
    kinds = [k for k in KINDS if k not in ("tale", "unknown", "job", "home")]
    return KINDS[draw.any(kinds)](draw)
