#!/usr/bin/env python3
"""The site: every document, the help of every command and the reference of the library, as HTML.

    tools/make_site.py build/release/bin/moeflux [build/site]

Pages are staged in FOLDER/pages at the places that they have in the tree, so that links hold as
they are, and mkdocs writes FOLDER/html from them, strictly: a link or heading that is not there
fails. mkdocs comes from build/site-wheels, where tools/install_python.sh puts it; without it the
exit status is 77. No network is used, and no page asks for anything from elsewhere.
"""

import os
import re
import shutil
import subprocess
import sys

TOOLS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TOOLS)
WHEELS = os.path.join(ROOT, "build", "site-wheels")
VENV = os.path.join(ROOT, "build", "site-venv")
SKIPPED = 77

sys.path.insert(0, TOOLS)
import check_docs  # noqa: E402
import reference_pages  # noqa: E402

# Documents that other tools look for in the tree's first folder.
FIRST = ["README.md", "CHANGELOG.md"]
INTERNALS = ["ARCHITECTURE.md", "HACKING.md", "STYLE.md", "CONTRIBUTING.md", "SECURITY.md"]
# Groups of the navigation: (title, pages). Other documents are internals.
GROUPS = [
    ("Install", ["docs/install.md", "docs/platforms.md"]),
    ("Choose a model", ["docs/models.md"]),
    ("Run", ["docs/running.md", "docs/formats.md"]),
    ("Server", ["docs/server.md", "docs/replicas.md", "docs/structured-output.md",
                "docs/fields.md"]),
    ("Library", ["docs/library.md"]),
    ("Performance", ["docs/performance.md"]),
    ("Trouble", ["docs/troubleshooting.md", "docs/limits.md"]),
]
# Commands that have no help of their own: what they print is the page.
WITHOUT_OPTIONS = ("help", "version")
_ITEM = re.compile(r"(?:[-*]|\d+\.)\s")
_COMMAND = re.compile(r"^  (\w[\w-]*)  +\S")


def ensure_mkdocs():
    """Returns where mkdocs can be imported; else goes on in an environment that has it."""
    try:
        import mkdocs  # noqa: F401
        return
    except ImportError:
        pass
    python = os.path.join(VENV, "bin", "python")
    if not os.path.isdir(WHEELS) or sys.executable == python:
        print(f"skipped: no mkdocs in {WHEELS} (tools/install_python.sh)", file=sys.stderr)
        sys.exit(SKIPPED)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--no-index", "--find-links", WHEELS, "mkdocs"], check=True)
    os.execv(python, [python] + sys.argv)


def for_markdown(text):
    """The text for Python-Markdown, whose lists begin behind an empty line."""
    lines, in_list, in_fence = [], False, False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        if not in_fence and _ITEM.match(line) and not in_list and lines and lines[-1].strip():
            lines.append("")
        if not in_fence:
            in_list = bool(_ITEM.match(line)) or (in_list and (line[:1] == " " or line == ""))
        in_fence ^= is_fence
        lines.append(line)
    return "\n".join(lines)


def slug(value, _separator):
    """The anchor of a heading, as check_docs.py and GitHub have it."""
    return re.sub(r"[^\w\- ]", "", value.lower()).strip().replace(" ", "-")


