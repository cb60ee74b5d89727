"""The part of a sanitizer that a run takes: all parts in a row, and the number in .ci/rotation.

A submission raises that number by one, so that every part is met in turn. Its last commit does:
where nothing tells what the submission began from, a run compares with the commit before.
"""

import os
import subprocess
from dataclasses import dataclass

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
FILE = ".ci/rotation"
# Branches that submissions go to, as clones name them.
TARGETS = ("refs/remotes/origin/HEAD", "refs/remotes/origin/main")

# In how many parts ASan takes the cases of each group of programs, and how many cases of a part
# have to pass, about half of those it has. Two cores build the whole tree for a sanitizer in half
# an hour. So a part has a third of it: the kernels of the CPU, those of the emulated GPU, or the
# rest (MOEFLUX_SANITIZED); other objects are the release build's. Parsers and programs as users
# call them are met with the rest alone.
ASAN_PARTS = {
    ("golden", "cpu"): (6, 400), ("golden", "gpu"): (24, 100), ("golden", "rest"): (8, 300),
    ("kernels", "cpu"): (2, 60), ("kernels", "gpu"): (8, 15), ("kernels", "rest"): (2, 60),
    ("engine", "cpu"): (1, 700), ("engine", "gpu"): (2, 350), ("engine", "rest"): (3, 250),
    ("service", "cpu"): (1, 300), ("service", "gpu"): (1, 300), ("service", "rest"): (2, 150),
    ("program", "rest"): (2, 60), ("fuzz", "rest"): (1, 12)}
# The same of the programs that start threads, under TSan.
TSAN_PARTS = (4, 36)


@dataclass(frozen=True)
class Part:
    """A part of the cases of a sanitizer: of one group of programs, or of all of its programs."""

    sanitizer: str
    group: str
    sanitized: str  # of the build, see ASAN_PARTS; all of it where empty
    part: int  # from 0 on
    parts: int
    least: int  # cases that have to pass

    def __str__(self):
        of = f"{self.group} with {self.sanitized}" if self.group else "its programs"
        return f"part {self.part + 1} of {self.parts} of {of}"


def in_a_row(groups):
    """The parts of all groups, each group's spread evenly, so that neighbours are of two."""
    row = []
    left = [list(parts) for parts in groups]
    while any(left):
        total = sum(len(rest) for rest in left)
        # A group of half of what is left comes at once, else the one with the most of its own left.
        ranks = [(2 * len(rest) >= total, len(rest) / len(group), at)
                 for at, (rest, group) in enumerate(zip(left, groups))
                 if rest and not (row and row[-1] in group)]
        row.append(left[max(ranks)[2]].pop(0))
    return row


def all_parts():
    sizes = [("asan", *group, *size) for group, size in ASAN_PARTS.items()]
    sizes.append(("tsan", "", "", *TSAN_PARTS))
    return in_a_row([[Part(*group, part, parts, least) for part in range(parts)]
                     for *group, parts, least in sizes])


ALL_PARTS = all_parts()


def part_of(number):
    """The part that a run of this number sanitizes."""
    return ALL_PARTS[number % len(ALL_PARTS)]


def git(root, *arguments):
    """The output of git, or None where it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def read_number(root=ROOT):
    path = os.path.join(root, FILE)
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    if not text.isdecimal():
        raise ValueError(f"{FILE}: {text!r}, expected one number")
    return int(text)


def begin_of_submission(root):
    """The commit that a submission was made from, None where the history does not say.

    That is where HEAD left its target branch, or, once it has arrived there, the commit before.
    """
    head = git(root, "rev-parse", "HEAD")
    for target in TARGETS:
        base = git(root, "merge-base", "HEAD", target)
        if base is not None and base != head:
            return base
    return git(root, "rev-parse", "--verify", "HEAD^1")


def compare(number, root=ROOT):
    """The number in .ci/rotation beside that of the branch before: text for the report."""
    base = begin_of_submission(root)
    if base is None:
        return f"number {number}; no commit before this one to compare with"
    before = git(root, "show", f"{base}:{FILE}")
    if before is None or not before.isdecimal():
        return f"number {number}, the first"
    if number <= int(before):
        return f"number {number} REPEATS what has run: {base[:7]} had {before}, raise {FILE} by one"
    if number > int(before) + 1:
        return f"number {number} passes parts over: {base[:7]} had {before}"
    return f"number {number}"


def chosen():
    """(number, text for the report) of a run."""
    forced = os.environ.get("MOEFLUX_TEST_CI_PART")
    if forced:
        return int(forced), f"number {forced} of MOEFLUX_TEST_CI_PART"
    number = read_number()
    return number, compare(number)
