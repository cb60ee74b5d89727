#!/usr/bin/env python3
"""The site as `make site` writes it: built strictly, whole, and without anything from elsewhere.

    tests/docs/site_test.py MOEFLUX FOLDER

Exits with 77 where there is no mkdocs.
"""

import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Attributes by which a page makes a browser fetch something.
FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}
# Public names of each language that have to be in its reference.
REFERENCES = {
    "moeflux.h.html": ("mf_model_open", "mf_error", "mf_sequence_free"),
    "moeflux.hpp.html": ("Sequence", "ModelOptions"),
    "chat.hpp.html": ("Chat",),
    "python.html": ("Model.from_pretrained", "Sequence.stream", "BusyError"),
}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links, self.fetched, self.tables = set(), [], [], 0

    def handle_starttag(self, tag, attributes):
        self.tables += tag == "table"
        for name, value in attributes:
            if name in ("id", "name"):
                self.ids.add(value)
            if value and (tag, name) in FETCHED:
                self.fetched.append(value)
            if value and name in ("href", "src"):
                self.links.append(value)


def read_pages(folder):
    pages = {}
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".html"):
                path = os.path.relpath(os.path.join(place, name), folder)
                page = Page()
                with open(os.path.join(place, name), encoding="utf-8") as file:
                    page.feed(file.read())
                pages[path] = page
    return pages


def broken(pages, folder):
    """Lines that name links to nothing."""
    for path, page in sorted(pages.items()):
        for link in page.links:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc or path in ("404.html", "search.html"):
                continue
            target = os.path.normpath(os.path.join(
                os.path.dirname(path), urllib.parse.unquote(address.path))) \
                if address.path else path
            if not os.path.exists(os.path.join(folder, target)):
                yield f"{path}: {link}: no such file"
            elif address.fragment and target in pages and \
                    urllib.parse.unquote(address.fragment) not in pages[target].ids:
                yield f"{path}: {link}: no such heading"


def main():
    program, folder = sys.argv[1:]
    built = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "make_site.py"), program,
                            folder], capture_output=True, text=True)
    if built.returncode != 0:
        print(built.stdout + built.stderr)
        return built.returncode
    site = os.path.join(folder, "html")
    pages = read_pages(site)
    found = list(broken(pages, site))
    for path, page in sorted(pages.items()):
        found += [f"{path}: fetches {link}" for link in page.fetched
                  if urllib.parse.urlsplit(link).netloc]
    listed = subprocess.run([program, "help"], check=True, capture_output=True, text=True).stdout
    for name in re.findall(r"^  (\w[\w-]*)  +\S", listed, re.MULTILINE):
        if f"commands/{name}.html" not in pages:
            found.append(f"no page of moeflux {name}")
    for name, words in REFERENCES.items():
        with open(os.path.join(site, "reference", name), encoding="utf-8") as file:
            text = file.read()
        found += [f"{name} does not have {word}" for word in words if word not in text]
    if pages["docs/models.html"].tables < 4:
        found.append("docs/models.html has not the tables of docs/models.md")
    print("\n".join(found) or f"{len(pages)} pages")
    shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
