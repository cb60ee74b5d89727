"""Tools with JSON schemas, requests that need one of them, their results, and answers from these.

A concept is what a tool does. Its names, descriptions and the names of its parameters vary, so that
the model has to read them in the prompt.
"""

import json

from questions import Exchange, KINDS, nonsense
from entities import (ANIMALS, COLOURS, FEW, FILES, FOODS, LANGUAGES, MESSAGES, ROOMS, SONGS, TASKS,
                      THINGS, TIMES, TITLES, TOWNS, WHOLE, WORDS, name, odd_word, odd_words)
from smalltalk import talk, who_are_you
import world

VALUES = {"town": TOWNS + "Paris London Rome Berlin Madrid Vienna Oslo Athens Boston Cairo".split(),
          "room": ROOMS, "title": TITLES, "message": MESSAGES, "task": TASKS, "file": FILES,
          "language": LANGUAGES, "word": WORDS, "song": SONGS, "time": TIMES, "whole": WHOLE,
          "few": FEW,
          "day": world.DAYS, "animal": ANIMALS, "thing": THINGS, "food": FOODS, "colour": COLOURS}

# name: (names, descriptions, parameters, requests, results)
# parameter: (names, type, kind of value, descriptions); requests have {0}, {1}; results are pairs
# of what the tool says and the answer, where {r} is a number and {w} one of WEATHER.
WEATHER = ["sunny", "rainy", "cloudy", "windy", "foggy", "snowy", "clear", "stormy", "warm", "cold"]
CONCEPTS = {
    "weather": (["get_weather", "weather", "weather_today", "look_up_weather", "getWeather",
                 "forecast",
                 "current_weather", "check_weather", "weather_report"],
                ["Tells the weather in a town.", "Get the current weather.",
                 "The weather of a place.",
                 "Returns the weather for a city."],
                [(["city", "town", "place", "location"], "string", "town", ["Name of the town.",
                                                                            "Where."])],
                ["What is the weather in {0}?", "How is the weather in {0}?",
                 "Is it raining in {0}?",
                 "Tell me the weather in {0}.", "What is the weather like in {0}?",
                 "Will I need a coat in {0}?",
                 "Is it warm in {0} today?", "Weather in {0}, please.",
                 "Does the sun shine in {0}?"],
                [("{w}, {r} degrees", "It is {w} in {0}, {r} degrees."),
                 ('{"sky": "{w}", "degrees": {r}}', "It is {w} in {0}, {r} degrees.")]),
    "clock": (["get_time", "clock", "current_time", "time_in", "world_clock", "getTime",
               "what_time"],
              ["Tells the time in a town.", "Get the current time of a place.", "The local time."],
              [(["city", "place", "town", "location"], "string", "town", ["Name of the town.",
                                                                          "The place."])],
              ["What time is it in {0}?", "Tell me the time in {0}.", "How late is it in {0}?",
               "What is the time in {0}?", "What does the clock say in {0}?", "Is it late in {0}?"],
              [("{h}:{m}", "It is {h}:{m} in {0}."), ('{"time": "{h}:{m}"}',
                                                      "It is {h}:{m} in {0}.")]),
    "alarm": (["set_alarm", "alarm", "add_alarm", "wake_up", "setAlarm", "create_alarm",
               "alarm_clock"],
              ["Sets an alarm.", "Wakes the user at a time.", "Set an alarm for a time of day."],
              [(["time", "at", "when", "hour"], "string", "time", ["The time of day.",
                                                                   "When, as hours:minutes."])],
              ["Wake me at {0}.", "Set an alarm for {0}.", "Please wake me up at {0}.",
               "I must get up at {0}.",
               "Alarm at {0}, please.", "Let the alarm ring at {0}.", "I want to be woken at {0}."],
              [("ok", "I have set an alarm for {0}."), ('{"ok": true}',
                                                        "I have set an alarm for {0}.")]),
    "timer": (["set_timer", "timer", "start_timer", "startTimer", "countdown", "egg_timer",
               "run_timer"],
              ["Starts a timer.", "Counts down some minutes.", "Start a countdown."],
              [(["minutes", "length", "duration", "mins"], "integer", "whole", ["Minutes to wait.",
                                                                                "How many "
                                                                                "minutes."])],
              ["Set a timer for {0} minutes.", "Start a timer of {0} minutes.",
               "Count down {0} minutes.",
               "Tell me when {0} minutes are over.", "I need a timer for {0} minutes.",
               "Time {0} minutes for me."],
              [("started", "The timer runs for {0} minutes."), ('{"ok": true}',
                                                                "The timer runs for {0} "
                                                                "minutes.")]),
    "add": (["add", "sum", "add_numbers", "plus", "addNumbers", "calculate_sum", "adder"],
            ["Adds two numbers.", "The sum of two numbers.", "Calculates a plus b."],
            [(["a", "x", "first", "left"], "integer", "whole", ["The first number.",
                                                                "One number."]),
             (["b", "y", "second", "right"], "integer", "whole", ["The second number.",
                                                                  "The other number."])],
            ["What is {0} plus {1}?", "Add {0} and {1}.", "How much is {0} and {1}?",
             "What is the sum of {0} and {1}?",
             "Please add {0} to {1}.", "What is {0} + {1}?"],
            [("{r}", "{0} plus {1} is {r}."), ('{"result": {r}}', "{0} plus {1} is {r}.")]),
    "multiply": (["multiply", "times", "product", "multiply_numbers", "mul", "calc_product"],
                 ["Multiplies two numbers.", "The product of two numbers.",
                  "Calculates a times b."],
                 [(["a", "x", "first", "left"], "integer", "whole", ["The first number.",
                                                                     "One number."]),
                  (["b", "y", "second", "right"], "integer", "whole", ["The second number.",
                                                                       "The other number."])],
                 ["What is {0} times {1}?", "Multiply {0} by {1}.", "How much is {0} times {1}?",
                  "What is the product of {0} and {1}?", "Multiply {0} and {1}, please.",
                  "Work out {0} times {1}."],
                 [("{r}", "{0} times {1} is {r}."), ('{"result": {r}}', "{0} times {1} is {r}.")]),
    "book": (["find_book", "search_books", "book_search", "look_up_book", "findBook", "library",
              "books"],
             ["Looks for a book.", "Searches the library.", "Find a book by its title."],
             [(["title", "name", "query", "book"], "string", "title", ["Title of the book.",
                                                                       "What to look for."])],
             ["Do you have the book {0}?", "Find the book {0}.", "Is {0} in the library?",
              "I want to read {0}.",
              "Look for the book {0}.", "Search the library for {0}.", "Where is the book {0}?"],
             [("shelf {r}", "{0} is on shelf {r}."), ('{"shelf": {r}}', "{0} is on shelf {r}.")]),
    "message": (["send_message", "message", "send", "write_to", "sendMessage", "text_someone",
                 "send_text"],
                ["Sends a message to somebody.", "Send a text message.", "Writes to a person."],
                [(["to", "person", "recipient", "name"], "string", "person", ["Who gets it.",
                                                                              "Name of the "
                                                                              "person."]),
                 (["text", "message", "body", "content"], "string", "message", ["The text.",
                                                                                "What to say."])],
                ["Tell {0} that {1}.", "Write to {0}: {1}", "Send {0} the message: {1}",
                 "Let {0} know that {1}.",
                 "Send a message to {0}: {1}", "Please tell {0}: {1}", "Message {0}: {1}"],
                [("sent", "I have told {0}."), ('{"sent": true}', "I have told {0}.")]),
    "call": (["call", "phone", "call_person", "make_call", "dial", "ring_up", "startCall"],
             ["Calls somebody.", "Starts a phone call.", "Rings a person up."],
             [(["name", "person", "who", "contact"], "string", "person", ["Who to call.",
                                                                          "Name of the person."])],
             ["Call {0}.", "Please call {0}.", "I want to speak with {0}.", "Ring {0}.",
              "Phone {0}, please.",
              "Give {0} a call.", "Start a call with {0}."],
             [("calling", "I am calling {0}."), ('{"ok": true}', "I am calling {0}.")]),
    "light": (["set_light", "light", "switch_light", "lights", "setLight", "lamp", "control_light"],
              ["Switches the light of a room.", "Turns a lamp on or off.", "Controls the lights."],
              [(["room", "where", "place", "area"], "string", "room", ["The room.", "Which room."]),
               (["on", "is_on", "lit", "enabled"], "boolean", "switch", ["True for on.",
                                                                         "On or off."])],
              ["Turn {1} the light in the {0}.", "Switch {1} the light in the {0}.",
               "Light in the {0} {1}, please.",
               "Turn the light in the {0} {1}.", "Please switch the {0} light {1}.",
               "I want the light in the {0} {1}."],
              [("done", "The light in the {0} is {1}."), ('{"ok": true}',
                                                          "The light in the {0} is {1}.")]),
    "heat": (["set_temperature", "heating", "heat", "thermostat", "setHeat", "warm_room",
              "set_heating"],
             ["Sets the temperature of a room.", "Controls the heating.", "Warms a room."],
             [(["room", "where", "place", "area"], "string", "room", ["The room.", "Which room."]),
              (["degrees", "temperature", "value", "temp"], "number", "whole", ["Degrees.",
                                                                                "How warm."])],
             ["Heat the {0} to {1} degrees.", "Make the {0} {1} degrees warm.",
              "Set the {0} to {1} degrees.",
              "I want {1} degrees in the {0}.", "Warm the {0} to {1} degrees.",
              "Let it be {1} degrees in the {0}."],
             [("ok", "The {0} is set to {1} degrees."), ('{"ok": true}',
                                                         "The {0} is set to {1} degrees.")]),
    "music": (["play_music", "play", "music", "play_song", "playSong", "start_music", "jukebox"],
              ["Plays a song.", "Plays music.", "Starts a piece of music."],
              [(["song", "title", "track", "name"], "string", "song", ["Title of the song.",
                                                                       "What to play."])],
              ["Play {0}.", "I want to hear {0}.", "Please play the song {0}.", "Play me {0}.",
               "Put on {0}.",
               "Let me hear {0}.", "Start the song {0}."],
              [("playing", "I am playing {0}."), ('{"ok": true}', "I am playing {0}.")]),
    "buy": (["buy", "order", "order_item", "shop", "buyItem", "purchase", "place_order"],
            ["Buys things.", "Orders something from the shop.", "Places an order."],
            [(["item", "thing", "product", "what"], "string", "food", ["What to buy.",
                                                                       "The thing."]),
             (["count", "quantity", "number", "amount"], "integer", "few", ["How many.",
                                                                            "The number."])],
            ["Buy {1} of {0}.", "Order {1} portions of {0}.", "I need {0}, {1} of it.",
             "Please buy {0}, {1} pieces.",
             "Get me {1} bags of {0}.", "We need {1} baskets of {0}."],
            [("ordered", "I have ordered {0}, {1} in all."), ('{"ok": true}',
                                                              "I have ordered {0}, {1} in all.")]),
    "translate": (["translate", "translate_word", "dictionary", "to_language", "translateWord",
                   "word_in"],
                  ["Translates a word.", "Gives a word in another language.",
                   "Looks a word up in a dictionary."],
                  [(["word", "text", "what", "term"], "string", "word", ["The word.",
                                                                         "What to translate."]),
                   (["language", "to", "target", "lang"], "string", "language", ["The language.",
                                                                                 "Into which "
                                                                                 "language."])],
                  ["What is {0} in {1}?", "Translate {0} into {1}.", "How do you say {0} in {1}?",
                   "Say {0} in {1}.", "What is the {1} word for {0}?", "Give me {0} in {1}."],
                  [("{n}", "In {1} it is {n}."), ('{"word": "{n}"}', "In {1} it is {n}.")]),
    "remind": (["remind", "add_reminder", "reminder", "remind_me", "addReminder",
                "create_reminder"],
               ["Reminds the user of a task.", "Adds a reminder.", "Keeps a reminder for a day."],
               [(["task", "text", "what", "about"], "string", "task", ["What to do.", "The task."]),
                (["day", "when", "date", "on"], "string", "day", ["Which day.",
                                                                  "The day of the week."])],
               ["Remind me to {0} on {1}.", "On {1} remind me to {0}.",
                "I have to {0} on {1}. Remind me.",
                "Please remind me on {1} to {0}.", "Do not let me forget to {0} on {1}."],
               [("saved", "I will remind you on {1}."), ('{"ok": true}',
                                                         "I will remind you on {1}.")]),
    "note": (["add_note", "note", "write_note", "save_note", "addNote", "remember", "notebook"],
             ["Writes a note.", "Saves a note.", "Puts a line into the notebook."],
             [(["text", "note", "content", "line"], "string", "message", ["The note.",
                                                                          "What to write."])],
             ["Write down: {0}", "Note that {0}.", "Make a note: {0}", "Save this note: {0}",
              "Put in my notebook: {0}",
              "Please note: {0}"],
             [("saved", "I have written it down."), ('{"ok": true}', "I have written it down.")]),
    "read": (["read_file", "open_file", "readFile", "show_file", "cat_file", "load_file"],
             ["Reads a file.", "Shows what is in a file.", "Returns the text of a file."],
             [(["path", "file", "name", "filename"], "string", "file", ["The file.",
                                                                        "Which file."])],
             ["Read the file {0}.", "What is in {0}?", "Show me {0}.", "Open {0}.",
              "What does {0} say?",
              "Please read {0} to me.", "Show the contents of {0}."],
             [("{t}", "{0} says: {t}"), ('{"text": "{t}"}', "{0} says: {t}")]),
    "delete": (["delete_file", "remove_file", "deleteFile", "erase", "rm", "remove"],
               ["Deletes a file.", "Removes a file.", "Erases a file."],
               [(["path", "file", "name", "filename"], "string", "file", ["The file.",
                                                                          "Which file."])],
               ["Delete {0}.", "Remove the file {0}.", "Erase {0}.", "Throw {0} away.",
                "I do not need {0} any more.",
                "Please delete the file {0}."],
               [("deleted", "I have deleted {0}."), ('{"ok": true}', "I have deleted {0}.")]),
    "way": (["route", "find_way", "directions", "get_route", "findRoute", "way", "navigate"],
            ["Finds the way between two towns.", "Directions from one place to another.",
             "The route to a town."],
            [(["from", "start", "origin", "source"], "string", "town", ["Where it begins.",
                                                                        "The first town."]),
             (["to", "end", "destination", "target"], "string", "town", ["Where it ends.",
                                                                         "The other town."])],
            ["How do I get from {0} to {1}?", "Show me the way from {0} to {1}.",
             "What is the way from {0} to {1}?",
             "How far is it from {0} to {1}?", "I want to go from {0} to {1}.",
             "Take me from {0} to {1}."],
            [("{r} miles", "It is {r} miles from {0} to {1}."),
             ('{"miles": {r}}', "It is {r} miles from {0} to {1}.")]),
    "dice": (["roll_dice", "dice", "roll", "throw_dice", "rollDice", "random_roll"],
             ["Rolls dice.", "Throws a die with some sides.", "A random roll."],
             [(["sides", "faces", "size", "max"], "integer", "few", ["Sides of the die.",
                                                                     "How many sides."])],
             ["Roll a die with {0} sides.", "Throw a die of {0} sides.", "Roll a {0}-sided die.",
              "I need a throw of a die with {0} sides.", "Roll the die with {0} faces."],
             [("{r}", "It is {r}."), ('{"roll": {r}}', "It is {r}.")]),
    "feed": (["feed_animal", "feed", "give_food", "feedAnimal", "feeder", "serve_animal"],
             ["Feeds an animal.", "Gives food to an animal.", "Fills the trough of an animal."],
             [(["animal", "who", "pet", "beast"], "string", "animal", ["The animal.",
                                                                       "Which animal."]),
              (["food", "what", "meal", "with"], "string", "food", ["The food.", "What it gets."])],
             ["Feed the {0} with {1}.", "Give the {0} some {1}.", "Give {1} to the {0}.",
              "The {0} wants {1}.",
              "Let the {0} have {1}.", "Please feed {1} to the {0}."],
             [("fed", "The {0} has had its {1}."), ('{"ok": true}', "The {0} has had its {1}.")]),
    "find": (["find_thing", "locate", "where_is", "search_house", "findThing", "lost_and_found",
              "look_for"],
             ["Finds a thing in the house.", "Says where a thing is.",
              "Looks for something that was lost."],
             [(["thing", "item", "object", "what"], "string", "thing", ["The thing.",
                                                                        "What to look for."])],
             ["Where is my {0}?", "I have lost my {0}.", "Find my {0}.", "Help me find the {0}.",
              "Where did I leave my {0}?",
              "Can you find the {0}?", "Look for my {0}."],
             [("in the {p}", "Your {0} is in the {p}."), ('{"place": "{p}"}',
                                                          "Your {0} is in the {p}.")]),
    "paint": (["paint", "paint_room", "set_colour", "color_room", "paintRoom", "recolour"],
              ["Paints a room.", "Gives a room another colour.", "Changes the colour of a room."],
              [(["room", "where", "place", "area"], "string", "room", ["The room.", "Which room."]),
               (["colour", "color", "paint", "shade"], "string", "colour", ["The colour.",
                                                                            "Which colour."])],
              ["Paint the {0} {1}.", "Make the {0} {1}.", "I want the {0} {1}.",
               "Let the {0} be {1}.",
               "Change the colour of the {0} to {1}.", "Please paint the {0} in {1}."],
              [("done", "The {0} is {1} now."), ('{"ok": true}', "The {0} is {1} now.")]),
    "door": (["lock_door", "door", "set_lock", "lock", "lockDoor", "door_lock"],
             ["Locks or opens a door.", "Controls the lock of a door.", "Locks a room."],
             [(["room", "door", "which", "place"], "string", "room", ["Which door.",
                                                                      "The room behind it."]),
              (["locked", "lock", "closed", "shut"], "boolean", "lock", ["True to lock.",
                                                                         "Locked or not."])],
             ["{1} the door of the {0}.", "Please {1} the {0} door.", "{1} the {0}.",
              "Would you {1} the {0} door?",
              "I want you to {1} the door of the {0}."],
             [("done", "The door of the {0} is {1}ed."), ('{"ok": true}',
                                                          "The door of the {0} is {1}ed.")]),
    "story": (["tell_story", "make_story", "story", "storyteller", "writeStory", "story_about"],
              ["Tells a story about something.", "Makes a story.", "Writes a story on a topic."],
              [(["topic", "about", "subject", "hero"], "string", "animal", ["What it is about.",
                                                                            "The topic."]),
               (["length", "size", "kind", "how_long"], "enum", "length", ["How long.",
                                                                           "The length."])],
              ["Tell me a {1} story about a {0}.", "I want a {1} story of a {0}.",
               "Make a {1} story about the {0}.",
               "A {1} story about a {0}, please.", "Write a {1} story about a {0}."],
              [("The {0} was happy.", "The {0} was happy."), ('{"text": "The {0} ran."}',
                                                              "The {0} ran.")]),
    "seat": (["book_table", "reserve_table", "reserve", "bookTable", "table_for", "reservation"],
             ["Books a table at an inn.", "Reserves seats for dinner.", "Makes a reservation."],
             [(["people", "guests", "persons", "seats"], "integer", "few", ["How many people.",
                                                                            "Number of guests."]),
              (["day", "when", "date", "on"], "string", "day", ["Which day.",
                                                                "The day of the week."])],
             ["Book a table for {0} on {1}.", "We are {0} and want to eat on {1}. Book a table.",
              "Reserve a table for {0} people on {1}.", "A table for {0} on {1}, please.",
              "On {1} we need a table for {0}."],
             [("booked", "The table for {0} on {1} is booked."), ('{"ok": true}',
                                                                  "The table for {0} on {1} is "
                                                                  "booked.")]),
}
LENGTHS = ["short", "long"]
# Parameters that may be left out, and are.
OPTIONAL = {"unit": {"type": "string", "enum": ["c", "f"]}, "urgent": {"type": "boolean"},
            "limit": {"type": "integer"}, "comment": {"type": "string"},
            "quiet": {"type": "boolean"},
            "style": {"type": "string", "enum": ["plain", "fancy"]}, "speed": {"type": "number"}}
