#include "lab/saved_logits.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

using testing::expect_error;

// A file as the format says: two windows of seven tokens, of which positions 3, 4 and 5 have rows
// over three ids (and a fourth code that rounds up).
struct SavedFile {
  std::string magic = "_logits_";
  uint32_t window = 7;
  int32_t vocab = 3;
  int32_t windows = 2;
  std::vector<int32_t> tokens = {0, 1, 2, 0, 1, 2, 0, 2, 1, 0, 2, 1, 0, 2};
  struct Row {
    float scale = 0.0f;
    float least = std::log(1.0f / 3.0f);
    std::array<uint16_t, 4> codes = {0, 0, 0, 0xdead};
  };
  std::vector<Row> rows = std::vector<Row>(6);

  std::string bytes() const {
    std::string out = magic;
    const auto add = [&out](const auto& number) {
      out.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    add(window);
    add(vocab);
    add(windows);
    for (const int32_t token : tokens) add(token);
    for (const Row& row : rows) add(row);
    return out;
  }
};

Result<SavedLogits> open(const std::string& bytes) {
  return SavedLogits::open(std::make_unique<MemoryFile>("base.bin", bytes));
}

TEST(SavedLogits, HasTokensAndTheRowOfEachScoredPosition) {
  SavedFile file;
  // 0.5, 0.25 and 0.25; codes count from the least.
  const SavedFile::Row uneven{
      .scale = std::log(2.0f) / 1000.0f, .least = std::log(0.25f), .codes = {0, 1000, 0, 0xdead}};
  file.rows[1] = uneven;  // window 0, position 4
  file.rows[5] = {.scale = uneven.scale, .least = uneven.least, .codes = {1000, 0, 0, 0}};
  auto saved = open(file.bytes());
  ASSERT_TRUE(saved.ok()) << saved.error().to_string();
  EXPECT_EQ(saved->window(), 7);
  EXPECT_EQ(saved->windows(), 2);
  EXPECT_EQ(saved->vocab_size(), 3);
  EXPECT_EQ(saved->tokens(), file.tokens);
  const auto probabilities = [&](int64_t window, int64_t position) {
    std::vector<float> row(3);
    const Status read = saved->read_row(window, position, row);
    EXPECT_TRUE(read.ok()) << read.error().to_string();
    for (float& value : row) value = std::round(std::exp(value) * 100.0f);
    return row;
  };
  EXPECT_EQ(probabilities(0, 3), (std::vector<float>{33, 33, 33}));
  EXPECT_EQ(probabilities(0, 4), (std::vector<float>{25, 50, 25}));
  EXPECT_EQ(probabilities(1, 3), (std::vector<float>{33, 33, 33}));
  EXPECT_EQ(probabilities(1, 5), (std::vector<float>{50, 25, 25}));
}

// 3 ids of 0.5, 0.4999 and e^-24, of which the last is 16 nats below the first in the file.
TEST(SavedLogits, IdsSavedAsTheLeastShareWhatTheOthersLeave) {
  SavedFile file;
  const float least = std::log(0.5f) - 16.0f;
  file.rows[0] = {.scale = 16.0f / 65535.0f, .least = least, .codes = {65535, 65534, 0, 0}};
  auto saved = open(file.bytes());
  ASSERT_TRUE(saved.ok()) << saved.error().to_string();
  std::vector<float> row(3);
  ASSERT_TRUE(saved->read_row(0, 3, row).ok());
  EXPECT_NEAR(row[0], std::log(0.5f), 1e-5f);
  EXPECT_LE(row[2], least);
  EXPECT_GT(row[2], -100.0f);
}

TEST(SavedLogits, ScoredPositionsAreThoseOfTheSecondHalf) {
  EXPECT_EQ(first_scored_position(512), 256);
  EXPECT_EQ(first_scored_position(7), 3);
  EXPECT_EQ(first_scored_position(3), 1);
}

TEST(SavedLogits, RefusesWhatIsNoSuchFile) {
  for (const std::string bytes : {"", "_logits_", "GGUF and twenty more bytes"}) {
    expect_error(open(bytes), ErrorCode::kCorruption, {"base.bin", "_logits_"});
  }
}

TEST(SavedLogits, RefusesNumbersThatNoSuchFileHas) {
  const auto expect_refused = [](const std::function<void(SavedFile&)>& change, ErrorCode code,
                                 std::initializer_list<std::string_view> pieces) {
    SavedFile file;
    change(file);
    expect_error(open(file.bytes()), code, pieces);
  };
  using F = SavedFile;
  constexpr ErrorCode kBad = ErrorCode::kCorruption;
  expect_refused([](F& f) { f.window = 0; }, kBad, {"base.bin", "windows of 0 tokens"});
  expect_refused([](F& f) { f.window = 2; }, kBad, {"windows of 2 tokens", "at least 3"});
  expect_refused([](F& f) { f.vocab = 0; }, kBad, {"over 0 ids"});
  expect_refused([](F& f) { f.vocab = -3; }, kBad, {"over -3 ids"});
  expect_refused([](F& f) { f.vocab = (1 << 24) + 1; }, kBad, {"16777217", "16777216"});
  expect_refused([](F& f) { f.windows = 0; }, kBad, {"0 windows"});
  expect_refused([](F& f) { f.windows = -1; }, kBad, {"-1 windows"});
  // More than any text has, whose sizes would overflow.
  expect_refused(
      [](F& f) {
        f.window = 0xffffffff;
        f.windows = 0x7fffffff;
        f.vocab = 1 << 24;
      },
      ErrorCode::kUnsupported, {"2147483647", "4294967295", "268435456"});
  // As many as it may, of which the file has none: refused before memory is taken.
  expect_refused(
      [](F& f) {
        f.window = 1 << 28;
        f.windows = 1;
        f.vocab = 1 << 24;
      },
      kBad, {"172 bytes", "expected 4503601741299724"});
  expect_refused([](F& f) { f.tokens[5] = 3; }, kBad, {"token 5 is 3", "below 3"});
  expect_refused([](F& f) { f.tokens[13] = -1; }, kBad, {"token 13 is -1"});
}

TEST(SavedLogits, RefusesAFileOfAnotherSize) {
  const std::string whole = SavedFile().bytes();
  ASSERT_EQ(whole.size(), 20u + 14 * 4 + 6 * 16);
  expect_error(open(whole.substr(0, whole.size() - 1)), ErrorCode::kCorruption,
               {"base.bin", "171 bytes", "expected 172"});
  expect_error(open(whole + "x"), ErrorCode::kCorruption, {"173 bytes", "expected 172"});
  expect_error(open(whole.substr(0, 24)), ErrorCode::kCorruption, {"24 bytes", "expected 172"});
}

TEST(SavedLogits, RefusesRowsThatAreNoProbabilities) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto read = [](const SavedFile::Row& row) {
    SavedFile file;
    file.rows[4] = row;
    auto saved = open(file.bytes());
    EXPECT_TRUE(saved.ok());
    std::vector<float> into(3);
    return saved->read_row(1, 4, into);
  };
  EXPECT_TRUE(read({}).ok());
  const auto expect_refused = [&](const SavedFile::Row& row) {
    expect_error(read(row), ErrorCode::kCorruption,
                 {"base.bin", "position 4 of window 1", "expected 1"});
  };
  expect_refused({.least = 0.0f});
  expect_refused({.least = -8.0f});
  expect_refused({.least = std::nanf("")});
  expect_refused({.least = -kInfinity});
  expect_refused({.scale = std::nanf("")});
  expect_refused({.scale = kInfinity});
  expect_refused({.scale = 3e38f, .codes = {65535, 65535, 65535, 0}});
}

}  // namespace
}  // namespace moeflux
