#!/usr/bin/env python3
"""README's picture of speeds, drawn from benchmarks/results/raw and from nothing else.

    benchmarks/plot.py            writes docs/speed.svg
    benchmarks/plot.py --check    fails where it is not what the raw files give

A bar is the median of a program's samples in one run, its line their least and greatest. Colours
follow the reader's light or dark theme.
"""

import os
import statistics
import sys
from collections import namedtuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import performance_table as figures  # noqa: E402

ROOT = figures.ROOT
PICTURE = "docs/speed.svg"

# The end of the raw file's name, what the bars are called, and the tests of the two panels.
Group = namedtuple("Group", "name label prompt decode")
GROUPS = [
    Group("cpu-2-cores", "2 EPYC cores, 8 layers", "pp512", "tg64"),
    Group("cpu-16-cores", "16 Xeon cores, 40 layers", "pp512", "tg32"),
]
PANELS = [("Reading a prompt, tokens/s", "prompt"), ("Writing text, tokens/s", "decode")]
OURS = "moeflux"

WIDTH, LEFT, RIGHT = 760, 180, 60
BAR, GAP, GROUP_GAP, PANEL_GAP, TOP = 18, 4, 16, 34, 34

STYLE = """<style>
text { font: 13px sans-serif; fill: #1f2328; }
.title { font-weight: bold; }
.ours { fill: #0969da; }
.peer { fill: #afb8c1; }
.range { stroke: #1f2328; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .ours { fill: #4493f8; }
  .peer { fill: #59636e; }
  .range { stroke: #e6edf3; }
}
</style>
"""


def samples(record, test):
    """(program, its samples) of each program that has some, ours first."""
    names = [program["name"] for program in record["programs"]]
    found = [(name, sum(figures.samples_of(record, name, test), [])) for name in names]
    return [(name, values) for name, values in found if values]


def digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def panel(title, groups, top):
    """The lines of a panel whose bars share a scale, and where it ends."""
    lines = [f'<text class="title" x="{LEFT}" y="{top}">{title}</text>']
    scale = (WIDTH - LEFT - RIGHT) / max(max(values) for _, bars in groups for _, values in bars)
    y = top + 10
    for label, bars in groups:
        middle = y + (len(bars) * (BAR + GAP) - GAP) / 2 + 5
        lines.append(f'<text x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{label}</text>')
        for name, values in bars:
            low, high = (f"{LEFT + scale * end:.1f}" for end in (min(values), max(values)))
            median = statistics.median(values)
            kind = "ours" if name == OURS else "peer"
            centre = f"{y + BAR / 2:g}"
            lines += [
                f'<rect class="{kind}" x="{LEFT}" y="{y:g}" width="{scale * median:.1f}" '
                f'height="{BAR}"/>',
                f'<line class="range" x1="{low}" x2="{high}" y1="{centre}" y2="{centre}"/>',
                f'<text x="{float(high) + 6:.1f}" y="{y + BAR / 2 + 5:g}">{digits(median)}</text>']
            y += BAR + GAP
        y += GROUP_GAP
    return lines, y


def legend(names):
    lines, x = [], LEFT
    for name in names:
        kind = "ours" if name == OURS else "peer"
        lines.append(f'<rect class="{kind}" x="{x}" y="8" width="12" height="12"/>')
        lines.append(f'<text x="{x + 18}" y="19">{name}</text>')
        x += 40 + 8 * len(name)
    return lines


def picture(root=ROOT):
    folder = os.path.join(root, figures.RAW)
    paths = [(group, figures.newest(group.name, folder)) for group in GROUPS]
    records = [(group, figures.read(path)) for group, path in paths if path]
    if not records:
        sys.exit(f"plot.py: no file of {figures.RAW} has a name that GROUPS lists")
    names, lines, top = [], [], TOP + 18
    for title, field in PANELS:
        groups = [(group.label, samples(record, getattr(group, field)))
                  for group, record in records]
        names += [name for _, bars in groups for name, _ in bars]
        drawn, bottom = panel(title, groups, top)
        lines += drawn
        top = bottom + PANEL_GAP - GROUP_GAP
    height = top - PANEL_GAP + 8
    names = list(dict.fromkeys(names))
    alternative = " and ".join(names)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
            f'width="{WIDTH}" height="{height:g}" role="img" '
            f'aria-label="Tokens per second of {alternative}">\n')
    return head + STYLE + "\n".join(legend(names) + lines) + "\n</svg>\n"


def main(arguments, root=ROOT):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    path = os.path.join(root, PICTURE)
    drawn = picture(root)
    if arguments:
        with open(path, encoding="utf-8") as file:
            same = file.read() == drawn
        if not same:
            print(f"{PICTURE}: not what {figures.RAW} gives; run benchmarks/plot.py",
                  file=sys.stderr)
        return 0 if same else 1
    with open(path, "w", encoding="utf-8") as file:
        file.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
