"""Every rule of tools/tidy.py fires on a small tree that breaks it, and on nothing else."""

import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import prose  # noqa: E402
import tidy  # noqa: E402

JOB = "// A file of this test.\n"


def function(lines):
    return "int f(\n    int x) {\n" + "  ++x;\n" * (lines - 3) + "}\n"


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def check(self, path, text):
        """Findings for a tree of this one file, as (line, message)."""
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(text.encode("utf-8"))
        found = tidy.check(self.folder.name)
        os.remove(full)
        self.assertEqual([path] * len(found), [f[0] for f in found])
        return [f[1:] for f in found]

    def assert_fires(self, line, word, text, path="src/base/x.cc"):
        found = self.check(path, text)
        self.assertEqual([line], [f[0] for f in found], found)
        self.assertIn(word, found[0][1])

    def assert_clean(self, text, path="src/base/x.cc"):
        self.assertEqual([], self.check(path, text))

    def test_lines_of_100_columns_pass_and_longer_ones_do_not(self):
        self.assert_clean(JOB + "//" + "x" * 98 + "\n")
        self.assert_fires(2, "101 columns", JOB + "//" + "x" * 99 + "\n")
        self.assert_clean("x" * 300 + "\n", path="docs/x.md")

    def test_columns_are_characters_not_bytes(self):
        self.assert_clean(JOB + "//" + "é" * 98 + "\n")

    def test_files_over_500_lines_need_a_reason_and_stop_at_800(self):
        self.assert_clean(JOB + "\n" * 499)
        self.assert_fires(1, "501 lines", JOB + "\n" * 500)
        reason = "// One table in one file: the standard's own order.\n"
        self.assert_clean(reason + "\n" * 700)
        self.assert_fires(1, "801 lines", reason + "\n" * 800)

    def test_functions_over_70_lines_are_found_inside_namespaces_and_classes(self):
        self.assert_clean(JOB + function(70))
        self.assert_fires(2, "71 lines", JOB + function(71))
        self.assert_fires(3, "71 lines", JOB + "namespace m {\n" + function(71) + "}\n")
        self.assert_fires(3, "71 lines", JOB + "class C : public B {\n" + function(71) + "};\n")
        self.assert_clean(JOB + "class C {\n" + function(40) * 3 + "};\n")

    def test_long_tables_are_not_functions(self):
        self.assert_clean(JOB + "constexpr int kTable[] = {\n" + "    f(1),\n" * 200 + "};\n")

    def test_braces_in_strings_and_macros_do_not_confuse_the_count(self):
        text = JOB + '#define BEGIN(x) \\\n  if (x) {\nconst char* a = "{";\n' + function(60) * 2
        self.assert_clean(text)

    def test_a_function_made_by_a_macro_is_as_short_as_others(self):
        def macro(lines):
            head, rest = "#define KERNEL(name, T) ", function(lines).replace("int f(", "int name(")
            return (head + rest).rstrip("\n").replace("\n", "  \\\n") + "\n"

        self.assert_clean(JOB + macro(70) + "KERNEL(a, int)\nKERNEL(b, int)\n")
        self.assert_fires(2, "71 lines", JOB + macro(71) + "KERNEL(a, int)\n")
        self.assert_fires(4, "71 lines", JOB + "int g() {\n}\n" + macro(71))
        # In the macro's text the function may come after something else.
        later = macro(71).replace("int name(", "\\\n  struct name##_tag; \\\n  int name(", 1)
        self.assert_fires(4, "71 lines", JOB + later)
        table = "#define LIST(X) \\\n" + "  X(one) \\\n" * 200 + "  X(two)\n"
        self.assert_clean(JOB + table)

    def test_objective_cpp_obeys_the_same_rules(self):
        self.assert_clean(JOB + function(70), path="src/backend/metal/x.mm")
        self.assert_fires(2, "71 lines", JOB + function(71), path="src/backend/metal/x.mm")
        self.assert_fires(2, "101 columns", JOB + "//" + "x" * 99 + "\n", path="src/x.mm")
        self.assert_fires(1, "job", "#import <Metal/Metal.h>\n", path="src/x.mm")

    def test_a_file_says_its_job_first(self):
        self.assert_fires(1, "job", "#pragma once\n", path="src/base/x.h")
        self.assert_fires(1, "job", "#include <vector>\n")
        self.assert_clean('#include "base/x.h"\n')
        self.assert_clean("#include <gtest/gtest.h>\n", path="src/base/x_test.cc")
        self.assert_fires(1, "job", '#include "base/y.h"\n')

    def test_headers_use_pragma_once(self):
        self.assert_clean(JOB + "#pragma once\n", path="src/base/x.h")
        self.assert_fires(1, "include guard", JOB + "#ifndef X_H_\n#define X_H_\n#endif\n",
                          path="src/base/x.h")
        self.assert_clean(JOB, path="src/backend/cpu/kernels/x-inl.h")

    def test_whitespace(self):
        self.assert_fires(2, "trailing", JOB + "int f(); \n")
        self.assert_fires(2, "tab", JOB + "\tint f();\n")
        self.assert_fires(2, "newline", JOB + "int f();")
        self.assert_fires(1, "carriage return", JOB.replace("\n", " x\r\n"))
        self.assert_clean("all:\n\ttrue\n", path="src/Makefile")

    def test_banned_words(self):
        for word in ("TO" "DO", "FIX" "ME", "not impl" "emented", "unimpl" "emented", "for n" "ow"):
            self.assert_fires(2, word, JOB + f"// {word}: later\n")
            self.assert_fires(1, word, f"{word}\n", path="docs/x.md")
        self.assert_fires(1, "-ffast", "set(flags -ffast-" "math)\n", path="src/x.cmake")
        self.assert_clean("never -ffast-" "math\n", path="STYLE.md")

    def test_banned_calls(self):
        for call in ("atoi(text)", "sprintf(a, b)", "x = NULL", "std::format(x)", "rand()"):
            self.assert_fires(2, "expected", JOB + f"  {call};\n")
        self.assert_clean(JOB + '  operand(); // atoi(text)\n  f("NULL");\n')

    def test_only_absent_hardware_is_a_reason_to_skip(self):
        self.assert_clean(JOB + '  GTEST_SKIP() << "hardware: no GPU";\n'
                          '  GTEST_SKIP()\n      << "hardware: " << reason;\n  // GTEST_SKIP()\n')
        self.assert_fires(2, "GTEST_SKIP", JOB + '  GTEST_SKIP() << "no file";\n')
        self.assert_fires(2, "GTEST_SKIP", JOB + "  GTEST_SKIP();\n")

    def test_paths_of_one_machine(self):
        for path in ("/ho" "me/ann/moeflux", "/wo" "rk/main", "/ro" "ot/x", "/Us" "ers/ann"):
            self.assert_fires(2, path[:5], JOB + f'open("{path}");\n')
        self.assert_clean(JOB + 'open("/proc/self/status"); // see a/home/x, ~/work/x, ../root/x\n')

    def test_sentences_of_comments_have_at_most_40_words(self):
        def comment(words):
            return "// one" + "\n// one" * (words - 1) + ".\n"

        self.assert_clean(JOB + "int x;\n" + comment(40) + comment(40))
        self.assert_fires(3, "41 words", JOB + "int x;\n" + comment(41))
        self.assert_fires(3, "41 words", JOB + "int x;\n" + comment(41).replace("// ", "/// "))
        self.assert_fires(2, "41 words", "true\n" + comment(41).replace("//", "#"), path="x.sh")

    def test_a_comment_behind_code_goes_on_below_it(self):
        behind, below = "int x;  // one\n", "        // one\n"
        self.assert_fires(2, "41 words", JOB + behind + below * 40)
        self.assert_clean(JOB + (behind + below * 30) * 2)

    def test_a_comment_in_another_column_than_the_one_behind_code_is_its_own(self):
        self.assert_clean(JOB + "int x;  // one\n" + "// one\n" * 40)
        self.assert_fires(3, "begins with", JOB + "int x;  // one\n// Of a row.\n")
        self.assert_fires(3, "41 words", JOB + "int x;  // one\n" + "// one\n" * 41)

    def test_sentences_end_at_stops_list_items_and_text_that_is_set_out(self):
        words = ("word " * 30).strip()
        self.assert_clean(f"{words} (one,\ne.g. this). {words}.\n\n- {words}\n- {words}\n\n"
                          f"    {words} {words}\n\n| {words[:90]} | {words[:90]} |\n\n"
                          f"```\n{words} {words}\n```\n", path="docs/x.md")
        self.assert_fires(3, "60 words", f"# Title\n\n{words} {words}\n", path="docs/x.md")
        self.assert_clean(f"{words} {words}\n", path="other/x.md")

    def test_no_sentence_begins_with_of(self):
        self.assert_fires(2, "'Of each row a", JOB + "// Of each row a sum.\n")
        self.assert_fires(2, "begins with", JOB + "int x;  // Of a row.\n")
        self.assert_fires(2, "begins with", JOB + "// Sums. Of a row.\n")
        self.assert_fires(1, "begins with", "# Of a row.\ntrue\n", path="x.sh")
        self.assert_clean(JOB + '// Offsets of a row.\nconst char* a = "// Of a row";\n')

    def test_no_sentence_begins_with_a_pronoun_but_questions(self):
        for word in ("What", "Who", "Whose", "Those", "Which"):
            self.assert_fires(2, f"'{word} is there", JOB + f"/// {word} is there.\n")
            self.assert_fires(3, f"'{word} is there", f"# {word} is\n\nOne. {word} is there.\n",
                              path="docs/x.md")
            self.assert_fires(1, f"'**{word}** is", f"**{word}** is there.\n", path="docs/x.md")
            self.assert_fires(3, f"'{word} is there",
                              f"| a | b |\n|---|---|\n| c | {word} is there |\n", path="docs/x.md")
            self.assert_clean(JOB + f"// {word} is there?\n")
        self.assert_fires(2, "'Whoever is there", JOB + "// Whoever is there.\n")
        self.assert_fires(1, "'What is there", "//! What is there.\n", path="rust/src/x.rs")
        self.assert_clean("| What | b |\n|---|---|\n| c | Whatever |\n", path="docs/x.md")
        self.assert_clean("```\n| a | What is there |\n```\n", path="docs/x.md")

    def test_docstrings_are_sentences_with_a_subject(self):
        self.assert_fires(2, "'What is there", 'def f():\n    """What is there."""\n',
                          path="tools/x.py")
        self.assert_fires(5, "'Of a row", 'class C:\n    def f(self):\n        """Sums.\n\n'
                          '        Of a row.\n        """\n', path="tests/x.py")
        self.assert_clean('def f():\n    """Sums of a row."""\n    return "What is there."\n',
                          path="tools/x.py")

    def test_docstrings_of_the_library_have_the_fields_words(self):
        text = '"""It waits for another text."""\n'
        self.assert_fires(1, "see STYLE.md", text, path="python/moeflux/x.py")
        self.assert_clean(text, path="tools/x.py")

    def test_messages_of_the_program_are_checked_as_all_others(self):
        self.assert_fires(2, "see STYLE.md", JOB + 'auto m = "the file is no model";\n',
                          path="src/cli/x.cc")
        self.assert_fires(2, "begins with", JOB + "// Of a row.\n", path="src/cli/x.cc")

    def test_cells_of_tables_have_at_most_25_words(self):
        def table(words):
            return "| a | b |\n|---|---|\n| `x \\| y` | " + "word " * words + "|\n"

        self.assert_clean(table(25), path="docs/x.md")
        self.assert_fires(3, "26 words", table(26), path="docs/x.md")
        self.assert_clean(table(26), path="other/x.md")

    def test_private_words_are_found_where_people_read_them(self):
        examples = {
            "texts at work, another text": "It waits for another text.",
            "held to": "Output is held to a schema.",
            "kept states": "It starts from kept states.",
            "near and far memory": "The far experts are read.",
            "parked": "The sequence is parked.",
            "takes the place of": "The new one takes the place of the old.",
            "comes back to": "The client comes back to it.",
            "a past": "It shares the past of a sequence.",
            "is no X": "The file is no model.",
            "that is none": "It names a sampler that is none.",
            "so many tokens": "It has so many tokens.",
            "told of": "The error is told of.",
            "a token is drawn": "It draws a token.",
            "whoever, that one's": "Then whoever asks gets it.",
        }
        self.assertEqual(list(examples), [private for private, _, _ in prose.WORDS])
        for sentence in examples.values():
            word = "see STYLE.md"
            self.assert_fires(1, word, sentence + "\n", path="docs/x.md")
            self.assert_fires(3, word, f"| a |\n|---|\n| {sentence} |\n", path="docs/x.md")
            message = f'auto m = "{sentence[:6]}"\n  "{sentence[6:]}";\n'
            self.assert_fires(2, word, JOB + message)
            self.assert_clean(JOB + message, path="src/base/x_test.cc")
            self.assert_fires(2, word, f'fn f() {{\n    g("{sentence}");\n}}\n',
                              path="rust/src/x.rs")
            self.assert_clean(JOB + f"// {sentence}\n")
            self.assert_fires(3, word, JOB + f"#pragma once\n/// {sentence}\n",
                              path="include/moeflux/x.h")
            self.assert_clean(f"`{sentence}`\n", path="docs/x.md")
            self.assert_clean(sentence + "\n", path="docs/glossary.md")

    def test_english_that_looks_like_private_words_passes(self):
        self.assert_clean("There is no file. It is no longer there, and was so much faster that "
                          "we kept it in the past. A text reads past the end.\n", path="docs/x.md")

    def test_style_shows_the_words_that_are_checked(self):
        with open(os.path.join(ROOT, "STYLE.md"), encoding="utf-8") as file:
            style = file.read()
        for private, public, _ in prose.WORDS:
            self.assertIn(f"| {private} | {public} |\n", style)

    def test_data_is_left_alone(self):
        self.assert_clean("TO" "DO  \n", path="tests/golden/x.txt")

    def test_code_beside_data_is_not(self):
        self.assert_fires(2, "begins with", JOB + "// Of a row.\n", path="tests/golden/x_test.cc")

    def test_bytes_that_are_not_utf8_are_reported(self):
        full = os.path.join(self.folder.name, "x.md")
        with open(full, "wb") as file:
            file.write(b"ok\n\xff\n")
        self.assertEqual([("x.md", 2)], [f[:2] for f in tidy.check(self.folder.name)])


if __name__ == "__main__":
    unittest.main()
