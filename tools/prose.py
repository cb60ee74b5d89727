"""Comments and documents as sentences: what tidy reads to find those that are hard to read."""

import re

SENTENCE_WORDS_MAX = 40
CELL_WORDS_MAX = 25  # of a table in a document

# Pronouns at the beginning of a sentence hide what it is about.
_HEADLESS = re.compile(r"""[^A-Za-z`]*(?:What|Who|Whoever|Whose|Those|Which|Of)\b""")
_QUESTION = re.compile(r"""\?["')*]*\s*$""")

# Private words, the field's words for them, and how the private ones are found in documents, public
# headers and messages. STYLE.md shows the words.
WORDS = [
    ("texts at work, another text", "requests, sequences, another completion",
     r"\b(?:running|waiting|several|other|parallel|both|all|many) texts\b(?! of)|\banother text\b"
     r"|\btexts (?:that )?(?:run|wait|share|at work)\b"),
    ("held to", "constrained by, checked against", r"\bheld to\b"),
    ("kept states", "cached or stored states",
     r"\bkept (?:states?|responses?|conversations?|answers?|texts?|sequences?)\b"),
    ("near and far memory", "GPU memory and host memory",
     r"\b(?:near|far) (?:experts?|slots?|memory|pages?|weights?|tiers?)\b"),
    ("parked", "paused", r"\bpark(?:s|ed|ing)?\b"),
    ("takes the place of", "preempts, replaces",
     r"\b(?:takes?|took|taking) (?:the|its|their) place of\b"),
    ("comes back to", "resumes, returns to", r"\b(?:comes?|came|coming) back to\b"),
    ("a past", "a KV cache",
     r"(?<!in )\b(?:an?|its|the|their|each|whose|every|shared) pasts?\b(?! (?:few|the))"
     r"|\bpasts\b"),
    ("is no X", "is not an X",
     r"(?<!there )(?<!here )\b(?:is|are|was|were) no "
     r"(?!longer\b|more\b|less\b|fewer\b|better\b|worse\b|different\b|other\b|way\b)"),
    ("that is none", "that is not one", r"\b(?:and|that|which|it) (?:is|are) none\b"),
    ("so many tokens", "the number's name", r"\bso (?:many|much)\b(?!.* that\b)"),
    ("told of", "reported", r"\btold of\b"),
    ("a token is drawn", "a token is sampled",
     r"\b(?:draws?|drawn|drew) (?:an?|the|its|every|each|\w+) tokens?\b"
     r"|\btokens? (?:is|are|was|were|has been|have been) drawn\b|\bdrawn tokens?\b"),
    ("whoever, that one's", "the noun", r"\bwhoever\b|\bthat one's\b"),
]
_WORDS = [(public, re.compile(pattern, re.IGNORECASE)) for _, public, pattern in WORDS]
_CODE_SPAN = re.compile(r"`[^`]*`")

_SLASHES = re.compile(r"^\s*//[/!]?<?\s?(.*)$")
_HASHES = re.compile(r"^\s*#(?!!)\s?(.*)$")
_LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
# Text that is set out: formulas, code, pictures.
_SET_OUT = re.compile(r"\s{2,}\S")
_END = re.compile(r"""(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)
                      (?:(?<=[.?!])|(?<=[.?!]["')*])|(?<=[.?!]\*\*))\s+""", re.VERBOSE)
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


def table_cells(text):
    """(line, text) of the cells of the tables of a document."""
    in_code = False
    for number, line in enumerate(text.split("\n"), 1):
        in_code = in_code != line.lstrip().startswith("```")
        if not in_code and line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield number, cell.strip()


def words_of(text):
    return [word for word in text.split() if _WORD.search(word)]


def beginning_of(words):
    return f"'{' '.join(words[:4])} ...'"


def is_headless(sentence):
    """Whether a sentence begins with a pronoun and asks nothing; single words are titles."""
    return (_HEADLESS.match(sentence) is not None and not _QUESTION.search(sentence)
            and len(words_of(sentence)) > 1)


def all_sentences(blocks):
    """(line, text) of the sentences of all paragraphs."""
    for first, lines in blocks:
        for paragraph in paragraphs(lines, first):
            yield from sentences(paragraph)


def long_sentences(blocks):
    """(line, what, allowed) of sentences with too many words."""
    found = []
    for number, sentence in all_sentences(blocks):
        words = words_of(sentence)
        if len(words) > SENTENCE_WORDS_MAX:
            found.append((number, f"a sentence of {len(words)} words, {beginning_of(words)}",
                          str(SENTENCE_WORDS_MAX)))
    return found


def headless_sentences(blocks):
    """(line, what, allowed) of sentences that do not begin with their subject."""
    return [(number, beginning_of(words_of(sentence)), "a sentence that begins with its subject")
            for number, sentence in all_sentences(blocks) if is_headless(sentence)]


def hard_cells(text):
    """(line, what, allowed) of table cells without a subject, or with too many words."""
    found = []
    for number, cell in table_cells(text):
        words = words_of(cell)
        if len(words) > CELL_WORDS_MAX:
            found.append((number, f"a cell of {len(words)} words, {beginning_of(words)}",
                          str(CELL_WORDS_MAX)))
    return found + headless_sentences((number, [cell]) for number, cell in table_cells(text))


def private_words(line, text):
    """(line, what, allowed) of the private words in a sentence, code in backticks apart."""
    plain = _CODE_SPAN.sub("`", text)
    for public, pattern in _WORDS:
        match = pattern.search(plain)
        if match:
            yield line, f"'{match.group()}'", f"the field's word ({public}); see STYLE.md"


def private_words_of_blocks(blocks):
    return [finding for line, sentence in all_sentences(blocks)
            for finding in private_words(line, sentence)]


def private_words_of_document(text):
    cells = [finding for line, cell in table_cells(text) for finding in private_words(line, cell)]
    return private_words_of_blocks([(1, markdown_lines(text))]) + cells


def private_words_of_messages(literals):
    """(line, text) of string literals; those with a space may be messages."""
    return [finding for line, text in literals if " " in text.strip()
            for finding in private_words(line, text)]