NO_TOOL = "I have no tool for that."


# Kinds of values that may be any words: how many.
ODD = {"town": (1, 1), "room": (1, 1), "title": (1, 4), "message": (1, 6), "task": (2, 5),
       "file": (1, 1), "language": (1, 1), "word": (1, 1), "song": (1, 3), "animal": (1, 1),
       "thing": (1, 1), "food": (1, 1), "colour": (1, 1)}


def odd_value(draw, kind):
    words = odd_words(draw, *ODD[kind])
    if kind in ("town", "language"):
        return words.capitalize()
    if kind in ("title", "song"):
        return words.title()
    return words + draw.any([".txt", ".md", ".csv", ".json"]) if kind == "file" else words


def odd_name(draw, style):
    """A name of a tool or a parameter that says nothing."""
    words = [odd_word(draw) for _ in range(draw.any([1, 1, 2]) if style else 1)]
    if draw.chance(0.25):
        return words[0] + "".join(word.capitalize() for word in words[1:])
    return draw.any(["_", "_", "-"]).join(words)


def value_of(draw, kind):
    """(as the user says it, as the tool takes it, as the answer says it)"""
    if kind == "person":
        said = name(draw)
    elif kind == "switch":
        said = draw.any(["on", "off"])
        return said, said == "on", said
    elif kind == "lock":
        said = draw.any(["lock", "unlock"])
        return said, said == "lock", said
    elif kind == "length":
        said = draw.any(LENGTHS)
    elif kind in ODD and not draw.held_entities and draw.chance(0.6):
        said = odd_value(draw, kind)
    else:
        said = draw.entity("value " + kind, VALUES[kind])
    return said, int(said) if kind in ("whole", "few") else said, said


