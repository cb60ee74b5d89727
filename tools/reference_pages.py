"""Makes the library's reference as Markdown from headers and docstrings, for make_site.py."""

import ast
import os
import re

HEADERS = [("C", "moeflux.h"), ("C++", "moeflux.hpp"), ("Conversations in C++", "chat.hpp")]
_NAME = re.compile(
    r"\b(?:struct|class|enum class|enum|using)\s+(\w+)|\(\*(\w+)\)|#define\s+(MF_\w+)|"
    r"(?!int\b|void\b)\b(\w+)\s*\(")
_TYPE = re.compile(r"^(?:typedef )?(?:struct|enum|class)\b[^;]*\{")
_INNER = re.compile(r"^namespace detail \{.*?^\}  // namespace detail$", re.MULTILINE | re.DOTALL)
_PRIVATE = re.compile(r"\n*^ private:.*?(?=^};)", re.MULTILINE | re.DOTALL)
_PLAIN = ("extern \"C\"", "#if", "#el", "#end", "#include", "#pragma", "namespace",
          "inline namespace", "}")


def pages(root):
    """(title, path, text) of each page."""
    for title, name in HEADERS:
        with open(os.path.join(root, "include", "moeflux", name), encoding="utf-8") as file:
            yield title, f"reference/{name}.md", header_page(title, name, file.read())
    yield "Python", "reference/python.md", python_page(os.path.join(root, "python", "moeflux"))


def header_page(title, name, text):
    lines = _INNER.sub("", text).split("\n")
    page = f"# {title}: moeflux/{name}\n\n"
    at = 0
    while lines[at].startswith("//"):
        page += lines[at].removeprefix("//").removeprefix(" ") + "\n"
        at += 1
    page += "\n"
    while at < len(lines):
        said, code, at = item(lines, at)
        if not code or (code[0].startswith(("#define", "inline ")) and not said):
            continue  # how the header is compiled, and bodies of methods
        names = _NAME.search("\n".join(code))
        if names and (said or _TYPE.match(code[0])):
            name = next(one for one in names.groups() if one)
            page += f"## {name}\n\n" + "\n".join(said) + "\n"
        page += "\n```c\n" + _PRIVATE.sub("", "\n".join(code)) + "\n```\n\n"
    return page


def item(lines, at):
    """The comment and the lines of the next declaration of a header, and where it ends."""
    said, code, depth = [], [], 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not code and line.startswith("///"):
            said.append(line.removeprefix("///").strip())
            continue
        if not code and (not line.strip() or line.startswith(_PLAIN) or line.startswith("//")):
            if not line.strip():
                said = []
            continue
        code.append(line)
        plain = line.partition("//")[0].rstrip()
        depth += plain.count("{") + plain.count("(") - plain.count("}") - plain.count(")")
        is_define = code[0].startswith("#define") and not line.endswith("\\")
        if depth == 0 and (is_define or plain.endswith((";", "}"))):
            break
    return said, code, at


def python_page(folder):
    with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
        package = ast.parse(file.read())
    public = {name.value for node in package.body if isinstance(node, ast.Assign)
              and getattr(node.targets[0], "id", "") == "__all__" for name in node.value.elts}
    page = "# Python: moeflux\n\n" + ast.get_docstring(package) + "\n\n"
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".py") or name == "__init__.py":
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        is_module = not name.startswith("_")
        if is_module:
            page += f"## moeflux.{name[:-3]}\n\n{ast.get_docstring(tree) or ''}\n\n"
        for node in tree.body:
            if getattr(node, "name", "_") in public or (is_module and is_public(node)):
                page += described(node)
    return page


def is_public(node):
    return isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (
        not node.name.startswith("_") or node.name == "__init__")


def described(node, owner=""):
    """A class with its methods, or a function."""
    said = (ast.get_docstring(node) or "") + "\n\n"
    if isinstance(node, ast.ClassDef):
        text = f"## {node.name}\n\n{said}"
        for inner in node.body:
            if is_public(inner) and ast.get_docstring(inner):
                text += described(inner, node.name + ".")
        return text
    own = owner[:-1] if node.name == "__init__" else owner + node.name
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"### {own}\n\n```python\n{own}({ast.unparse(node.args)}){returns}\n```\n\n{said}"
