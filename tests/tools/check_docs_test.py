"""Every rule of tools/check_docs.py fires on a small tree that breaks it, and on nothing else."""

import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import check_docs  # noqa: E402

WORDS = " ".join(["word"] * 26)


class CheckDocsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def put(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def found(self, path, text):
        """Findings for a tree with this file, as (path, line, message)."""
        self.put(path, text)
        return check_docs.check(self.folder.name)

    def assert_fires(self, path, text, line, message):
        found = self.found(path, text)
        self.assertEqual([(path, line)], [f[:2] for f in found], found)
        self.assertIn(message, found[0][2])

    def test_readme_has_as_many_words_as_wc_counts(self):
        self.assertEqual([], self.found("README.md", "```sh\n" + "word " * 698 + "\n```\n"))
        self.assert_fires("README.md", "```sh\n" + "word " * 699 + "\n```\n", 1,
                          "701 words, allowed 700")

    def test_cells_of_readme_have_twelve_words_and_those_of_docs_25(self):
        self.assert_fires("README.md", "| a |\n|---|\n| one " + "word " * 12 + "|\n", 3,
                          "a cell of 13 words")
        self.put("README.md", "")
        self.assertEqual([], self.found("docs/a.md", "| one | " + WORDS[5:] + " |\n"))
        self.assert_fires("docs/a.md", f"| one | {WORDS} |\n", 1, "a cell of 26 words")

    def test_a_cell_may_hold_a_bar(self):
        self.assertEqual([["a \\| b", "c"]], [check_docs.cells("| a \\| b | c |")])

    def test_readme_leaves_missed_goals_to_another_page(self):
        self.assert_fires("README.md", "\nA bar that is missed.\n", 2, "'missed'")

    def test_links_lead_to_files_and_headings(self):
        self.put("docs/a.md", "# A page\n\n## Two words, `code` and more\n\n```sh\n# none\n```\n")
        good = ("[a](docs/a.md) [b](docs/a.md#a-page) [c](docs/a.md#two-words-code-and-more) "
                "[d](https://example.org/x.md) `[e](none.md)` ![f](docs/a.md)\n")
        self.assertEqual([], self.found("README.md", good))
        self.assert_fires("README.md", "[a](docs/b.md)\n", 1, "docs/b.md, which is not there")
        self.assert_fires("README.md", "[a](docs/a.md#none)\n", 1, "expected a heading")
        self.put("README.md", "")
        self.assert_fires("docs/c.md", "[a](a.md#none)\n", 1, "expected a heading of docs/a.md")

    def test_paths_of_documents_in_other_texts_lead_to_them(self):
        self.put("docs/a.md", "# A\n")
        self.assertEqual([], self.found("src/x.h", "// See docs/a.md and other/docs/b.md.\n"))
        self.assert_fires("src/x.h", "// See\n// docs/b.md.\n", 2, "docs/b.md, which is not there")

    def test_commands_stand_in_fences_that_say_what_they_are(self):
        self.assertEqual([], self.found("README.md", "- a\n\n      b\n\n```sh\n    c\n```\n"))
        self.assert_fires("README.md", "Text.\n\n    make run\n", 3, "a block without a fence")
        self.assert_fires("README.md", "```\nmake run\n```\n", 1, "a block of ''")

    def test_messages_of_troubleshooting_are_in_the_sources(self):
        self.put("src/a.cc", 'make_error(kIo, "{}: a pipe \\"{}\\" is no "\n    "file", a, b);\n')
        page = "| message | what to do |\n|---|---|\n| `{}` | `nothing` |\n"
        rows = ("a pipe", "...: a pipe \"...\" is no file", "is no file")
        for row in rows:
            self.put("src/b.cc", 'f("message");\n')
            self.assertEqual([], self.found("docs/troubleshooting.md", page.format(row)), row)
        self.assert_fires("docs/troubleshooting.md", page.format("is not a file"), 3,
                          "expected a message that the sources have")


class RepositoryTest(unittest.TestCase):
    def test_headings_are_spelled_as_github_does(self):
        self.assertEqual({"a-b_c-d", "a-b_c-d-1"},
                         check_docs.anchors("# A `b_c`, d?\n\n## A b_c d\n"))


if __name__ == "__main__":
    unittest.main()