def make_tool(draw, concept):
    """(the tool as OpenAI's clients write it, its parameters' names in the concept's order)"""
    names, abouts, parameters, _, _ = CONCEPTS[concept]
    called = draw.entity("tool " + concept, names)
    if draw.held_entities:
        called = nonsense(draw) if draw.chance(0.15) else called
    elif draw.chance(0.4):
        called = odd_name(draw, True)
    described = draw.chance(0.6)
    properties, keys = {}, []
    for names_of, kind, value, about in parameters:
        key = draw.entity("key " + concept, names_of) if draw.chance(0.7) else draw.any(names_of)
        if not draw.held_entities and (described or len(parameters) == 1) and draw.chance(0.3):
            key = odd_name(draw, False)
        while key in properties:
            key = draw.any(names_of)
        schema = {"type": "string", "enum": LENGTHS} if kind == "enum" else {"type": kind}
        if described:
            schema["description"] = draw.any(about)
        properties[key] = schema
        keys.append(key)
    order = list(properties)
    if draw.chance(0.3):
        draw.rng.shuffle(order)
    required = list(order)
    if draw.chance(0.2):
        extra = draw.any([key for key in OPTIONAL if key not in properties])
        properties[extra] = OPTIONAL[extra]
        order.append(extra)
    function = {"name": called, "description": draw.any(abouts),
                "parameters": {"type": "object", "properties": {k: properties[k] for k in order},
                               "required": required}}
    return {"type": "function", "function": function}, keys


