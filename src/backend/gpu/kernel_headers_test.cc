// Kernel headers include what they use, and those that have kernels are compiled once: for CUDA and
// for the emulator in the file of their folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace moeflux::gpu {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = fs::path(MOEFLUX_SOURCE_DIR) / "src";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> files_below(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The kernel headers that a file includes, directly or not.
void add_included(const fs::path& path, std::set<fs::path>& found) {
  const std::string text = text_of(path);
  const std::string begin = "#include \"backend/gpu/kernels/";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const size_t name = text.find('"', at) + 1;
    const fs::path included = kSource / text.substr(name, text.find('"', name) - name);
    if (found.insert(included).second) add_included(included, found);
  }
}

bool has_kernels(const fs::path& header) {
  return text_of(header).find("MF_KERNEL(") != std::string::npos;
}

class KernelHeaders : public ::testing::TestWithParam<const char*> {};

TEST_P(KernelHeaders, WithKernelsBelongToTheFileOfTheirFolder) {
  std::map<fs::path, std::vector<std::string>> compiled;
  const fs::path folder = kSource / GetParam();
  for (const char* extension : {".cu", ".cc"}) {
    for (const fs::path& file : files_below(folder, extension)) {
      std::set<fs::path> included;
      add_included(file, included);
      for (const fs::path& header : included) {
        if (has_kernels(header)) compiled[header].push_back(file.stem().string());
      }
    }
  }
  size_t count = 0;
  for (const fs::path& header : files_below(kSource / "backend/gpu/kernels", ".h")) {
    if (!has_kernels(header)) continue;
    ++count;
    const std::vector<std::string> own = {header.parent_path().filename().string()};
    EXPECT_EQ(compiled[header], own) << header;
  }
  EXPECT_GT(count, 20u);
}
INSTANTIATE_TEST_SUITE_P(Dialects, KernelHeaders,
                         ::testing::Values("backend/cuda/kernels", "backend/gpu/emulator/kernels"));

#ifdef MOEFLUX_CLANGXX
int run_clang(const std::string& arguments) {
  return std::system((std::string(MOEFLUX_CLANGXX) + " -std=c++20 -I" + kSource.string() +
                      " -Wno-unused-function " + arguments)
                         .c_str());
}

TEST(KernelHeadersInClang, CompileAloneInTheHostDialect) {
  const testing::TempFolder folder;  // of its own, as other checkouts may run this test
  const std::string dialect = folder / "host_dialect.pch";
  ASSERT_EQ(run_clang("-x c++-header " + (kSource / "backend/gpu/dialect/host.h").string() +
                      " -o " + dialect),
            0);
  for (const fs::path& header : files_below(kSource / "backend/gpu/kernels", ".h")) {
    EXPECT_EQ(run_clang("-fsyntax-only -include-pch " + dialect + " -include " + header.string() +
                        " -x c++ /dev/null"),
              0)
        << header;
  }
}
#endif

}  // namespace
}  // namespace moeflux::gpu
