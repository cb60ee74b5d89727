"""The closed world of the talking model: tables of facts, each with several ways to ask for them.

A table's rows are (x, y); `ask` has x, `answer` has both, `back` asks for x. {ax} and {ay} have an
article. Where several rows share a y, there is no `back`.
"""

OPPOSITES = [tuple(pair.split("/")) for pair in (
    "hot/cold big/small tall/short fast/slow old/young happy/sad good/bad light/dark day/night "
    "up/down left/right wet/dry full/empty hard/soft loud/quiet rich/poor clean/dirty early/late "
    "open/closed near/far strong/weak sweet/bitter long/short high/low first/last inside/outside "
    "begin/end love/hate friend/enemy wide/narrow thick/thin brave/afraid true/false win/lose "
    "laugh/cry summer/winter north/south east/west black/white king/queen brother/sister "
    "heavy/light "
    "awake/asleep wise/foolish sharp/blunt smooth/rough push/pull give/take alive/dead front/back "
    "above/below always/never more/less beautiful/ugly kind/cruel buy/sell sunrise/sunset").split()]

SOUNDS = [("dog", "woof"), ("cat", "meow"), ("cow", "moo"), ("sheep", "baa"), ("duck", "quack"),
          ("pig", "oink"), ("horse", "neigh"), ("hen", "cluck"), ("lion", "roar"),
          ("bee", "buzz"), ("owl", "hoot"), ("snake", "hiss"), ("mouse", "squeak"),
          ("frog", "croak"), ("crow", "caw"), ("wolf", "howl"), ("donkey", "hee-haw"),
          ("rooster", "cock-a-doodle-doo"), ("bear", "growl"), ("goose", "honk")]
YOUNG = [("dog", "puppy"), ("cat", "kitten"), ("cow", "calf"), ("sheep", "lamb"),
         ("horse", "foal"), ("hen", "chick"), ("duck", "duckling"), ("goose", "gosling"),
         ("pig", "piglet"), ("lion", "cub"), ("goat", "kid"), ("frog", "tadpole"),
         ("deer", "fawn"), ("swan", "cygnet"), ("owl", "owlet"), ("eagle", "eaglet"),
         ("hare", "leveret"), ("kangaroo", "joey"), ("butterfly", "caterpillar")]
HOMES = [("bee", "hive"), ("bird", "nest"), ("dog", "kennel"), ("horse", "stable"),
         ("lion", "den"), ("spider", "web"), ("rabbit", "burrow"), ("fox", "den"), ("pig", "sty"),
         ("fish", "water"), ("hen", "coop"), ("bear", "cave"), ("king", "castle"),
         ("monk", "monastery"), ("ant", "anthill"), ("snail", "shell"), ("bat", "cave"),
         ("camel", "desert"), ("frog", "pond"), ("squirrel", "tree"), ("mole", "ground")]
FOODS = [("cow", "grass"), ("rabbit", "carrots"), ("cat", "mice"), ("bear", "honey"),
         ("squirrel", "nuts"), ("monkey", "bananas"), ("horse", "hay"), ("lion", "meat"),
         ("panda", "bamboo"), ("hen", "corn"), ("spider", "flies"), ("goat", "leaves"),
         ("heron", "fish"), ("mouse", "cheese"), ("dog", "bones"), ("silkworm", "mulberry leaves")]
LEGS = [("dog", "four"), ("cat", "four"), ("horse", "four"), ("cow", "four"), ("bird", "two"),
        ("hen", "two"), ("man", "two"), ("ant", "six"), ("bee", "six"), ("beetle", "six"),
        ("spider", "eight"), ("snake", "no"), ("fish", "no"), ("worm", "no"), ("fox", "four"),
        ("duck", "two"), ("mouse", "four"), ("fly", "six"), ("lion", "four"), ("table", "four")]
KINDS = [("sparrow", "bird"), ("eagle", "bird"), ("owl", "bird"), ("swan", "bird"),
         ("robin", "bird"), ("trout", "fish"), ("salmon", "fish"), ("herring", "fish"),
         ("ant", "insect"), ("bee", "insect"), ("beetle", "insect"), ("rose", "flower"),
         ("tulip", "flower"), ("lily", "flower"), ("daisy", "flower"), ("oak", "tree"),
         ("pine", "tree"), ("birch", "tree"), ("willow", "tree"), ("apple", "fruit"),
         ("pear", "fruit"), ("plum", "fruit"), ("cherry", "fruit"), ("carrot", "vegetable"),
         ("onion", "vegetable"), ("cabbage", "vegetable"), ("hammer", "tool"), ("saw", "tool"),
         ("violin", "musical instrument"), ("flute", "musical instrument"),
         ("drum", "musical instrument"), ("hat", "piece of clothing"),
         ("coat", "piece of clothing"), ("gold", "metal"), ("iron", "metal"), ("silver", "metal"),
         ("snake", "reptile"), ("lizard", "reptile"), ("sword", "weapon")]