class Stage:
    """The folder of pages."""

    def __init__(self, folder):
        self.folder = folder
        self.done = set()
        shutil.rmtree(folder, ignore_errors=True)

    def write(self, path, text):
        place = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
        self.done.add(path)

    def add(self, path):
        """A file of the tree, and those that it links to."""
        if path in self.done:
            return
        self.done.add(path)
        source = os.path.join(ROOT, path)
        if not os.path.exists(source):
            return  # mkdocs names the link
        if not path.endswith(".md"):
            place = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copyfile(source, place)
            return
        with open(source, encoding="utf-8") as file:
            text = file.read()
        for target in self.links(text):
            linked = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if os.path.isdir(os.path.join(ROOT, linked)):
                self.add_folder(linked)
                text = text.replace(f"]({target})", f"]({target.rstrip('/')}/README.md)")
            elif linked != path:
                self.add(linked)
        self.write(path, for_markdown(text))

    def add_folder(self, path):
        page = f"{path}/README.md"
        if os.path.exists(os.path.join(ROOT, page)):
            return self.add(page)
        if page in self.done:
            return None
        self.done.add(page)
        text = f"# {path}\n\n"
        for folder, folders, names in os.walk(os.path.join(ROOT, path)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                own = os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, path))
                self.add(f"{path}/{own}")
                text += f"- [{own}]({own})\n"
        return self.write(page, text)

    @staticmethod
    def links(text):
        for _, line in check_docs.prose_lines(text):
            for target in check_docs._LINK.findall(check_docs._CODE.sub("", line)):
                target = target.partition("#")[0]
                if target and not re.match(r"\w+:", target):
                    yield target


def add_commands(stage, program):
    """A page of each command, from the options themselves."""
    listed = subprocess.run([program, "help"], check=True, capture_output=True, text=True).stdout
    names = [match.group(1) for match in map(_COMMAND.match, listed.split("\n")) if match]
    for name in names:
        about = [name] if name in WITHOUT_OPTIONS else [name, "--help-all"]
        text = subprocess.run([program] + about, check=True, capture_output=True, text=True).stdout
        stage.write(f"commands/{name}.md", f"# moeflux {name}\n\n```text\n{text}```\n")
    return [{name: f"commands/{name}.md"} for name in names]


def navigation(stage, commands, reference):
    groups = [{"Quick start": "README.md"}]
    listed = set(FIRST)
    for title, pages in GROUPS:
        listed.update(pages)
        groups.append({title: pages + (reference if title == "Library" else [])})
        if title == "Run":
            groups.append({"Commands": commands})
    internals = [page for page in sorted(stage.done)
                 if page.startswith("docs/") and page.endswith(".md") and page not in listed]
    groups += [{"Internals": INTERNALS + internals}, {"Changes": "CHANGELOG.md"}]
    return groups


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: tools/make_site.py MOEFLUX [FOLDER]")
    ensure_mkdocs()
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort
    program = os.path.abspath(sys.argv[1])
    folder = os.path.abspath(sys.argv[2] if len(sys.argv) == 3 else "build/site")
    stage = Stage(os.path.join(folder, "pages"))
    for page in FIRST + INTERNALS:
        stage.add(page)
    for name in sorted(os.listdir(os.path.join(ROOT, "docs"))):
        if os.path.isdir(os.path.join(ROOT, "docs", name)):
            stage.add_folder(f"docs/{name}")
        elif name.endswith(".md"):
            stage.add(f"docs/{name}")
    commands = add_commands(stage, program)
    reference = []
    for title, path, text in reference_pages.pages(ROOT):
        stage.write(path, text)
        reference.append({title: path})
    config_file = os.path.join(folder, "mkdocs.yml")
    with open(config_file, "w", encoding="utf-8") as file:
        file.write("site_name: moeflux\n")
    config = load_config(
        config_file, docs_dir=stage.folder, site_dir=os.path.join(folder, "html"), strict=True,
        use_directory_urls=False, nav=navigation(stage, commands, reference), plugins=["search"],
        theme={"name": "readthedocs", "highlightjs": False, "navigation_depth": 2},
        markdown_extensions=["tables", "fenced_code", {"toc": {"slugify": slug}}],
        validation={"links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn",
                              "unrecognized_links": "warn"}, "nav": {"not_found": "warn"}})
    try:
        build(config)
    except Abort as error:
        sys.exit(f"make_site.py: {error}")
    print(os.path.join(folder, "html", "index.html"))


if __name__ == "__main__":
    main()
