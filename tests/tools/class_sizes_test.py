"""tools/class_sizes.py counts what a class offers as its text says."""

import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import class_sizes  # noqa: E402


class ClassSizesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def size(self, name):
        return {one: count for count, _, one in class_sizes.sizes(self.folder.name)}[name]

    def test_public_functions_count_once_a_name(self):
        self.write("src/a.h", """
            class A {
             public:
              A();
              explicit A(int x) : x_(x) {}
              ~A();
              A& operator=(const A&) = delete;
              void one();
              void one(int x);
              std::function<void(int)> value = {};
              int two() const { return f(); }
              static Result<std::pair<int, int>> three(std::span<const int> x = {});
              int member_{0};
             protected:
              void four();
             private:
              void five() { six(); }
            };
            """)
        self.assertEqual(self.size("A"), 3)

    def test_bases_nested_classes_and_free_functions_count(self):
        self.write("src/base.h", "class Base {\n public:\n  virtual void one() = 0;\n"
                                 "  virtual void two();\n};\n")
        self.write("src/b.h", """
            class B : public Base {
             public:
              void one() override;
              struct Part {
                int first() const;
                int last() const;
              };
            };
            inline int free_one(const B& b) { return b.one(); }
            int free_two(Other& other, B& b);
            """)
        self.assertEqual(self.size("B"), 5)

    def test_large_classes_and_long_encoders_are_violations(self):
        many = "".join(f"  void f{i}();\n" for i in range(class_sizes.FUNCTIONS_MAX + 1))
        self.write("src/c.h", "class C {\n public:\n" + many + "};\n")
        self.write("src/backend/x/x_encoder.h", "\n" * class_sizes.ENCODER_LINES_MAX)
        self.write("src/backend/encoder.h", "\n" * (class_sizes.ENCODER_LINES_MAX - 1))
        lines = class_sizes.violations(self.folder.name)
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("C has 31 public functions, allowed: 30", lines[0])
        self.assertIn("x_encoder.h: 120 lines", lines[1])

    def test_comments_and_kept_limits_say_nothing(self):
        self.write("src/d.h", "struct D {\n  // void one();\n  int a = f(3);\n  void two();\n};\n")
        self.assertEqual(self.size("D"), 1)
        self.assertEqual(class_sizes.violations(self.folder.name), [])


if __name__ == "__main__":
    unittest.main()
