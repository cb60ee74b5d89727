#!/usr/bin/env python3
"""Bash, zsh and fish complete commands, options, their values and files, as the shells do it.

    tests/tools/completions_test.py MOEFLUX
"""

import os
import re
import subprocess
import sys
import tempfile

PATIENCE = 60  # seconds; a shell that takes longer waits for something
FILES = ["a model.gguf", "notes.txt"]

# As bash calls the function of a command; it cuts words at =.
BASH = r"""
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_moeflux
printf '%s\n' "${COMPREPLY[@]}"
"""
# A terminal with a shell in it that completes one line and ends.
ZSH = r"""
zmodload zsh/zpty
zpty child zsh -f -i
zpty -w child "source $1"
zpty -r child seen '*READY*'
zpty -w -n child "$2"$'\t'
while zpty -r child seen; do :; done
"""
ZSH_CHILD = r"""
PS1=
fpath=(FOLDER $fpath)
autoload -Uz compinit
compinit -u -d FOLDER/dump
bindkey '^I' complete-word
zstyle ':completion:*' insert-tab false
unsetopt auto_list  # a long list would ask first
compadd() {
  local -a found
  builtin compadd -O found "$@"
  print -rl -- $found >>FOLDER/found
  builtin compadd "$@"
}
leave() { exit }
comppostfuncs=(leave)
print REA''DY
"""


class Shell:
    """Completes in a folder that has FILES."""

    def __init__(self, program, name, folder):
        self.name = name
        self.folder = folder
        self.files = os.path.join(folder, "files")
        os.mkdir(self.files)
        for file in FILES:
            with open(os.path.join(self.files, file), "w", encoding="utf-8"):
                pass
        self.script = os.path.join(folder, "_moeflux")  # as zsh's autoload wants it
        text = subprocess.run([program, "completion", name], check=True, capture_output=True,
                              text=True).stdout
        self.write("_moeflux", text)
        self.write("driver", ZSH if name == "zsh" else BASH)
        self.write("child", ZSH_CHILD.replace("FOLDER", folder))

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, *command):
        done = subprocess.run(command, cwd=self.files, capture_output=True, text=True,
                              errors="replace", timeout=PATIENCE, check=False,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, "TERM": "dumb", "HOME": self.folder})
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert self.name == "zsh" or done.stderr == "", (command, done.stderr)
        return done.stdout

    def check_syntax(self):
        self.run(self.name, "--no-execute" if self.name == "fish" else "-n", self.script)

    def complete(self, line):
        """All completions of the last word, sorted."""
        driver = os.path.join(self.folder, "driver")
        if self.name == "bash":
            words = [part for word in line.split(" ") for part in re.split("(=)", word)]
            words = [word for i, word in enumerate(words) if word or i == len(words) - 1]
            out = self.run("bash", "--norc", driver, self.script, *words)
        elif self.name == "fish":
            out = self.run("fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"',
                           self.script, line)
            out = re.sub(r"\t.*", "", out)
        else:
            found = os.path.join(self.folder, "found")
            with open(found, "w", encoding="utf-8"):
                pass
            self.run("zsh", "-f", driver, os.path.join(self.folder, "child"), line)
            with open(found, encoding="utf-8") as file:
                out = file.read()
        # Fish shows --plan=auto for auto, zsh a word once for each group that has it; both quote.
        last = line.rpartition(" ")[2]
        begin = last.partition("=")[0] + "=" if "=" in last else ""
        words = out.replace("\\ ", " ").splitlines()
        return sorted({word.removeprefix(begin) for word in words if word})


def long_options(program, command):
    """The long options that --help-all lists, without the keys of --tune."""
    text = subprocess.run([program, command, "--help-all"], check=True, capture_output=True,
                          text=True).stdout
    options = text.partition("\nKeys of --tune")[0]
    headings = re.findall(r"^  (-.*?)(?:   |$)", options, re.MULTILINE)
    return sorted({name for heading in headings for name in re.findall(r"--[a-z][\w-]*", heading)})


def check_shell(program, name, commands):
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(program, name, folder)
        shell.check_syntax()

        def check(line, expected):
            found = shell.complete(line)
            assert found == sorted(expected), f"{name}: '{line}' gives {found}, not {expected}"

        check("moeflux ru", ["run"])
        check("moeflux ", commands + ["help", "version"])
        check("moeflux run --temp", ["--temp", "--temperature"])
        check("moeflux run --tem 1 --json-schema-f", ["--json-schema-file"])
        check("moeflux run -m ", FILES)
        check("moeflux run --model n", ["notes.txt"])
        check("moeflux serve --chat-template-file a", ["a model.gguf"])
        check("moeflux replay n", ["notes.txt"])
        check("moeflux run --plan ", ["auto", "helper", "near", "resident", "shared"])
        check("moeflux run --plan=h", ["helper"])
        check("moeflux run -ctk f", ["f16", "f32"])
        check("moeflux run --threads ", [])
        check("moeflux config se", ["serve"])
        check("moeflux help to", ["tokenize"])
        check("moeflux completion ", ["bash", "fish", "zsh"])
        check("moeflux devices n", [])
        for command in commands:
            check(f"moeflux {command} --", long_options(program, command))
    print(f"{name}: as expected")


def main():
    program = sys.argv[1]
    pages = subprocess.run([program, "man", "--list"], check=True, capture_output=True,
                           text=True).stdout.split()
    commands = [page.removeprefix("moeflux-") for page in pages if page != "moeflux"]
    assert len(commands) > 10, pages
    for name in ("bash", "zsh", "fish"):
        check_shell(program, name, commands)


if __name__ == "__main__":
    main()
