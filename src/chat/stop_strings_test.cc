#include "chat/stop_strings.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

// The text that comes out when `text` goes in cut into pieces of `step` bytes.
std::string through(const std::vector<std::string>& strings, std::string_view text, size_t step,
                    bool* stopped = nullptr) {
  StopStrings stops(strings);
  std::string out;
  for (size_t i = 0; i < text.size(); i += step) out += stops.push(text.substr(i, step));
  out += stops.finish();
  if (stopped != nullptr) *stopped = stops.stopped();
  return out;
}

TEST(StopStrings, EndTheTextWhereverPiecesBegin) {
  for (size_t step = 1; step < 20; ++step) {
    bool stopped = false;
    EXPECT_EQ(through({"END", "\n\n"}, "one EN two END three", step, &stopped), "one EN two ");
    EXPECT_TRUE(stopped);
    EXPECT_EQ(through({"aab"}, "aaaab", step), "aa");
    EXPECT_EQ(through({"xyz", "c"}, "abcxyz", step), "ab");
  }
}

TEST(StopStrings, WhatOnlyBeginsLikeOneComesOutAtTheEnd) {
  for (size_t step = 1; step < 20; ++step) {
    bool stopped = true;
    EXPECT_EQ(through({"END", ""}, "the EN", step, &stopped), "the EN");
    EXPECT_FALSE(stopped);
  }
  EXPECT_EQ(through({}, "all of it", 4), "all of it");
}

TEST(StopStrings, CountWhereTheyEndBehindWhatIsExempt) {
  StopStrings stops({"aa", "the end", "e"});
  EXPECT_EQ(stops.push_exempt("one aa tree th"), "one aa tree ");
  EXPECT_EQ(stops.push_exempt("e"), "");  // what is held has a stop string that does not count
  EXPECT_EQ(stops.push(" "), "");
  EXPECT_EQ(stops.push("x"), "the x");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.push_exempt("aa"), "a");
  EXPECT_EQ(stops.push("ab"), "");
  EXPECT_EQ(stops.stopped_by(), "aa");
}

TEST(StopStrings, HoldBackNoMoreThanCouldBecomeOne) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("abE"), "ab");
  EXPECT_EQ(stops.push("x"), "Ex");
  EXPECT_EQ(stops.push("END"), "");
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_TRUE(stops.stopped());
}

}  // namespace
}  // namespace moeflux
