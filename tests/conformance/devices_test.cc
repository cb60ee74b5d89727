// The devices that MOEFLUX_TEST_DEVICES leaves.
#include <gtest/gtest.h>

#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

using Names = std::vector<std::string>;

struct Kept {
  Names devices;
  Names absent;
};
Kept kept_of(const Names& families, std::string_view wanted) {
  std::vector<NamedDevice> list;
  for (const std::string& family : families) list.push_back({family + "/1", family, nullptr});
  Kept kept{.devices = {}, .absent = keep_families(list, wanted)};
  for (const NamedDevice& device : list) kept.devices.push_back(device.name);
  return kept;
}

TEST(Devices, AreThoseOfAllNamesInAList) {
  const Names families = {"avx2", "generic", "emulator", "cuda", "cuda-small"};
  const Kept one = kept_of(families, "cuda");
  EXPECT_EQ(one.devices, (Names{"cuda/1", "cuda-small/1"}));
  EXPECT_EQ(one.absent, Names{});
  const Kept two = kept_of(families, "cuda,avx2");
  EXPECT_EQ(two.devices, (Names{"avx2/1", "cuda/1", "cuda-small/1"}));
  EXPECT_EQ(two.absent, Names{});
}

TEST(Devices, ThatAreNotHereAreNamed) {
  const Kept some = kept_of({"avx2", "generic"}, "cuda,avx2,neon");
  EXPECT_EQ(some.devices, Names{"avx2/1"});
  EXPECT_EQ(some.absent, (Names{"cuda", "neon"}));
  EXPECT_EQ(kept_of({"avx2"}, "").absent, Names{""});
  EXPECT_EQ(kept_of({"avx2"}, "avx2,").absent, Names{""});
}

}  // namespace
}  // namespace moeflux::conformance