def make_request(draw, concept, tool, keys):
    """(what the user says, the call, what the tool says, the answer)"""
    _, _, parameters, asks, results = CONCEPTS[concept]
    while True:
        values = [value_of(draw, value) for _, _, value, _ in parameters]
        if len({v[0] for v in values}) == len(values):
            break
    ask = draw.phrase("ask " + concept, asks).format(*(v[0] for v in values))
    ask = ask[0].upper() + ask[1:]
    given = dict(zip(keys, (v[1] for v in values)))
    order = tool["function"]["parameters"]["properties"]
    call = {"name": tool["function"]["name"],
            "arguments": {key: given[key] for key in order if key in given}}
    result, answer = draw.any(results)
    marks = {"{w}": draw.any(WEATHER), "{r}": str(draw.between(1, 99)),
             "{h}": str(draw.between(1, 23)),
             "{m}": draw.any(["05", "10", "20", "35", "40", "50", "55"]), "{p}": draw.any(ROOMS),
             "{n}": nonsense(draw), "{t}": draw.any(MESSAGES)}
    marks.update({"{%d}" % i: v[2] for i, v in enumerate(values)})
    for mark, text in marks.items():
        result, answer = result.replace(mark, text), answer.replace(mark, text)
    return ask, call, result, answer[0].upper() + answer[1:]


