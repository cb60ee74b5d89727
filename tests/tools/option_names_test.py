#!/usr/bin/env python3
"""Every option that a message or a document names is one that the program has.

    tests/tools/option_names_test.py MOEFLUX

Messages are the string literals of src/ outside tests. Documents' lines that begin with a command
of the program are held to that command's own options.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
NAMES_ALONE = re.compile(r"-[\w-]+(?:,-[\w-]+)*")
OTHER_PROGRAMS = {"--local-dir"}  # of hf download
LITERAL = r'"(?:[^"\\\n]|\\.)*"'
LITERALS = re.compile(rf"{LITERAL}(?:\s*{LITERAL})*")  # the compiler joins those that follow


def options_of(program):
    """The options of each command; those of the program itself under ''."""
    def output_of(*arguments):
        return subprocess.run([program, *arguments], check=True, capture_output=True,
                              text=True).stdout

    def options(command):
        text = output_of(command, "--help-all")
        keys = re.findall(r"^  ([a-z-]+)=", text.partition("\nKeys of --tune")[2], re.MULTILINE)
        return set(OPTION.findall(text)) | {f"--{key}" for key in keys}

    pages = output_of("man", "--list").split()
    commands = [page.removeprefix("moeflux-") for page in pages if page != "moeflux"]
    assert len(commands) > 10, pages
    return {"": {"--version", "--help"}} | {name: options(name) for name in commands}


def literals(path):
    """String literals of a C++ file."""
    text = re.sub(r"^\s*(?://|#).*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"\s//\s.*$", "", text, flags=re.MULTILINE)
    return [re.sub(r'"\s*"', "", found).strip('"') for found in LITERALS.findall(text)]


def unknown_in_messages(known):
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".cc", ".h") or "_test" in path.name:
            continue
        for literal in literals(path):
            for option in OPTION.findall(literal):
                # A literal of names alone is an entry of a table, of other programs' too.
                if option not in known and not NAMES_ALONE.fullmatch(literal):
                    yield f"{path.relative_to(ROOT)}: {option} in \"{literal}\""


def unknown_in_documents(options):
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for line in path.read_text(encoding="utf-8").splitlines():
            found = re.match(r"\s*(?:\S*/)?moeflux ([a-z]+) ", line)
            if not found or found[1] not in options:
                continue
            for option in OPTION.findall(line.split(" # ")[0].split(" | ")[0]):
                if option not in options[found[1]]:
                    yield f"{path.relative_to(ROOT)}: {found[1]} has no {option}: {line.strip()}"


def main():
    options = options_of(sys.argv[1])
    wrong = list(unknown_in_messages(OTHER_PROGRAMS.union(*options.values())))
    wrong += unknown_in_documents(options)
    for line in wrong:
        print(line)
    print(f"{len(set().union(*options.values()))} options of {len(options) - 1} commands")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