COLOURS = [("grass", "green"), ("the sky", "blue"), ("snow", "white"), ("blood", "red"),
           ("coal", "black"), ("a lemon", "yellow"), ("a carrot", "orange"), ("milk", "white"),
           ("the sun", "yellow"), ("a banana", "yellow"), ("a tomato", "red"), ("a leaf", "green"),
           ("a crow", "black"), ("a plum", "purple"), ("a swan", "white"), ("chocolate", "brown"),
           ("an elephant", "grey"), ("a frog", "green"), ("the night", "black"),
           ("a strawberry", "red"), ("salt", "white"), ("earth", "brown"), ("the sea", "blue"),
           ("a pig", "pink"), ("a mouse", "grey"), ("an orange", "orange"), ("silver", "grey"),
           ("a fox", "red"), ("a cucumber", "green"), ("cheese", "yellow"), ("a bear", "brown")]
MIXES = [(("blue", "yellow"), "green"), (("red", "yellow"), "orange"), (("red", "blue"), "purple"),
         (("black", "white"), "grey"), (("red", "white"), "pink"), (("red", "green"), "brown")]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November "
          "December").split()
SEASONS = ["spring", "summer", "autumn", "winter"]
NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
           "fifteen sixteen seventeen eighteen nineteen twenty").split()
JOBS = [("baker", "bakes bread"), ("shoemaker", "makes shoes"), ("tailor", "sews clothes"),
        ("fisherman", "catches fish"), ("miller", "grinds corn"), ("blacksmith", "shoes horses"),
        ("doctor", "heals the sick"), ("teacher", "teaches children"), ("gardener",
                                                                        "grows flowers"),
        ("shepherd", "keeps sheep"), ("carpenter", "builds with wood"), ("cook", "cooks meals"),
        ("sailor", "sails the sea"), ("king", "rules the land"), ("hunter", "hunts in the forest"),
        ("farmer", "ploughs the fields"), ("painter", "paints pictures"), ("singer", "sings songs"),
        ("judge", "decides who is right"), ("soldier", "fights in wars"),
        ("clockmaker", "mends clocks"), ("postman", "brings letters")]
USES = [("eyes", "see"), ("ears", "hear"), ("a nose", "smell"), ("a tongue", "taste"),
        ("legs", "walk"), ("a knife", "cut bread"), ("a spoon", "eat soup"), ("a pen", "write"),
        ("a broom", "sweep the floor"), ("a needle", "sew"), ("an axe", "chop wood"),
        ("a key", "open a lock"), ("an umbrella", "stay dry in the rain"), ("a bed", "sleep"),
        ("a lamp", "see in the dark"), ("a clock", "tell the time"), ("a hammer", "drive nails"),
        ("a boat", "cross the water"), ("a ladder", "climb a wall"), ("a cup", "drink tea"),
        ("a comb", "tidy your hair"), ("soap", "wash your hands"), ("a book", "read")]
CAPITALS = [("France", "Paris"), ("England", "London"), ("Italy", "Rome"), ("Spain", "Madrid"),
            ("Germany", "Berlin"), ("Greece", "Athens"), ("Russia", "Moscow"), ("Japan", "Tokyo"),
            ("Egypt", "Cairo"), ("Ireland", "Dublin"), ("Scotland", "Edinburgh"),
            ("Austria", "Vienna"), ("Portugal", "Lisbon"), ("Norway", "Oslo"),
            ("Denmark", "Copenhagen"), ("China", "Beijing")]
COUNTS = [("days are in a week", "days does a week have", "There are seven days in a week.",
           "seven"),
          ("months are in a year", "months does a year have", "There are twelve months in a year.",
           "twelve"),
          ("hours are in a day", "hours does a day have", "There are twenty-four hours in a day.",
           "twenty-four"),
          ("minutes are in an hour", "minutes does an hour have",
           "There are sixty minutes in an hour.", "sixty"),
          ("seconds are in a minute", "seconds does a minute have",
           "There are sixty seconds in a minute.", "sixty"),
          ("fingers are on a hand", "fingers does a hand have",
           "There are five fingers on a hand.", "five"),
          ("seasons are in a year", "seasons does a year have",
           "There are four seasons in a year.", "four"),
          ("wheels are on a bicycle", "wheels does a bicycle have",
           "There are two wheels on a bicycle.", "two"),
          ("eggs are in a dozen", "eggs does a dozen have", "There are twelve eggs in a dozen.",
           "twelve"),
          ("sides are in a triangle", "sides does a triangle have",
           "There are three sides in a triangle.", "three"),
          ("sides are in a square", "sides does a square have",
           "There are four sides in a square.", "four"),
          ("legs are on a chair", "legs does a chair have", "There are four legs on a chair.",
           "four"),
          ("letters are in the alphabet", "letters does the alphabet have",
           "There are twenty-six letters in the alphabet.", "twenty-six"),
          ("colours are in a rainbow", "colours does a rainbow have",
           "There are seven colours in a rainbow.", "seven")]

