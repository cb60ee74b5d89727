"""Areas whose inputs are those of a run that passed: .ci/verified, a line for each.

A line is an area, the hash of its inputs, the commit that they were, seconds and passed cases.
.ci/areas.py leaves an area out whose hash is that of its line, but not in every eighth run, and
`.ci/areas.py --record` writes lines after a run that passed. Inputs are the files that the area
compiles, runs or reads, all rules of the build, and versions of compilers, wheels and packages.
CUDA's are found over includes, as a fresh clone has no depfiles yet; recording compares the two. A
sanitizer's are all files but documents.
"""

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass

import parts

FILE = ".ci/verified"
EVERY = 8  # runs leave nothing out, by their numbers

# Rules of the build and scripts of areas; the wheels of nvcc have their versions in tools/.
RULES = re.compile(r"(^|/)CMakeLists\.txt$|\.(cmake|in|map)$|^Makefile$|^CMakePresets\.json$|"
                   r"^tools/(install_\w+|fetch_crates)\.sh$|^\.ci/\w+\.py$|^\.ci/run$|"
                   r"^rust/|^pyproject\.toml$")
# Nothing of these is compiled or run by a sanitizer.
DOCUMENTS = re.compile(r"^(docs|benchmarks|\.github|\.ci/(verified|rotation|cases)$)|^[^/]*\.md$|"
                       r"^(LICENSE|\.\w+)")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
CODE = (".cc", ".h", ".cu", ".hpp", ".in", ".mm")
VERSIONS = (["c++", "--version"], ["cmake", "--version"], ["ninja", "--version"],
            ["cargo", "--version"], ["python3", "--version"])


@dataclass(frozen=True)
class Area:
    """Where an area's inputs begin, and what of a build folder it compiles."""

    name: str
    roots: tuple  # folders and files; none: everything
    build: str
    objects: str  # a pattern


CUDA = Area("cuda", ("src/backend/cuda/", "src/devices/", "python/", "tests/python/cuda_test.py"),
            "build/release", r"^src/backend/cuda/")


def sanitizer(part):
    """The area of a sanitizer's part."""
    of = f"{part.group}-{part.sanitized}" if part.group else "threads"
    name = f"{part.sanitizer}/{of}/{part.part + 1}-of-{part.parts}"
    return Area(name, (), "build/dev" if part.sanitizer == "asan" else "build/tsan", ".")


def files_of(root):
    """All files that are tracked, or new and not ignored: CMake finds sources by their folder."""
    listed = parts.git(root, "ls-files", "--cached", "--others", "--exclude-standard") or ""
    return sorted(name for name in set(listed.split("\n"))
                  if name and os.path.isfile(os.path.join(root, name)))


def read(root, name):
    with open(os.path.join(root, name), "rb") as file:
        return file.read()


def included(root, name, known):
    """The files that a file may include; a generated one is its template."""
    found = set()
    for include in INCLUDE.findall(read(root, name).decode("utf-8", "replace")):
        for path in (os.path.join(os.path.dirname(name), include), f"src/{include}",
                     f"include/{include}", include):
            for candidate in (os.path.normpath(path), os.path.normpath(path) + ".in"):
                if candidate in known:
                    found.add(candidate)
    return found


def inputs(area, root=parts.ROOT):
    """Files of an area."""
    files = files_of(root)
    if not area.roots:
        return [name for name in files if not DOCUMENTS.match(name)]
    known = set(files)
    todo = [name for name in files if name.startswith(area.roots)]
    found = set(todo)
    while todo:
        name = todo.pop()
        more = included(root, name, known) - found if name.endswith(CODE) else set()
        todo += more
        found |= more
    return sorted(found | {name for name in files if RULES.search(name)})


def versions(root=parts.ROOT):
    """Versions of compilers and of the packages of tools/install_deps.sh, as they print them."""
    said = []
    for command in VERSIONS:
        try:
            said.append(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True, check=False).stdout)
        except OSError:
            said.append(f"no {command[0]}\n")
    text = read(root, "tools/install_deps.sh").decode()
    packages = " ".join(re.findall(r'^(?:run|test)="([^"]*)"', text, re.MULTILINE)).split()
    try:
        said.append(subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *sorted(set(packages))],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout)
    except OSError:
        said.append("no dpkg\n")
    return "".join(said)


def digest(area, root=parts.ROOT):
    """The hash of an area's inputs: names and bytes of files, names beside them, versions."""
    files = inputs(area, root)
    whole = hashlib.sha256(versions(root).encode())
    # A file that a rule would find by its folder counts where it is new or gone.
    folders = {os.path.dirname(name) for name in files}
    for name in files_of(root):
        if os.path.dirname(name) in folders and name.endswith(CODE):
            whole.update(f"{name}\n".encode())
    for name in files:
        whole.update(f"{name} {hashlib.sha256(read(root, name)).hexdigest()}\n".encode())
    return whole.hexdigest()[:32]


def unread(area, root=parts.ROOT):
    """Files of ours that an area's objects were compiled from and that are none of its inputs."""
    done = subprocess.run(["ninja", "-C", area.build, "-t", "deps"], cwd=root,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    known = set(inputs(area, root))
    ours = set(files_of(root))
    missing = set()
    counts = False
    for line in done.stdout.split("\n"):
        if line.startswith(" "):
            path = os.path.normpath(os.path.join(root, area.build, line.strip()))
            name = os.path.relpath(path, root)
            if counts and name in ours and name not in known:
                missing.add(name)
        elif line:
            target = os.path.normpath(os.path.join(root, area.build, line.split(": #deps")[0]))
            counts = bool(re.search(area.objects,
                                    os.path.relpath(target, os.path.join(root, area.build))))
    return sorted(missing)


def read_lines(root=parts.ROOT):
    """{area: [hash, commit, seconds, cases]}; none without the file."""
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="ascii") as file:
        return {line.split()[0]: line.split()[1:] for line in file if len(line.split()) == 5}


def unchanged(area, number, root=parts.ROOT):
    """The report's note of an area that is left out, or None where it has to run."""
    line = read_lines(root).get(area.name)
    if number % EVERY == 0 or line is None or line[0] != digest(area, root):
        return None
    return f"unchanged since {line[1]}: {line[3]} cases in {line[2]} s then"


def record(area, seconds, cases, root=parts.ROOT):
    """Writes the line of an area that passed; the reason where it cannot be."""
    status = parts.git(root, "status", "--porcelain") or ""
    changed = [line.split(maxsplit=1)[1] for line in status.split("\n")
               if line and not re.search(r"\.ci/(verified|rotation|cases)$", line)]
    if changed:
        return f"{changed[0]} is not as committed"
    if missing := unread(area, root):
        return f"{area.name} was compiled from {missing[0]}, which no include led to"
    lines = read_lines(root)
    commit = parts.git(root, "rev-parse", "--short=12", "HEAD")
    lines[area.name] = [digest(area, root), commit, f"{seconds:.0f}", str(cases)]
    with open(os.path.join(root, FILE), "w", encoding="ascii") as file:
        file.writelines(f"{name} {' '.join(line)}\n" for name, line in sorted(lines.items()))
    return None
