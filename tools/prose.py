"""Comments and documents as sentences: what tidy reads to find those that are hard to read."""

import re

SENTENCE_WORDS_MAX = 40

_SLASHES = re.compile(r"^\s*//[/!]?<?\s?(.*)$")
_HASHES = re.compile(r"^\s*#(?!!)\s?(.*)$")
_LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
# Text that is set out: formulas, code, pictures.
_SET_OUT = re.compile(r"\s{2,}\S")
_END = re.compile(r"""(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?:(?<=[.?!])|(?<=[.?!]["')*]))\s+""")
_WORD = re.compile(r"[A-Za-z0-9]")


def comment_blocks(text, code, hashes=False):
    """(line, lines) of the comments of a text whose comments are blanked in `code`: // or #."""
    whole_line = _HASHES if hashes else _SLASHES
    mark = "#" if hashes else "//"
    blocks = []
    current = None
    column = None  # of the comment behind code that lines below may go on with
    for number, (line, without) in enumerate(zip(text.split("\n"), code.split("\n")), 1):
        alone = whole_line.match(line) if not without.strip() else None
        if alone and line.strip():
            if current is None or column not in (None, line.find(mark)):
                column = None
                current = (number, [])
                blocks.append(current)
            current[1].append(alone.group(1))
            continue
        current = column = None
        begin = line.find(mark, len(without.rstrip()))
        if without.strip() and begin >= 0:
            # Lines below that hold nothing but a comment in the same column go on with this one.
            column = begin
            current = (number, [line[begin:].lstrip("/#<!").strip()])
            blocks.append(current)
    return blocks


def paragraphs(lines, first):
    """Paragraphs of `lines`, the first of which is line `first`, as lists of (line, its text)."""
    found = [[]]
    in_list = False
    for number, line in enumerate(lines, first):
        item = _LIST_ITEM.match(line)
        in_list = bool(item) or (in_list and bool(line.strip()))
        is_set_out = not in_list and _SET_OUT.match(line)
        if item or is_set_out or not line.strip():
            found.append([])
        if line.strip() and not is_set_out:
            found[-1].append((number, line[item.end():] if item else line))
    return [paragraph for paragraph in found if paragraph]


def sentences(paragraph):
    """(line of its beginning, text) of the sentences of a paragraph."""
    line_of_word = [number for number, text in paragraph for _ in text.split()]
    word = 0
    for sentence in _END.split(" ".join(text.strip() for _, text in paragraph)):
        if sentence.strip():
            yield line_of_word[word], sentence
            word += len(sentence.split())


def markdown_lines(text):
    """The lines of a document without tables, headings and code, which become empty."""
    in_code = False
    lines = []
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        in_code = in_code != fence
        plain = not in_code and not fence and not line.startswith(("|", "#", "    "))
        lines.append(line if plain else "")
    return lines


def hard_sentences(blocks):
    """(line, what, allowed) of sentences that begin with "Of" or have too many words."""
    found = []
    for first, lines in blocks:
        for paragraph in paragraphs(lines, first):
            for number, sentence in sentences(paragraph):
                words = [word for word in sentence.split() if _WORD.search(word)]
                beginning = f"'{' '.join(words[:4])} ...'"
                if words and words[0] == "Of":
                    found.append((number, beginning, "a sentence that begins with its subject"))
                if len(words) > SENTENCE_WORDS_MAX:
                    found.append((number, f"a sentence of {len(words)} words, {beginning}",
                                  str(SENTENCE_WORDS_MAX)))
    return found
