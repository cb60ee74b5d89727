#include "backend/metal/metal_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "backend/gpu/kernel_list.h"

namespace moeflux::gpu {
namespace {

TEST(MetalText, HasWhatIsIncludedOnceAndInPlace) {
  const std::vector<SourceFile> files = {
      {"a.h", "#pragma once\n#include <system>\n#include \"b.h\"\n#include \"c.h\"\nint a;"},
      {"b.h", "#pragma once\n#include \"c.h\"\nint b;\n"},
      {"c.h", "#pragma once\nint c;\n"},
      {"d.h", "int d;\n"}};
  EXPECT_EQ(flatten(files, "a.h"), "#include <system>\nint c;\nint b;\nint a;");
}

TEST(MetalText, NeedsNoOtherFileOfOurs) {
  const std::string text = metal_text();
  EXPECT_EQ(text.find("#include \""), std::string::npos);
  EXPECT_NE(text.find("#include <metal_stdlib>"), std::string::npos);
}

#ifdef MOEFLUX_CLANGXX
// As clang reads it in place of a Metal compiler (dialect/metal_check.h).
class MetalTextInClang : public ::testing::Test {
 protected:
  void SetUp() override { std::ofstream(path_) << metal_text(); }
  int run(const std::string& options) {
    return std::system((std::string(MOEFLUX_CLANGXX) + " -std=c++14 -x c++ -DMOEFLUX_METAL_CHECK " +
                        options + " " + path_)
                           .c_str());
  }

  std::string path_ = ::testing::TempDir() + "moeflux_" +
                      ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".metal";
};

TEST_F(MetalTextInClang, CompilesInOnePiece) {
  EXPECT_EQ(run("-fsyntax-only -Wall -Wextra -Wno-unused-function -Werror"), 0);
}

TEST_F(MetalTextInClang, HasEveryKernel) {
  const std::string expanded_path = path_ + ".expanded";
  ASSERT_EQ(run("-E -P -o " + expanded_path), 0);
  std::ifstream expanded(expanded_path);
  const std::string text((std::istreambuf_iterator<char>(expanded)), {});
  for (const KernelInfo& kernel : kKernels) {
    EXPECT_NE(text.find(" void " + std::string(kernel.name) + "("), std::string::npos)
        << kernel.name;
  }
}
#endif

}  // namespace
}  // namespace moeflux::gpu
