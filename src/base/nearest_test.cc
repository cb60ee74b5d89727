#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 7> kNames = {
    "run", "chat", "serve", "inspect", "qwen3-8b", "qwen3-30b-a3b", "qwen3-235b-a22b"};

TEST(Nearest, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("chat", "chat"), 0u);
  EXPECT_EQ(edit_distance("CHAT", "chat"), 0u);
  EXPECT_EQ(edit_distance("chta", "chat"), 1u);
  EXPECT_EQ(edit_distance("cat", "chat"), 1u);
  EXPECT_EQ(edit_distance("", "chat"), 4u);
  EXPECT_EQ(edit_distance(std::string(1000, 'a'), "chat"), 1000u);
}

TEST(Nearest, NamesWhatMayHaveBeenMeant) {
  EXPECT_EQ(did_you_mean("chta", kNames), "; did you mean chat?");
  EXPECT_EQ(did_you_mean("Inspekt", kNames), "; did you mean inspect?");
  EXPECT_EQ(did_you_mean("qwen3", kNames),
            "; did you mean qwen3-8b, qwen3-30b-a3b or qwen3-235b-a22b?");
  EXPECT_EQ(did_you_mean("frobnicate", kNames), "");
}

TEST(Nearest, ANameWithoutItsEndIsNearerThanAnotherName) {
  EXPECT_EQ(did_you_mean("qwen3-31b", kNames), "; did you mean qwen3-30b-a3b or qwen3-8b?");
  EXPECT_EQ(did_you_mean("qwen3-9b", kNames), "; did you mean qwen3-8b?");
}

}  // namespace
}  // namespace moeflux
