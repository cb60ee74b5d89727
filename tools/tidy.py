#!/usr/bin/env python3
"""Small rules of STYLE.md that a formatter cannot see: lengths, banned words, first lines, paths.

    tools/tidy.py [root]

Reads the files git knows (or all files, outside a repository). Prints `file:line: what was found,
what is allowed` and exits 1 if anything was found.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import prose  # noqa: E402
from source_text import blank, docstrings, string_literals  # noqa: E402

LINE_LENGTH_MAX = 100
FILE_LINES_MAX = 500
FILE_LINES_HARD_MAX = 800  # for a file whose first lines give the reason for its length
FUNCTION_LINES_MAX = 70

CPP = (".h", ".hpp", ".cc", ".inl", ".cu", ".metal", ".mm")
TEXT = CPP + (".py", ".sh", ".cmake", ".md", ".txt", ".json", ".yml", ".yaml", ".jinja")
NAMES_OF_TEXT = ("Makefile", "CMakeLists.txt", "run", ".clang-tidy", ".clang-format")

# Data, and texts of others, that nobody writes by hand.
DATA = ("models/", "tests/golden/", "fuzz/corpus/", "benchmarks/results/",
        "benchmarks/texts/")
# Files whose lines may be long: tables in prose, and CMake, whose lists read better in one line.
LONG_LINES = (".md", ".cmake", "CMakeLists.txt", ".json", ".jinja")

# Documents, whose sentences keep the rules of comments, and those that explain private words.
DOCUMENTS = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "HACKING.md", "README.md",
             "SECURITY.md", "STYLE.md", "docs/")
EXPLAIN_WORDS = ("STYLE.md", "docs/glossary.md")
PUBLIC_HEADERS = "include/"
# Code whose string literals may be messages. Texts of kernels are not for people.
MESSAGES = ("src/", "python/")
NO_MESSAGES = ("_test.cc", "_test_util.h")
PYTHON_LIBRARY = "python/"  # its docstrings are what help() shows
HASH_COMMENTS = (".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile")
RUST = ".rs"

# Spelled in halves, so that this file passes its own check. Unfinished work is finished, or left
# out and written down where a reader looks for it; a marker in the code is neither.
BANNED_WORDS = [
    (re.compile(r"\bTO" r"DO\b|\bFIX" r"ME\b|\bX" r"XX\b|\bHA" r"CK\b"),
     "finished work, or an open point described in the docs"),
    (re.compile(r"\bnot (?:yet )?impl" r"emented\b|\bunimpl" r"emented\b", re.IGNORECASE),
     "kUnsupported with what was asked and what exists"),
    (re.compile(r"\bplace" r"holder for\b|\bwork in prog" r"ress\b|\bfor now\b", re.IGNORECASE),
     "what the code does today"),
]
# In code and build files; prose may forbid them by name.
BANNED_FLAGS = re.compile(r"-march=na" r"tive|-ffast-" r"math")
BANNED_IN_CPP = [
    (re.compile(r"\bstd::(?:format|expected|print|source_location|endl)\b|\bstd::views::"),
     "what g++ 12 and clang 14 both have, and '\\n'"),
    (re.compile(r"\b(?:sprintf|vsprintf|strcpy|strcat|gets|atoi|atof|strtok|rand|srand)\s*\("),
     "base/format.h, std::from_chars, an explicit generator"),
    (re.compile(r"\bNULL\b"), "nullptr"),
]
# Tests may be skipped for hardware that nobody has to have, and CI looks for the word; all else is
# tested everywhere.
SKIP = re.compile(r"\bGTEST_SKIP\(\)")
SKIP_FOR_HARDWARE = re.compile(r'GTEST_SKIP\(\)\s*<<\s*"hardware: ')
# A folder of one machine. Paths of the operating system (/proc, /sys, /usr, /dev, /tmp) are not.
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(?:home|Users|root|work|mnt|media)/[\w.-]+")

HASH_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
SLASH_LINE = re.compile(r"^[ \t]*//.*$", re.MULTILINE)
RUST_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
INCLUDE_GUARD = re.compile(r"^\s*#\s*ifndef\s+\w+_H_*\s*$", re.MULTILINE)
# Braces that do not count as a function's: their contents are looked at one by one.
TRANSPARENT = re.compile(r"\b(?:namespace|class|struct|union)\b|\bextern\s*$")
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
# The beginning of a macro's definition, before its text.
MACRO_HEAD = re.compile(r"[ \t]*#[ \t]*define[ \t]+\w+(?:\([^)]*\))?")


def tracked_files(root):
    """Files git tracks or would track, or every file outside a repository, relative to root."""
    if os.path.exists(os.path.join(root, ".git")):
        try:
            listed = subprocess.run(
                ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
            names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
            return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))
        except (OSError, subprocess.CalledProcessError):
            pass  # no git here, or not our repository (a source package): walk instead
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - {"build", ".git", ".cache", "__pycache__"})
        below = os.path.relpath(folder, root)
        found += [os.path.normpath(os.path.join(below, f)).replace(os.sep, "/") for f in files]
    return sorted(found)


def is_text(path):
    return path.endswith(TEXT) or os.path.basename(path) in NAMES_OF_TEXT


def long_functions(code):
    """(line, length) of functions over the limit; code has its comments and literals blanked.

    A macro's text counts by itself: many kernels are one body that a macro makes of a name.
    """
    found = long_bodies(PREPROCESSOR.sub(spaces, code))
    for macro in PREPROCESSOR.finditer(code):
        head = MACRO_HEAD.match(macro.group())
        if head:
            body = spaces(head) + macro.group()[head.end():].replace("\\\n", "\n")
            before = code.count("\n", 0, macro.start())
            found += [(before + line, lines) for line, lines in long_bodies(body)]
    return sorted(found)


def spaces(match):
    """The match as spaces, lines kept."""
    return re.sub(r"[^\n]", " ", match.group())


def long_bodies(code):
    """long_functions of code without directives."""
    found = []
    depth = 0  # of braces inside a function, a type's initialiser or an enum
    header = 0  # where the declaration being read began
    for match in re.finditer(r"[;{}]", code):
        if depth == 0 and match.group() == "{":
            before = code[header:match.start()]
            if ")" in before or not TRANSPARENT.search(before):
                depth = 1
            else:
                header = match.end()
        elif depth > 0:
            depth += {"{": 1, "}": -1}.get(match.group(), 0)
            if depth == 0:
                declaration = code[header:match.end()]
                lines = declaration.strip().count("\n") + 1
                if ")" in declaration.split("{", 1)[0] and lines > FUNCTION_LINES_MAX:
                    found.append((code.count("\n", 0, match.end()) - lines + 2, lines))
                header = match.end()
        else:
            header = match.end()
    return found


class Tidy:
    def __init__(self, root):
        self.root = root
        self.found = []

    def report(self, path, line, message):
        self.found.append((path, line, message))

    def run(self):
        for path in tracked_files(self.root):
            if path.startswith(DATA) and not path.endswith(CPP):
                continue
            if not is_text(path) and not path.endswith(RUST):
                continue
            with open(os.path.join(self.root, path), "rb") as file:
                data = file.read()
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                self.report(path, data.count(b"\n", 0, error.start) + 1, "bytes that are not UTF-8")
                continue
            if not path.endswith(RUST):
                self.check_lines(path, text)
            if path.endswith(CPP):
                self.check_cpp(path, text)
            self.check_prose(path, text)
        return sorted(self.found)

    def check_lines(self, path, text):
        if text and not text.endswith("\n"):
            self.report(path, text.count("\n") + 1, "no newline at the end, expected one")
        if "\r" in text:
            self.report(path, text.count("\n", 0, text.index("\r")) + 1, "carriage return")
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip(" \t"):
                self.report(path, number, "trailing whitespace")
            if len(line) > LINE_LENGTH_MAX and not path.endswith(LONG_LINES):
                self.report(path, number, f"{len(line)} columns, allowed {LINE_LENGTH_MAX}")
            for pattern, instead in BANNED_WORDS:
                match = pattern.search(line)
                if match:
                    self.report(path, number, f"'{match.group()}', expected {instead}")
            match = BANNED_FLAGS.search(line)
            if match and not path.endswith(".md"):
                self.report(path, number, f"'{match.group()}', expected per-file instruction sets "
                                          "and exact arithmetic")
            match = MACHINE_PATH.search(line)
            if match:
                self.report(path, number, f"'{match.group()}', expected a path relative to the "
                                          "repository or given by the user")

    def check_cpp(self, path, text):
        lines = text.count("\n")
        first = "\n".join(text.split("\n")[:3])
        has_reason = re.search(r"//.*\b(?:long|one file|lines)\b", first, re.IGNORECASE)
        limit = FILE_LINES_HARD_MAX if has_reason else FILE_LINES_MAX
        if lines > limit:
            self.report(path, 1, f"{lines} lines, allowed {limit} ({FILE_LINES_HARD_MAX} when the "
                                 "first line says why the file is long)")
        self.check_first_line(path, text)
        code = blank(text)
        for pattern, instead in BANNED_IN_CPP:
            for match in pattern.finditer(code):
                self.report(path, code.count("\n", 0, match.start()) + 1,
                            f"'{match.group()}', expected {instead}")
        for match in SKIP.finditer(code):
            if not SKIP_FOR_HARDWARE.match(text, match.start()):
                self.report(path, code.count("\n", 0, match.start()) + 1,
                            "GTEST_SKIP, allowed only for absent hardware: << \"hardware: ...")
        if "\t" in code:
            self.report(path, code.count("\n", 0, code.index("\t")) + 1, "tab, expected spaces")
        # Texts are included inside a namespace, maybe more than once.
        guarded = not path.endswith(("-inl.h", "_text.h"))
        if path.endswith(".h") and guarded and "#pragma once" not in code:
            guard = INCLUDE_GUARD.search(code)
            self.report(path, 1, ("an include guard" if guard else "no #pragma once")
                        + ", expected #pragma once")
        for line, length in long_functions(code):
            self.report(path, line, f"a function of {length} lines, allowed {FUNCTION_LINES_MAX}")

    def check_prose(self, path, text):
        """Sentences of comments and documents are short and begin with what they are about."""
        blocks = []
        is_document = path.endswith(".md") and path.startswith(DOCUMENTS)
        if path.endswith(CPP + (".c",)):
            blocks = prose.comment_blocks(text, blank(text, keep_strings=True))
        elif path.endswith(RUST):
            blocks = prose.comment_blocks(text, SLASH_LINE.sub("", text))
        elif path.endswith(HASH_COMMENTS):
            blocks = prose.comment_blocks(text, HASH_LINE.sub("", text), hashes=True)
            blocks += docstrings(text) if path.endswith(".py") else []
        elif is_document:
            blocks = [(1, prose.markdown_lines(text))]
        found = prose.long_sentences(blocks) + prose.headless_sentences(blocks)
        found += prose.hard_cells(text) if is_document else []
        found += self.private_words(path, text, blocks, is_document)
        for line, what, allowed in found:
            self.report(path, line, f"{what}, allowed {allowed}")

    @staticmethod
    def private_words(path, text, blocks, is_document):
        if is_document:
            return [] if path in EXPLAIN_WORDS else prose.private_words_of_document(text)
        found = []
        if path.startswith((PUBLIC_HEADERS, PYTHON_LIBRARY)):
            found += prose.private_words_of_blocks(blocks)
        if path.startswith(MESSAGES) and path.endswith(CPP) and not path.endswith(NO_MESSAGES):
            found += prose.private_words_of_messages(string_literals(text))
        if path.endswith(RUST):
            code = SLASH_LINE.sub("", text)
            found += prose.private_words_of_messages(
                (code.count("\n", 0, match.start()) + 1, match.group(1))
                for match in RUST_STRING.finditer(code))
        return found

    def check_first_line(self, path, text):
        """The first line says the file's job; a .cc may leave that to the header it opens with."""
        first = text.split("\n", 1)[0]
        if first.startswith("//") and len(first.strip("/ ")) >= 10:
            return
        # It has the same name, and another folder when posix/ implements what io/ declares.
        name = re.escape(os.path.basename(path).rsplit(".", 1)[0])
        own_header = re.fullmatch(rf'#include "(?:[\w/]+/)?{name}\.h"', first)
        if path.endswith(".cc") and (own_header or path.endswith("_test.cc")):
            return
        self.report(path, 1, f"'{first[:40]}', expected a comment that says the file's job")


def check(root):
    """Findings in the tree at root as sorted (path, line, message)."""
    return Tidy(root).run()


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else os.path.join(os.path.dirname(__file__), "..")
    found = check(root)
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    if not found:
        print("tidy: nothing to say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