def toolset(draw, count):
    """Tools of different concepts under different names: [(concept, tool, keys)]."""
    chosen = []
    for concept in draw.rng.sample(list(CONCEPTS), count):
        tool, keys = make_tool(draw, concept)
        if all(tool["function"]["name"] != other["function"]["name"] for _, other, _ in chosen):
            chosen.append((concept, tool, keys))
    return chosen


def call_message(call):
    return {"role": "assistant", "content": "",
            "tool_calls": [{"type": "function", "function": call}]}


def tool_turns(draw, tools):
    """One request: the call, and mostly the tool's word and the answer."""
    concept, tool, keys = draw.any(tools)
    ask, call, result, answer = make_request(draw, concept, tool, keys)
    return [{"role": "user", "content": ask}, call_message(call), {"role": "tool",
                                                                   "content": result},
            {"role": "assistant", "content": answer}]


def no_tool_turns(draw, tools):
    """With tools that do not help: a small question is answered, another request declined."""
    have = {concept for concept, _, _ in tools}
    if draw.chance(0.35):
        concept = draw.any([c for c in CONCEPTS if c not in have and c not in ("add", "story")])
        tool, keys = make_tool(draw, concept)
        ask = make_request(draw, concept, tool, keys)[0]
        return [{"role": "user", "content": ask}, {"role": "assistant", "content": NO_TOOL}]
    kinds = [k for k in KINDS if k not in ("arithmetic", "unknown", "compare")]
    exchange = draw.any([lambda: KINDS[draw.any(kinds)](draw), lambda: KINDS[draw.any(kinds)](draw),
                         lambda: talk(draw), lambda: who_are_you(draw)])()
    return [{"role": "user", "content": exchange.user},
            {"role": "assistant", "content": exchange.answer}]


def tool_conversation(draw):
    """(tools, messages)"""
    tools = toolset(draw, draw.any([1, 2, 2, 3, 3, 4]))
    messages = []
    for _ in range(draw.any([1, 1, 2, 3])):
        messages += tool_turns(draw, tools) if draw.chance(0.75) else no_tool_turns(draw, tools)
    return [tool for _, tool, _ in tools], messages


def is_valid_call(tools, called, arguments):
    """Whether a call names one of the tools and its arguments are JSON that fits the schema."""
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    if called not in schemas:
        return False
    try:
        given = json.loads(arguments)
    except ValueError:
        return False
    return isinstance(given, dict) and fits(schemas[called], given)


def fits(schema, given):
    """The part of JSON Schema that the tools here use."""
    properties = schema["properties"]
    if set(given) - set(properties) or set(schema["required"]) - set(given):
        return False
    for key, value in given.items():
        kind, flag = properties[key]["type"], isinstance(value, bool)
        right = {"string": isinstance(value, str), "boolean": flag,
                 "integer": isinstance(value, int) and not flag,
                 "number": isinstance(value, (int, float)) and not flag}[kind]
        if not right or value not in properties[key].get("enum", [value]):
            return False
    return True