TABLES = {
    "sound": (SOUNDS, "{ax} says {y}.",
              ["What does {ax} say?", "What sound does {ax} make?", "Which sound does {ax} make?",
               "How does {ax} sound?", "What noise does {ax} make?",
               "Which noise do you hear from {ax}?",
               "What is the sound of {ax}?", "Tell me what {ax} says.", "{ax} says what?",
               "What do you hear when {ax} calls?", "What is the call of {ax}?",
               "Make the sound of {ax}."]),
    "young": (YOUNG, "A young {x} is called {ay}.",
              ["What is a baby {x} called?", "What do you call a young {x}?",
               "What is a young {x} called?", "How is a baby {x} called?",
               "What is the name for a young {x}?", "What do we call the child of {ax}?",
               "What is the baby of {ax} called?", "A young {x} is called what?",
               "Give me the word for a baby {x}.", "What is the little one of {ax} called?",
               "Tell me the name of a young {x}."]),
    "home": (HOMES, "{ax} lives in {ay}.",
             ["Where does {ax} live?", "What does {ax} live in?", "Where is the home of {ax}?",
              "What is the home of {ax}?", "In what does {ax} live?", "Where would I find {ax}?",
              "Where does {ax} sleep?", "Where does {ax} have its home?",
              "Tell me where {ax} lives.", "Which place is home to {ax}?",
              "Where do I look for {ax}?"]),
    "food": (FOODS, "{ax} likes to eat {y}.",
             ["What does {ax} eat?", "What does {ax} like to eat?", "What is the food of {ax}?",
              "What should I feed {ax}?", "What do you give {ax} to eat?",
              "Which food does {ax} like?",
              "What is eaten by {ax}?", "What does {ax} have for dinner?",
              "Tell me what {ax} eats.", "What do I feed to {ax}?",
              "What is a good meal for {ax}?"]),
    "legs": (LEGS, "{ax} has {y} legs.",
             ["How many legs does {ax} have?", "How many legs has {ax}?",
              "How many legs are there on {ax}?", "What number of legs does {ax} have?",
              "On how many legs does {ax} walk or stand?", "Count the legs of {ax}.",
              "Tell me how many legs {ax} has.", "{ax} has how many legs?",
              "Can you count the legs of {ax}?", "What is the number of legs of {ax}?"]),
    "kind": (KINDS, "{ax} is {ay}.",
             ["What is {ax}?", "What kind of thing is {ax}?", "What sort of thing is {ax}?",
              "Tell me what {ax} is.", "Can you say what {ax} is?", "Explain what {ax} is.",
              "{ax} is what?", "What would you call {ax}?", "What do you know of {ax}?",
              "What is meant by {ax}?", "I do not know what {ax} is. What is it?"]),
    "colour": (COLOURS, "{x} is {y}.",
               ["What colour is {x}?", "Which colour is {x}?", "What is the colour of {x}?",
                "What colour does {x} have?", "Which colour has {x}?", "Tell me the colour of {x}.",
                "In what colour would you paint {x}?", "What color is {x}?",
                "Do you know the colour of {x}?", "Can you tell me what colour {x} is?",
                "If I look at {x}, what colour do I see?", "Name the colour of {x}."]),
    "capital": (CAPITALS, "The capital of {x} is {y}.",
                ["What is the capital of {x}?", "Which city is the capital of {x}?",
                 "Name the capital of {x}.", "What is the capital city of {x}?",
                 "Tell me the capital of {x}.", "What is {x}'s capital?",
                 "Do you know the capital of {x}?", "Which town is the capital of {x}?",
                 "What is the chief city of {x}?", "Which is the capital of {x}?"]),
    "job": (JOBS, "{ax} {y}.",
            ["What does {ax} do?", "What is the work of {ax}?", "What does {ax} do all day?",
             "Tell me what {ax} does.", "What is the job of {ax}?", "What work does {ax} do?",
             "How does {ax} earn a living?", "What is {ax} for?", "What does {ax} do for a living?",
             "{ax} does what?"]),
    "who": ([(deed, job) for job, deed in JOBS], "{ay} {x}.",
            ["Who {x}?", "Which person {x}?", "Who is it that {x}?",
             "What do you call one who {x}?",
             "Tell me who {x}.", "What is the name for a man who {x}?",
             "What do we call somebody who {x}?", "Do you know who {x}?",
             "Who is the one that {x}?"]),
    "use": ([(deed, thing) for thing, deed in USES], "You use {y} to {x}.",
            ["What do you use to {x}?", "What do I need to {x}?", "What can I use to {x}?",
             "With what do you {x}?", "What do people use to {x}?", "What is used to {x}?",
             "Tell me what I need to {x}.", "I want to {x}. What do I need?",
             "What do you need if you want to {x}?", "Which thing helps you to {x}?",
             "What would help me to {x}?"]),
}
