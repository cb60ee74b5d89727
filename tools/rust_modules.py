"""Circles of modules in a folder of Rust: a part of check_layers. rustc takes them."""

import os
import re

# `crate::name`, or names from `crate::{name, other::{A, B}}`. A module's tests say `super::*`.
_PATH = re.compile(r"\b(?:crate|^use super)::(?:([\w*]+)|\{([^{}]*)\})", re.MULTILINE)
_INNER_NAMES = re.compile(r"(?<!crate)(?<!^use super)::\{[^{}]*\}", re.MULTILINE)
# lib.rs is the crate's root, where names of modules are paths.
_ROOT = "lib"
_ROOT_PATH = re.compile(r"\b(\w+)::")


def _uses(name, text, modules):
    """Modules that the text of one uses, each with the line that first names it."""
    text = re.sub(r"//[^\n]*", "", text)
    while _INNER_NAMES.search(text):
        text = _INNER_NAMES.sub(lambda match: "\n" * match.group().count("\n"), text)
    found = []
    for match in _PATH.finditer(text):
        words = [word.strip().split("::")[0] for word in (match[1] or match[2]).split(",")]
        found += [(match.start(), word if word in modules else _ROOT) for word in words if word]
    if name == _ROOT:
        found += [(match.start(), match[1]) for match in _ROOT_PATH.finditer(text)
                  if match[1] in modules]
    uses = {}
    for at, used in found:
        if used != name:
            uses.setdefault(used, text.count("\n", 0, at) + 1)
    return uses


def _circle_through(module, uses):
    """The shortest way from a module, by what each uses, back to it; None without one."""
    ways = [[module]]
    seen = set()
    for way in ways:
        for used in sorted(uses[way[-1]]):
            if used == module:
                return way + [module]
            if used not in seen:
                seen.add(used)
                ways.append(way + [used])
    return None


def circles(folder):
    """(name of a file, line, modules) of files that use each other, be it by way of others."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    modules = sorted(name[:-len(".rs")] for name in names if name.endswith(".rs"))
    uses = {}
    for module in modules:
        with open(os.path.join(folder, module + ".rs"), encoding="utf-8") as file:
            uses[module] = _uses(module, file.read(), modules)
    found = []
    for module in modules:
        circle = _circle_through(module, uses)
        if circle and module == min(circle):
            found.append((module + ".rs", uses[module][circle[1]], circle))
    return found
