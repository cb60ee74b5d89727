"""Every rule of tools/check_layers.py fires on a small tree that breaks it, and on nothing else."""

import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import check_layers  # noqa: E402
import shelves  # noqa: E402


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("src/base/result.h", "#pragma once\n")

    def write(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def check(self):
        return check_layers.check(self.folder.name)

    def assert_clean(self):
        self.assertEqual(self.check(), [])

    def assert_fires(self, path, line, *words):
        """Exactly one violation, there, saying all of words."""
        violations = self.check()
        self.assertEqual([(v[0], v[1]) for v in violations], [(path, line)], violations)
        for word in words:
            self.assertIn(word, violations[0][2])

    # --- Layers ---

    def test_a_lower_module_may_be_included(self):
        self.write("src/engine/engine.cc", '#include "base/result.h"\n#include "model/model.h"\n')
        self.write("src/model/model.h", '#include "base/result.h"\n')
        self.assert_clean()

    def test_a_higher_module_may_not_be_included(self):
        self.write("src/base/early.cc", '#include "base/result.h"\n#include "engine/engine.h"\n')
        self.write("src/engine/engine.h", "#pragma once\n")
        self.assert_fires("src/base/early.cc", 2, "engine/engine.h", "nothing of ours")

    def test_a_backend_may_not_include_another_backend(self):
        self.write("src/backend/cpu/cpu_device.cc", '#include "backend/trace/trace_encoder.h"\n')
        self.write("src/backend/trace/trace_encoder.h", '#include "backend/encoder.h"\n')
        self.write("src/backend/encoder.h", '#include "base/result.h"\n')
        self.assert_fires("src/backend/cpu/cpu_device.cc", 1, "backend/trace")

    def test_the_engine_may_not_include_a_concrete_backend_or_text(self):
        self.write("src/backend/cpu/cpu_device.h", "#pragma once\n")
        self.write("src/engine/engine.cc", '#include "backend/cpu/cpu_device.h"\n')
        self.assert_fires("src/engine/engine.cc", 1, "backend/cpu")
        self.write("src/engine/engine.cc", '#include "text/tokenizer.h"\n')
        self.write("src/text/tokenizer.h", "#pragma once\n")
        self.assert_fires("src/engine/engine.cc", 1, "text/tokenizer.h")

    def test_the_command_line_may_include_everything(self):
        self.write("src/backend/cpu/cpu_device.h", "#pragma once\n")
        self.write("src/cli/main.cc", '#include "backend/cpu/cpu_device.h"\n')
        self.assert_clean()

    def test_tests_may_look_everywhere(self):
        self.write("src/engine/engine.h", "#pragma once\n")
        self.write("src/base/x_test.cc", '#include <gtest/gtest.h>\n#include "engine/engine.h"\n')
        self.assert_clean()

    def test_a_commented_include_is_no_include(self):
        self.write("src/base/x.cc", '// #include "engine/engine.h"\n/*\n#include "io/file.h"\n*/\n')
        self.assert_clean()

    def test_an_include_relative_to_the_file_is_refused(self):
        self.write("src/base/x.cc", '#include "result.h"\n')
        self.assert_fires("src/base/x.cc", 1, "include root")

    def test_a_shelf_includes_what_its_row_allows(self):
        self.write("src/text/tokenizer.h", '#include "text/bpe/bpe.h"\n')
        self.write("src/text/bpe/bpe.h", '#include "base/result.h"\n')
        self.write("src/text/bpe/bpe_test.cc", '#include "text/tokenizer.h"\n')
        self.assert_clean()
        self.write("src/text/bpe/bpe.cc", '\n#include "text/tokenizer.h"\n')
        self.assert_fires("src/text/bpe/bpe.cc", 2, "text/tokenizer.h", "text/vocabulary")

    def test_a_folder_outside_the_tables_is_refused(self):
        self.write("src/backend/cpu/ops/y.cc", "\n")
        self.assert_clean()
        self.write("src/text/more/x.cc", "\n")
        self.assert_fires("src/text/more/x.cc", 1, "src/text/more", "tools/shelves.py")

    def test_a_folder_holds_sixty_source_files(self):
        for i in range(59):
            self.write(f"src/backend/gpu/file_{i:02}.cc", "\n")
        self.write("src/backend/gpu/file_00_test.cc", "\n")
        self.write("src/backend/gpu/CMakeLists.txt", "\n")
        self.write("src/backend/gpu/emulator/x.cc", "\n")
        self.assert_clean()
        self.write("src/backend/gpu/list.cc.in", "\n")
        self.assert_fires("src/backend/gpu/file_00.cc", 1, "src/backend/gpu holds 61", "60")

    def test_the_tables_of_folders_in_architecture_are_complete(self):
        rows = sorted(set(check_layers.MODULES) | set(shelves.SHELVES))
        lines = ["# A", "## Folders", *(f"| `{name}` | job |" for name in rows), "## B", "| `b` |"]
        self.write("ARCHITECTURE.md", "\n".join(lines))
        self.assert_clean()
        self.write("ARCHITECTURE.md", "\n".join(lines).replace("| `text/bpe` ", "| `text/pairs` "))
        found = [(line, message) for _, line, message in self.check()]
        self.assertEqual([line for line, _ in found], [2, lines.index("| `text/bpe` | job |") + 1])
        self.assertIn("text/bpe", found[0][1])
        self.assertIn("text/pairs", found[1][1])

    def test_a_module_outside_the_table_is_refused(self):
        self.write("src/utils/x.cc", '#include "base/result.h"\n')
        self.assert_fires("src/utils/x.cc", 1, "utils", "table")

    def test_files_for_tests_stay_with_tests(self):
        self.write("src/experts/store_test_util.h", "#pragma once\n")
        self.write("src/experts/store.cc", '#include "experts/store_test_util.h"\n')
        self.assert_fires("src/experts/store.cc", 1, "for tests only")
        self.write("src/experts/store.cc", '#include "tests/support/io/memory_file.h"\n')
        self.assert_fires("src/experts/store.cc", 1, "not below src/")

    def test_cmake_may_not_link_wider_than_the_table(self):
        self.write("src/text/CMakeLists.txt", "moeflux_module(text DEPENDS base\n  engine)\n")
        self.assert_fires("src/text/CMakeLists.txt", 1, "DEPENDS on engine")

    # --- Third-party headers ---

    def test_a_third_party_header_has_one_home(self):
        self.write("src/base/json.h", "#include <nlohmann/json.hpp>\n")
        self.assert_clean()
        self.write("src/model/config.cc", "#include <vector>\n#include <nlohmann/json.hpp>\n")
        self.assert_fires("src/model/config.cc", 2, "nlohmann/json.hpp", "src/base/json.h")

    def test_a_home_that_is_a_folder_holds_one_user(self):
        self.write("src/text/a.cc", "#include <pcre2.h>\n")
        self.assert_clean()
        self.write("src/text/b.cc", "#include <pcre2.h>\n")
        self.assert_fires("src/text/b.cc", 1, "pcre2.h", "one file")

    def test_an_unknown_third_party_header_is_refused(self):
        self.write("src/base/x.cc", "#include <boost/any.hpp>\n")
        self.assert_fires("src/base/x.cc", 1, "boost/any.hpp", "third-party table")

    def test_public_headers_stand_alone_and_only_the_library_knows_them(self):
        self.write("include/moeflux/a.h", "#include <stddef.h>\n")
        self.write("include/moeflux/b.hpp", '#include "moeflux/a.h"\n')
        self.write("src/library/a.cc", '#include "moeflux/a.h"\n')
        self.write("tests/library/a.cc", '#include "moeflux/b.hpp"\n')
        self.assert_clean()
        self.write("src/engine/x.cc", '#include "moeflux/a.h"\n')
        self.assert_fires("src/engine/x.cc", 1, "moeflux/a.h", "src/library/")
        self.write("src/engine/x.cc", "\n")
        self.write("include/moeflux/b.hpp", '#include "base/result.h"\n')
        self.assert_fires("include/moeflux/b.hpp", 1, "base/result.h", "include/")

    def test_gtest_belongs_to_tests_and_benchmark_to_benchmarks(self):
        self.write("src/base/x.cc", "#include <gtest/gtest.h>\n")
        self.assert_fires("src/base/x.cc", 1, "gtest")
        self.write("src/base/x.cc", "#include <benchmark/benchmark.h>\n")
        self.assert_fires("src/base/x.cc", 1, "benchmark")
        self.write("src/base/x.cc", "\n")
        self.write("tests/conformance/x.cc", "#include <gtest/gtest.h>\n")
        self.write("benchmarks/ops/x.cc", "#include <benchmark/benchmark.h>\n")
        self.assert_clean()

    # --- Kernels ---

    def test_a_kernel_includes_only_the_allowed_headers(self):
        kernel = "src/backend/cpu/isa/avx2.cc"
        self.write(kernel, '#include <immintrin.h>\n#include "quant/formats/affine.h"\n')
        self.assert_clean()
        self.write(kernel, "#include <vector>\n")
        self.assert_fires(kernel, 1, "<vector>", "immintrin.h")
        self.write(kernel, '#include "base/result.h"\n')
        self.assert_fires(kernel, 1, "base/result.h")

    # --- Words ---

    def test_a_phase_is_not_told_from_a_count(self):
        self.write("src/backend/x.cc", "bool f(int n) { return n == 1; }\n")
        self.write("src/engine/x_test.cc", "bool f(int rows) { return rows == 1; }\n")
        self.write("src/engine/y.cc", "bool f(int reruns) { return reruns == 1; }\n")
        self.assert_clean()
        self.write("src/engine/x.cc", "\nbool f(S s) { return s.tokens.size() == 1; }\n")
        self.assert_fires("src/engine/x.cc", 2, "tokens.size() == 1", "StepPhase")

    def test_a_family_name_stays_in_families(self):
        self.write("src/model/families/qwen3_moe.cc", 'const char* kName = "qwen3_moe";\n')
        self.write("src/base/units.h", "// As in llama.cpp.\n")
        self.assert_clean()
        self.write("src/engine/x.cc", '\nbool is_it(Text t) { return t == "Qwen3"; }\n')
        self.assert_fires("src/engine/x.cc", 2, "Qwen", "src/model/families/")

    def test_what_a_format_is_made_of_stays_with_those_who_decode_it(self):
        self.write("src/quant/formats/x.cc", "const int n = format.group_size * format.bits;\n")
        self.write("src/backend/cpu/decoders/x.cc", "const int n = weight.format.group_size;\n")
        self.write("src/tensor/dtype.cc", "const int n = value.bits;\n")
        self.assert_clean()
        self.write("src/model/x.cc", "// format.bits\nconst int n = weight.format.group_size;\n")
        self.assert_fires("src/model/x.cc", 2, "group_size", "src/quant/")
        self.write("src/model/x.cc", "const auto f = QuantFormat::affine(4, 64, DType::kBf16);\n")
        self.assert_fires("src/model/x.cc", 1, "QuantFormat::affine", "src/quant/")
        self.write("src/model/x.cc", "if (matrix.format.bits == 4) tile();\n")
        self.assert_fires("src/model/x.cc", 1, "bits", "src/quant/")

    def test_files_are_read_only_in_io(self):
        self.write("src/io/posix/file.cc", "#include <fcntl.h>\nint f = ::open(path, 0);\n"
                   .replace("int f", "const int f"))
        self.write("src/checkpoint/ok.h", "static Result<X> open(const std::string& path);\n"
                                          "auto x = Checkpoint::open(path);\n"
                   .replace("auto x", "const auto x"))
        self.assert_clean()
        for text in ("#include <fstream>\n", "  std::ifstream in(path);\n", "  x = fopen(p, q);\n",
                     "  const int fd = ::open(p, q);\n", "#include <filesystem>\n"):
            self.write("src/engine/x.cc", text)
            self.assert_fires("src/engine/x.cc", 1, "file access", "src/io/")

    def test_threads_start_only_where_allowed(self):
        self.write("src/io/reader.cc", "  std::jthread worker(run);\n")
        self.write("src/experts/ok.cc",
                   "  const auto n = std::thread::hardware_concurrency();\n"
                   "  std::this_thread::yield();\n")
        self.assert_clean()
        for text in ("  std::thread t(run);\n", "  std::jthread t(run);\n", "  std::async(run);\n"):
            self.write("src/experts/x.cc", text)
            self.assert_fires("src/experts/x.cc", 1, "src/base/thread_pool")

    def test_only_the_session_draws_tokens(self):
        self.write("src/chat/session.cc", "  auto sampler = Sampler::create(options);\n")
        self.write("src/chat/session_test.cc", "  auto sampler = Sampler::create(options);\n")
        self.assert_clean()
        self.write("src/cli/commands/run.cc", "  auto sampler = Sampler::create (options);\n")
        self.assert_fires("src/cli/commands/run.cc", 1, "Session")

    def test_nothing_throws(self):
        self.write("src/base/x.cc", '// throw\nconst char* kText = "throw";\nint rethrow();\n')
        self.assert_clean()
        self.write("src/base/x.cc", "  if (bad) throw 1;\n")
        self.assert_fires("src/base/x.cc", 1, "throw")

    def test_nothing_uses_a_whole_namespace(self):
        self.write("src/base/x.cc", "using std::swap;\n")
        self.assert_clean()
        self.write("src/base/x.cc", "using namespace std;\n")
        self.assert_fires("src/base/x.cc", 1, "using namespace")

    def test_mutable_globals_and_statics_are_found(self):
        for text in ("int counter = 0;\n", "std::atomic<int> calls{0};\n", "Registry* registry;\n",
                     "inline int x;\n", "  static int calls = 0;\n", "thread_local Buffer b;\n",
                     "  static std::vector<int> cache;\n", "static std::once_flag flag{};\n"):
            self.write("src/base/x.cc", text)
            self.assert_fires("src/base/x.cc", 1, "mutable global")

    def test_constants_and_declarations_are_no_globals(self):
        self.write("src/base/x.cc", """\
constexpr int kA = 1;
const std::string kB = "b";
static constexpr std::array<int, 2> kC = {1, 2};
inline constexpr std::string_view kD = "d";
static int helper(int x);
Status later(int x);
Result<int> other(std::string_view text = {});
using Json = int;
enum class Color : int { kRed, kBlue };
class Forward;
struct Options;
extern template class Foo<int>;
class X {
 public:
  static Result<X> create(int a);
  static constexpr int kE = 3;
  int member_ = 0;
};
void f() {
  static const int kF = 3;
  const char* raw = R"(
int not_code = 0;
throw
)";
}
friend bool operator==(X, X) = default;
X::~X() = default;
bool X::operator==(const X& o) const = default;
X::X(X&&) = default;
""")
        self.assert_clean()


    # --- Rust ---

    def test_a_circle_of_rust_modules_is_named(self):
        self.write("rust/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nuse d::Failure;\n")
        self.write("rust/src/a.rs", "//! One.\n\nuse std::fmt;\nuse crate::{\n    b,\n};\n")
        self.write("rust/src/c.rs", "fn f<'a>(x: &'a crate::a::A<'a>) {}\n")
        self.write("rust/src/d.rs", "pub struct Failure;\n")
        for use in ("use crate::c::C;", "use crate::{c::{C, D}, d};", "use crate::{d::{\nE}, c};",
                    "use super::c;", "use super::{\nd,\nc};", "mod tests {\n    use crate::c;\n}"):
            self.write("rust/src/b.rs", use + "\n")
            self.assert_fires("rust/src/a.rs", 4, "a > b > c > a")
        self.write("rust/src/b.rs", "use crate::d;\n")
        self.write("rust/src/d.rs", "use crate::text_of;\n")
        self.assert_fires("rust/src/d.rs", 1, "d > lib > d")

    def test_rust_modules_may_share_what_is_below_them(self):
        self.write("rust/src/lib.rs", "mod a;\nmod b;\nmod c;\nuse a::{A, B};\n")
        self.write("rust/src/a.rs", "use crate::{\n    b::B,\n    c,\n};\n// use crate::d;\n")
        self.write("rust/src/b.rs", "use crate::c::C;\nmod tests {\n    use super::*;\n}\n")
        self.write("rust/src/c.rs", "use super_crate::a;\nuse crate::c::D;\n")
        self.write("rust/src/c_tests.rs", "use crate::{a, text_of};\n")
        self.assert_clean()


class RealTreeTest(unittest.TestCase):
    def test_the_tables_name_what_the_tree_has(self):
        src = os.path.join(ROOT, "src")
        for module in check_layers.MODULES:
            self.assertTrue(os.path.exists(os.path.join(src, module, "CMakeLists.txt")), module)
        for path in check_layers.FILE_ACCESS_ALLOWED:
            self.assertTrue(os.path.isfile(os.path.join(ROOT, path)), path)
        for path in check_layers.THREADS_ALLOWED:
            beside = os.listdir(os.path.dirname(os.path.join(ROOT, path)))
            name = os.path.basename(path)
            self.assertTrue([f for f in beside if f.startswith(name)], path)
        for module, allowed in check_layers.MODULES.items():
            for other in allowed or ():
                self.assertIn(other, check_layers.MODULES, f"{module} allows it")

    def test_rows_of_shelves_are_folders_of_one_module(self):
        for shelf, allowed in shelves.SHELVES.items():
            self.assertTrue(os.path.isdir(os.path.join(ROOT, "src", shelf)), shelf)
            for other in allowed:
                self.assertIn(other, shelves.SHELVES, f"{shelf} allows it")
                self.assertEqual(other.split("/")[0], shelf.split("/")[0])

    def test_the_library_holds_neither_conversion_nor_the_laboratory(self):
        held, left = set(), ["library"]
        while left:
            module = left.pop()
            held.add(module)
            left += (check_layers.MODULES[module] or set()) - held
        self.assertFalse(held & {"convert", "lab", "cli"})

    def test_the_table_has_no_cycle(self):
        def reach(module, seen):
            for other in check_layers.MODULES[module] or ():
                self.assertNotIn(module, check_layers.MODULES[other] or (), (module, other))
                if other not in seen:
                    seen.add(other)
                    reach(other, seen)
            return seen

        for module in check_layers.MODULES:
            self.assertNotIn(module, reach(module, set()))


if __name__ == "__main__":
    unittest.main()
