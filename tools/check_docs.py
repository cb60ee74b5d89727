#!/usr/bin/env python3
"""Rules of documents that can be counted: words, cells, links, blocks, messages.

    tools/check_docs.py [root]

- README has at most 700 words, cells of 12 words, and no goal that is missed.
- Cells of tables in docs/ have at most 25 words.
- Links lead to files and headings that are there; so do paths docs/*.md in any text.
- Commands stand in fences, which tests/docs/commands_test.py runs.
- Messages that docs/troubleshooting.md explains are in the sources.

Prints `file:line: what was found, what is allowed` and exits 1 if anything was found.
tools/prose.py has the rules of sentences.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402

README = "README.md"
README_WORDS_MAX = 700
README_CELL_WORDS_MAX = 12
CELL_WORDS_MAX = 25
TROUBLESHOOTING = "docs/troubleshooting.md"

# Pages for people who work on the code. Their commands are for a machine with everything on it.
FOR_DEVELOPERS = re.compile(r"docs/(?:ADDING_|experiments|glossary|gpu_kernels|formats/)")
# A record of what was tried: its tables are read by date, and it names files of its day.
RECORDS = re.compile(r"docs/experiments|CHANGELOG\.md|benchmarks/results/|tests/regressions/")
# Documents of other projects that comments name.
ELSEWHERE = {"docs/gguf.md"}
FENCES = ("sh", "text", "python", "json", "cmake", "c", "cpp", "lark", "toml")
# Goals that are missed have a table in docs/performance.md.
MISSED = re.compile(r"\b(?:missed|not reached|is asked|asked for)\b", re.IGNORECASE)

_FENCE = re.compile(r"\s*```(.*)$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
_PATH = re.compile(r"(?<![\w./-])(?<!\]\()docs/[\w/.-]+\.md\b")
_CELL = re.compile(r"(?<!\\)\|")
_LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_FORMAT = re.compile(r"\{[^{}]*\}")


def fences(text):
    """(line, the word behind ```, the lines inside) of each fenced block."""
    found, inside = [], None
    for number, line in enumerate(text.split("\n"), 1):
        fence = _FENCE.match(line)
        if fence and inside is None:
            inside = (number, fence.group(1).strip(), [])
            found.append(inside)
        elif fence:
            inside = None
        elif inside is not None:
            inside[2].append(line)
    return found


def prose_lines(text):
    """(line, text) outside of fences."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def cells(line):
    """The cells of a table's row."""
    return [cell.strip() for cell in _CELL.split(line.strip().removeprefix("|").removesuffix("|"))]


def anchors(text):
    """Headings as GitHub spells them, which links may name behind #."""
    found = {}
    for _, line in prose_lines(text):
        heading = _HEADING.match(line)
        if not heading:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        if count:
            found[f"{slug}-{count}"] = 1
    return set(found)


def matches(message, literals):
    """Whether a message is spelled by one of the literals, `...` standing for their fields."""
    parts = [part.strip() for part in message.split("...") if part.strip(" :'\"")]
    return any(all_in_order(parts, literal) for literal in literals)


def all_in_order(parts, text):
    position = 0
    for part in parts:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


class Documents:
    def __init__(self, root):
        self.root = root
        self.found = []
        self.files = tidy.tracked_files(root)
        self.texts = {path: self.read(path) for path in self.files if path.endswith(".md")}

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def report(self, path, line, message):
        self.found.append((path, line, message))

    def run(self):
        for path, text in self.texts.items():
            if path.startswith(tidy.DATA):
                continue
            self.check_links(path, text)
            if path == README or path.startswith("docs/"):
                self.check_cells(path, text)
                self.check_blocks(path, text)
        if README in self.texts:
            self.check_readme(self.texts[README])
        if TROUBLESHOOTING in self.texts:
            self.check_messages(self.texts[TROUBLESHOOTING])
        self.check_paths()
        return sorted(self.found)

    def check_readme(self, text):
        words = len(text.split())
        if words > README_WORDS_MAX:
            self.report(README, 1, f"{words} words, allowed {README_WORDS_MAX}")
        for number, line in prose_lines(text):
            match = MISSED.search(line)
            if match:
                self.report(README, number, f"'{match.group()}', expected in docs/performance.md")

    def check_cells(self, path, text):
        if RECORDS.match(path):
            return
        allowed = README_CELL_WORDS_MAX if path == README else CELL_WORDS_MAX
        for number, line in prose_lines(text):
            for cell in cells(line) if line.startswith("|") else []:
                words = len(cell.split())
                if words > allowed:
                    self.report(path, number, f"a cell of {words} words, '{cell[:40]} ...', "
                                              f"allowed {allowed}")

    def check_blocks(self, path, text):
        """Blocks say what they are, and none is set out by spaces alone."""
        if FOR_DEVELOPERS.match(path):
            return
        for number, word, _ in fences(text):
            if word not in FENCES:
                self.report(path, number, f"a block of '{word}', expected one of "
                                          f"{', '.join(FENCES)}")
        in_list = False
        for number, line in prose_lines(text):
            in_list = bool(_LIST_ITEM.match(line)) or (in_list and line.startswith((" ", "\t"))) \
                or (in_list and not line.strip())
            if line.startswith("    ") and line.strip() and not in_list:
                self.report(path, number, "a block without a fence, expected ```sh or another")

    def check_links(self, path, text):
        folder = os.path.dirname(path)
        for number, line in prose_lines(text):
            for target in _LINK.findall(_CODE.sub("", line)):
                if re.match(r"[a-z][a-z0-9+.-]*:", target):
                    continue
                file, _, anchor = target.partition("#")
                linked = os.path.normpath(os.path.join(folder, file)) if file else path
                if not os.path.exists(os.path.join(self.root, linked)):
                    self.report(path, number, f"a link to {target}, which is not there")
                elif anchor and anchor not in anchors(self.texts.get(linked, "")):
                    self.report(path, number, f"a link to {target}, expected a heading of {linked}")

    def check_paths(self):
        """Paths of documents that texts of all kinds name."""
        for path in self.files:
            if RECORDS.match(path) or path.startswith(tidy.DATA + ("tests/tools/",)) \
                    or not tidy.is_text(path):
                continue
            for number, line in enumerate(self.read(path).split("\n"), 1):
                for named in _PATH.findall(line):
                    if named not in self.texts and named not in ELSEWHERE:
                        self.report(path, number, f"{named}, which is not there")

    def check_messages(self, text):
        literals = self.literals()
        for number, line in prose_lines(text):
            for message in re.findall(r"`([^`]+)`", cells(line)[0]) if line.startswith("|") else []:
                if not matches(message, literals):
                    self.report(TROUBLESHOOTING, number,
                                f"'{message}', expected a message that the sources have")

    def literals(self):
        """The texts of the sources, each with what stands beside it in neighbouring literals."""
        found = []
        for path in self.files:
            if path.startswith("src/") and path.endswith((".cc", ".h")):
                joined = re.sub(r'"\s*\n\s*"', "", self.read(path))
                found += _LITERAL.findall(joined)
            elif path.startswith("tools/") and path.endswith(".sh") or path == "Makefile":
                found += _LITERAL.findall(self.read(path))
        return [_FORMAT.sub("\0", literal.replace('\\"', '"')) for literal in found]


def check(root):
    """Findings in the tree at root as sorted (path, line, message)."""
    return Documents(root).run()


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else os.path.join(os.path.dirname(__file__), "..")
    found = check(root)
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    if not found:
        print("check_docs: nothing to say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
