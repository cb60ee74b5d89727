"""C++ text with comments and literals blanked out, lines kept, and docstrings of Python: the texts
that check_layers and tidy read."""

import ast
import re

_TOKEN = re.compile(
    r'''
    (?P<line>//(?:[^\n\\]|\\.|\\\n)*)
  | (?P<block>/\*.*?\*/)
  | (?P<raw>\b(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<number>\b\d[\w.']*)
  | (?P<char>'(?:[^'\\\n]|\\.)+')
    ''',
    re.DOTALL | re.VERBOSE,
)
_NOT_NEWLINE = re.compile(r"[^\n]")


def string_literals(text):
    """[line, text] of the string literals of C++ text; neighbours are one, as for a compiler."""
    found = []
    end = None  # of the literal before
    for token in _TOKEN.finditer(text):
        if token.group("string") is None:
            continue
        contents = token.group()[1:-1]
        if end is not None and not text[end:token.start()].strip():
            found[-1][1] += contents
        else:
            found.append([text.count("\n", 0, token.start()) + 1, contents])
        end = token.end()
    return found


def docstrings(text):
    """(line, lines) of the docstrings of Python text, without indent; none of invalid text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [(node.body[0].lineno, ast.get_docstring(node).split("\n"))
            for node in ast.walk(tree) if isinstance(node, kinds) and ast.get_docstring(node)]


def blank(text, keep_strings=False):
    """`text` with comments, and unless asked otherwise string and character literals, as spaces."""

    def replace(match):
        kind = match.lastgroup
        if kind == "number":
            return match.group()
        if keep_strings and kind in ("raw", "string", "char"):
            return match.group()
        if kind in ("line", "block"):
            return _NOT_NEWLINE.sub(" ", match.group())
        # The quotes stay, so that an include directive is still recognisable as one.
        body = match.group()
        return body[0] + _NOT_NEWLINE.sub(" ", body[1:-1]) + body[-1]

    return _TOKEN.sub(replace, text)
