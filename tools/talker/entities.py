"""Names and things that stories, requests and what users tell are about."""

import functools
import os

from split import divide, is_held_out

NAMES = ("Anna Ben Clara David Ella Felix Greta Hans Ida Jack Karl Lucy Martin Nora Oscar Paula "
         "Robert "
         "Sarah Thomas Ursula Victor Walter Emma Frank George Helen Henry Jane John Julia Kate "
         "Laura "
         "Maria Mary Michael Nina Otto Peter Rose Rudolf Sam Simon Sophie Tom William Alice Arthur "
         "Bertha Charles Dora Edgar Edith Ernest Esther Fanny Flora Gerda Harold Hugo Irene Jacob "
         "Joseph Kay Leo Lily Lisa Louis Mabel Max Molly Nelly Oliver Philip Ralph Ruth Stella Tim "
         "Toby Vera Willy Agnes Albert Amy Betty Bill Conrad Daisy Dick Elsie Eric Eva Fred "
         "Gertrude "
         "Gilbert Grace Harry Hilda Jim Kitty Lena Mark Maud Ned Olga Pat Roland Susan Ted "
         "Wanda").split()
CONSONANTS = "b d f g h j k l m n p r s t v w z br dr fl gr st tr sh ch".split()
VOWELS = "a e i o u a e i o u ee oo ai".split()
STARTS = "Bar Dor Fen Gal Har Jor Kel Lor Mar Nim Or Pel Ral Sil Tor Ul Var Wil Yor Zel".split()
ENDS = "a o in ick da len mo ra wen bert do la nie rik sa ton vi".split()
ANIMALS = ("fox hare wolf bear hen goose duck mouse cat dog goat sheep donkey horse owl crow frog "
           "toad "
           "hedgehog squirrel beaver badger lion tiger monkey elephant snail tortoise rabbit pig "
           "cow "
           "swan robin sparrow stork eagle otter mole deer camel").split()
THINGS = ("key ring book hat coin spoon lamp cup bell shoe rope knife flute drum letter map sword "
          "apple cake stone feather mirror candle comb kettle blanket ribbon button egg pearl fork "
          "ball whistle glove needle bottle crown ladder cloak lantern purse pipe violin "
          "jug").split()
PLACES = ["forest", "garden", "river", "mountain", "village", "castle", "mill", "market", "lake",
          "meadow", "bridge", "church", "well", "valley", "harbour", "island", "orchard", "barn",
          "tower", "inn", "school", "cave", "field", "hill", "beach", "park", "station", "kitchen"]
COLOURS = "red blue green yellow white black brown grey golden silver pink purple orange".split()
FEELINGS = "happy sad angry tired hungry afraid proud glad lonely surprised thirsty merry".split()
MADE_OF = "wood stone gold silver glass iron paper straw clay leather wool bricks".split()
CONTAINERS = ["box", "drawer", "basket", "cupboard", "chest", "bag", "bucket", "pot", "sack",
              "barrel"]
SPOTS = ["under the bed", "on the table", "behind the door", "on the shelf", "under the stairs",
         "beside the fire", "in the barn", "on the roof", "by the window", "under the tree",
         "behind the mill", "near the well", "under the bridge", "on the chair", "in the cellar"]
TOWNS = ("Ashford Bramley Colwick Dunmere Elmstead Foxhall Greenhill Hartley Inverdale Kingsbridge "
         "Langdon Millbrook Norwell Oakham Penrose Redcliff Southwell Thornton Uxley Westerby "
         "Brookside Fairview Stonebridge Riverton Lakewood Highfield Marsham Whitby").split()
FOODS = ("bread soup cake cheese apples pears honey porridge pancakes fish rice plums nuts "
         "cherries pie").split()
ROOMS = ["kitchen", "bedroom", "hall", "cellar", "attic", "garden", "library", "bathroom", "office",
         "dining room", "stable", "workshop", "garage", "nursery"]
TITLES = ["The Red Shoes", "The Snow Queen", "Treasure Island", "The Golden Bird", "Black Beauty",
          "The Secret Garden", "The Jungle Book", "Peter Pan", "The Little Mermaid", "Robin Hood",
          "The Blue Light", "King Arthur", "The Lost Ring", "Alice in Wonderland",
          "The Brave Tailor",
          "The Old House", "Moonlight", "The Silver Skates", "White Fang", "The Happy Prince"]
