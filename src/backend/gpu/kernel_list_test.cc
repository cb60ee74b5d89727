// Kernels' names follow the grammar of kernel_list.h, so that who looks for one finds it.
#include "backend/gpu/kernel_list.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

namespace moeflux::gpu {
namespace {

bool follows_grammar(const std::string& name) {
  static const std::regex kGrammar(
      "(mma_)?[a-z]+(_[a-z]+)*(_(f32|bf16|fp8|w[2-8](_32)?|t?q[1-8]_[01k]|iq[1-4]_[a-z]+|mxfp4(_"
      "gguf)?|("
      "f16|q8)(_(f16|q8))?))?"
      "(_t[0-9]+)?(_r[0-9]+)?(_d[0-9]+)?");
  // Words that say nothing: a number of what, and which unit.
  static const std::regex kForbidden("(^|_)(one|two|four|unit|units)(_|$)");
  return std::regex_match(name, kGrammar) && !std::regex_search(name, kForbidden);
}

TEST(KernelNames, FollowTheGrammar) {
  for (const KernelInfo& kernel : kKernels) {
    EXPECT_TRUE(follows_grammar(std::string(kernel.name))) << kernel.name;
  }
}

TEST(KernelNames, ThatTheGrammarRefuses) {
  for (const char* name : {"unit_down_one8", "linear4", "linear_t1_w4", "linear_d128_r16",
                           "attention_wide16", "linear_w9", "Linear", "linear__t1", "linear_x4"}) {
    EXPECT_FALSE(follows_grammar(name)) << name;
  }
}

TEST(KernelNames, AreNamesOfOneKernel) {
  std::set<std::string_view> names;
  for (const KernelInfo& kernel : kKernels) EXPECT_TRUE(names.insert(kernel.name).second);
}

}  // namespace
}  // namespace moeflux::gpu
