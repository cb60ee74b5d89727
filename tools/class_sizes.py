#!/usr/bin/env python3
"""Counts what a class offers, and refuses one that offers too much.

    tools/class_sizes.py [--list N] [root]

A class has at most FUNCTIONS_MAX public functions. Its own count, those of its bases and of its
public nested classes, and the free functions of its header that take it first. Overloads and
overrides count once; constructors, destructors and assignments do not count. Encoders' headers have
fewer than ENCODER_LINES_MAX lines. Prints one line a violation, `file: class: what was found`, and
exits 1 if any; --list prints the N largest instead.
"""

import os
import re
import sys
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from source_text import blank  # noqa: E402

FUNCTIONS_MAX = 30
ENCODER_LINES_MAX = 120
HEAD = re.compile(r"\b(class|struct)\s+(?:\[\[\w+\]\]\s+)?(\w+)(?:\s+final)?\s*(?::([^;{]*))?\{")
NAME = re.compile(r"([~\w]+|operator[^\s\w(]+|operator\(\))\s*\($")


@dataclass
class Class:
    """A class as its text has it."""

    path: str
    name: str
    bases: list
    functions: set = field(default_factory=set)


def without_arguments_of_templates(text):
    """The text without what stands between < and >."""
    while True:
        less = re.sub(r"<[^<>;{}]*>", "", text)
        if less == text:
            return text
        text = less


def end_of_block(text, i):
    """The place behind the brace that closes the one at i."""
    depth = 0
    while i < len(text):
        depth += (text[i] == "{") - (text[i] == "}")
        i += 1
        if depth == 0:
            break
    return i


def statements(body):
    """Declarations of a class's body as (text, whether it is a class), with the contents of braces
    left out unless it is one."""
    said = ""
    i = 0
    while i < len(body):
        if body[i] == "{":
            end = end_of_block(body, i)
            if HEAD.search(said + "{"):
                yield said + body[i:end], True
                said = ""
            elif "(" in said and not re.match(r"\s*[;,{(]", body[end:]):
                yield said, False  # a function's body
                said = ""
            else:
                said += "{}"  # an initializer
            i = end
        elif body[i] == ";":
            yield said, False
            said = ""
            i += 1
        else:
            said += body[i]
            i += 1


def function_name(declaration):
    """The name of the function that is declared, or None."""
    text = without_arguments_of_templates(declaration)
    text = re.sub(r"\[\[.*?\]\]|\btemplate\b|\brequires\b.*", "", text, flags=re.S)
    if re.search(r"\bfriend\b|\busing\b|\btypedef\b|\bstatic_assert\b|=\s*delete", text):
        return None
    before = text.split("(")[0] + "(" if "(" in text else ""
    if "=" in before.replace("operator=", "").replace("operator==", ""):
        return None
    found = NAME.search(before)
    return found.group(1) if found else None


def parse_class(path, kind, name, bases, body):
    """A class with its public functions, and the classes in it."""
    made = Class(path, name, re.findall(r"public\s+([\w:]+)", bases or ""))
    found = [made]
    is_public = kind == "struct"
    for declaration, is_nested in statements(body):
        for label in re.findall(r"\b(public|private|protected)\s*:", declaration.split("{")[0]):
            is_public = label == "public"
        declaration = re.sub(r"\b(public|private|protected)\s*:", " ", declaration)
        if is_nested:
            head = HEAD.search(declaration)
            inner = parse_class(path, head.group(1), head.group(2), head.group(3),
                                declaration[head.end():-1])
            found += inner
            if is_public:
                made.functions |= {f"{inner[0].name}::{f}" for f in inner[0].functions}
            continue
        function = function_name(declaration) if is_public else None
        if function and function not in (name, "~" + name, "operator="):
            made.functions.add(function)
    return found


def classes_of(path, text):
    """All classes of a file, and its free functions as (name, type of the first parameter)."""
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", blank(text), flags=re.M)
    found = []
    at = 0
    outside = []
    while True:
        head = HEAD.search(text, at)
        if not head or re.search(r"\benum\s+$", text[:head.start()]):
            if not head:
                outside.append(text[at:])
                break
            at = head.end()
            continue
        outside.append(text[at:head.start()])
        j = end_of_block(text, head.end() - 1)
        found += parse_class(path, head.group(1), head.group(2), head.group(3),
                             text[head.end():j - 1])
        at = j
    free = re.findall(r"\b(\w+)\s*\(\s*(?:const\s+)?(\w+)\s*[&*]\s*\w*\s*[,)]",
                      without_arguments_of_templates(" ".join(outside)))
    return found, free


def sizes(root):
    """Each class of src with the functions that it offers."""
    known = {}
    every = []
    for folder, _, files in os.walk(os.path.join(root, "src")):
        for name in sorted(files):
            if not name.endswith((".h", ".cc")) or name.endswith(("_test.cc", "_test_util.h")):
                continue
            path = os.path.relpath(os.path.join(folder, name), root)
            with open(os.path.join(root, path), encoding="utf-8") as file:
                found, free = classes_of(path, file.read())
            for one in found:
                one.functions |= {f"{f}(...)" for f, first in free
                                  if name.endswith(".h") and first == one.name}
                known.setdefault(one.name, one)
                every.append(one)

    def all_of(one, seen=()):
        functions = set(one.functions)
        for base in one.bases:
            base = known.get(base.split("::")[-1])
            if base and base.name not in seen and base is not one:
                functions |= all_of(base, (*seen, one.name))
        return functions

    return [(len(all_of(one)), one.path, one.name) for one in every]


def violations(root):
    """Lines about what is too large."""
    lines = [f"{path}: {name} has {count} public functions, allowed: {FUNCTIONS_MAX}"
             for count, path, name in sorted(sizes(root), reverse=True) if count > FUNCTIONS_MAX]
    for folder, _, files in os.walk(os.path.join(root, "src", "backend")):
        for file in sorted(files):
            if not re.fullmatch(r"(\w+_)?encoder\.h", file):
                continue
            path = os.path.join(folder, file)
            with open(path, encoding="utf-8") as text:
                count = len(text.read().splitlines())
            if count >= ENCODER_LINES_MAX:
                lines.append(f"{os.path.relpath(path, root)}: {count} lines, allowed: fewer than "
                             f"{ENCODER_LINES_MAX}")
    return lines


def main(arguments):
    if arguments[:1] == ["--list"]:
        root = arguments[2] if len(arguments) > 2 else "."
        for count, path, name in sorted(sizes(root), reverse=True)[:int(arguments[1])]:
            print(f"{count:4} {name} ({path})")
        return 0
    lines = violations(arguments[0] if arguments else ".")
    print("\n".join(lines) if lines else "class_sizes: nothing to say")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