MESSAGES = ["I am late", "dinner is ready", "the train has left", "come home soon",
            "happy birthday",
            "the door is open", "meet me at the mill", "I will call tomorrow", "the cat is back",
            "thank you for the cake", "we won the race", "it is raining", "bring bread",
            "wait for me",
            "the key is under the mat", "good luck"]
TASKS = ["water the flowers", "feed the cat", "buy milk", "call mother", "clean the stove",
         "mend the fence",
         "write a letter", "wash the dog", "pay the baker", "lock the door", "read the paper",
         "pick apples",
         "sweep the yard", "post the parcel", "bake a cake"]
FILES = ["notes.txt", "letter.txt", "list.md", "story.txt", "map.png", "plan.txt", "songs.csv",
         "names.json",
         "diary.md", "recipe.txt", "bill.pdf", "poem.txt", "report.md", "photo.jpg"]
LANGUAGES = ["German", "French", "Italian", "Spanish", "Latin", "Greek", "Dutch", "Polish",
             "Russian"]
WORDS = ["house", "tree", "bread", "water", "friend", "moon", "river", "king", "horse", "apple",
         "night",
         "fire", "heart", "mountain", "flower", "winter"]
SONGS = ["Greensleeves", "Auld Lang Syne", "Silent Night", "Danny Boy", "Home Sweet Home",
         "The Last Rose",
         "Loch Lomond", "Amazing Grace", "Scarborough Fair", "Frere Jacques", "Yankee Doodle"]
TIMES = [f"{hour}:{minute}" for hour in range(5, 23) for minute in ("00", "15", "30", "45")]
WHOLE = [str(n) for n in range(2, 100)]
FEW = [str(n) for n in range(2, 13)]


@functools.lru_cache(maxsize=None)
def plain_words():
    """Taught words of no list above, so that a model has to copy and not to choose from lists."""
    listed = {word.lower() for names in (NAMES, ANIMALS, THINGS, TOWNS, FOODS, ROOMS, COLOURS,
                                         WORDS,
                                         LANGUAGES, PLACES, FEELINGS) for word in names}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "words.txt"),
              encoding="utf-8") as file:
        words = file.read().split()
    return divide("word", tuple(word for word in words if word not in listed))[0]


def made_word(draw, low=2, high=3):
    """A word that does not exist."""
    while True:
        word = "".join(draw.any(CONSONANTS) + draw.any(VOWELS) for _ in range(draw.between(low,
                                                                                           high)))
        word += draw.any(["", "", "n", "r", "s", "l", "t"])
        if is_held_out("made word", word) == draw.held_entities:
            return word


def odd_word(draw):
    """Any word: half of the time of the vocabulary. Held out ones are made."""
    if draw.held_entities or draw.chance(0.35):
        return made_word(draw)
    return draw.any(plain_words())


def odd_words(draw, low, high):
    return " ".join(odd_word(draw) for _ in range(draw.between(low, high)))


def entity(draw, kind, items, odd=0.5):
    """One of a list; while teaching, often a word of no list."""
    if not draw.held_entities and draw.chance(odd):
        return odd_word(draw)
    return draw.entity(kind, items)


def usual(draw, items):
    """One of a list of which nothing is held out; while teaching, sometimes an odd word."""
    return odd_word(draw) if not draw.held_entities and draw.chance(0.3) else draw.any(items)


def entities(draw, kind, items, count):
    """Different ones."""
    while True:
        some = [entity(draw, kind, items) for _ in range(count)]
        if len(set(some)) == count:
            return some


def name(draw):
    if not draw.held_entities and draw.chance(0.5):
        return odd_word(draw).capitalize()
    if draw.chance(0.35):
        while True:
            made = draw.any(STARTS) + draw.any(ENDS)
            if is_held_out("made name", made) == draw.held_entities:
                return made
    return draw.entity("name", NAMES)


def two_names(draw):
    first = second = name(draw)
    while second == first:
        second = name(draw)
    return first, second
