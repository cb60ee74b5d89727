#include "load/ngram_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/reference/reference_device.h"
#include "tests/support/expect_error.h"
#include "tests/support/io/faulty_reader.h"
#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

using testing::expect_error;

constexpr int64_t kDim = 4;
constexpr int64_t kPartRows = 40;

/// A table of 80 rows in two parts, of which row r holds r, r + 1/4, r + 1/2 and r + 3/4.
class NgramRowsTest : public ::testing::Test {
 protected:
  NgramRowsTest() {
    std::vector<float> numbers;
    for (int64_t i = 0; i < 2 * kPartRows * kDim; ++i) {
      numbers.push_back(static_cast<float>(i) / 4.0f);
    }
    std::vector<std::unique_ptr<File>> files;
    TensorIndex::Entries entries;
    const size_t half = numbers.size() / 2;
    for (int32_t i = 0; i < 2; ++i) {
      const auto own = std::span(numbers).subspan(static_cast<size_t>(i) * half, half);
      files.push_back(std::make_unique<MemoryFile>("part", std::as_bytes(own)));
      entries["part" + std::to_string(i)] = {.file = i,
                                             .offset_bytes = 0,
                                             .size_bytes = own.size_bytes(),
                                             .dtype = DType::kF32,
                                             .shape = {kPartRows, kDim}};
    }
    index_ = TensorIndex::from_parts(std::move(files), std::move(entries));
    NgramTable& table = tables_.emplace_back();
    table.layer = LayerId{3};
    table.hashes = {.ngram_size = 2,
                    .heads_per_ngram = 2,
                    .boundary = 0,
                    .multipliers = {3, 5},
                    .sizes = {37, 41},
                    .offsets = {0, 37}};
    table.row_dim = kDim;
    table.part_rows = kPartRows;
    for (const char* name : {"part0", "part1"}) {
      StoredModule& part = table.parts.emplace_back();
      part.name = name;
      part.format = QuantFormat::plain(DType::kF32);
      part.parts.codes = {name, index_.find(name)};
    }
  }

  FaultyReader* open(const FaultyReaderOptions& options) {
    auto reader = std::make_unique<FaultyReader>(options);
    FaultyReader* const own = reader.get();
    rows_ = std::make_unique<NgramRows>(index_, tables_, std::move(reader));
    return own;
  }
  std::vector<float> expected(const std::vector<NgramRows::Text>& texts) const {
    std::vector<float> numbers;
    for (const NgramRows::Text& text : texts) {
      for (size_t i = 0; i < text.tokens.size(); ++i) {
        std::vector<int64_t> rows(2);
        tables_[0].hashes.find_rows(text.past, text.tokens, i, rows);
        for (const int64_t row : rows) {
          for (int64_t c = 0; c < kDim; ++c) {
            numbers.push_back(static_cast<float>(row) + static_cast<float>(c) / 4.0f);
          }
        }
      }
    }
    return numbers;
  }
  /// The rows that a step writes.
  Result<std::vector<float>> write(int64_t tokens) {
    auto encoder = device_->create_encoder(0);
    auto buffer = device_->allocate(4096, MemoryKind::kDevice);
    EXPECT_TRUE(encoder.ok() && buffer.ok());
    const Tensor to = Tensor::view(**buffer, 0, {tokens, 2 * kDim}, DType::kF32);
    MF_RETURN_IF_ERROR(rows_->write_rows(LayerId{3}, **encoder, to));
    std::vector<float> values(static_cast<size_t>(to.num_elements()));
    MF_RETURN_IF_ERROR((*encoder)->read(std::as_writable_bytes(std::span(values)), to));
    return values;
  }

  std::unique_ptr<Device> device_ = make_reference_device();
  TensorIndex index_;
  std::vector<NgramTable> tables_;
  std::unique_ptr<NgramRows> rows_;
  const std::vector<TokenId> past_ = {4, 7, 1};
  const std::vector<TokenId> first_ = {9, 9, 9, 2, 11};
  const std::vector<TokenId> second_ = {1};
  const std::vector<NgramRows::Text> texts_ = {{past_, first_}, {{}, second_}};
};

TEST_F(NgramRowsTest, ComeInTheOrderOfTokensAndHeads) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    open({.seed = seed, .delay_waits_max = 3, .completions_per_wait_max = 2, .piece_bytes_max = 5});
    ASSERT_TRUE(rows_->begin_step(texts_).ok());
    const auto values = write(6);
    ASSERT_TRUE(values.ok()) << values.error().to_string();
    EXPECT_EQ(*values, expected(texts_));
  }
}

TEST_F(NgramRowsTest, AreReadOnceAStep) {
  const FaultyReader* reader = open({});
  const std::vector<TokenId> same = {5, 5, 5, 5, 5, 5};
  ASSERT_TRUE(rows_->begin_step(std::vector<NgramRows::Text>{{{}, same}}).ok());
  EXPECT_EQ(reader->reads_submitted(), 4u);  // after the boundary, and after another 5
  EXPECT_TRUE(write(6).ok());
}

TEST_F(NgramRowsTest, AFailureEndsTheStepAndTheNextOneIsWhole) {
  open({.failing_reads = {3}});
  ASSERT_TRUE(rows_->begin_step(texts_).ok());
  expect_error(write(6), ErrorCode::kIo, {"layer 3", "n-grams"});
  ASSERT_TRUE(rows_->begin_step(texts_).ok());
  const auto values = write(6);
  ASSERT_TRUE(values.ok()) << values.error().to_string();
  EXPECT_EQ(*values, expected(texts_));
}

TEST_F(NgramRowsTest, CountWhatTheyReadAndNothingOfAStepThatFailed) {
  const FaultyReader* reader = open({});
  ASSERT_TRUE(rows_->begin_step(texts_).ok());
  EXPECT_EQ(rows_->bytes_read(), 0u);
  ASSERT_TRUE(write(6).ok());
  const uint64_t row_bytes = kDim * sizeof(float);
  EXPECT_EQ(rows_->bytes_read(), reader->reads_submitted() * row_bytes);
  ASSERT_TRUE(rows_->begin_step(texts_).ok());
  ASSERT_TRUE(write(6).ok());
  EXPECT_EQ(rows_->bytes_read(), reader->reads_submitted() * row_bytes);
  open({.failing_reads = {3}});
  ASSERT_TRUE(rows_->begin_step(texts_).ok());
  EXPECT_FALSE(write(6).ok());
  EXPECT_EQ(rows_->bytes_read(), 0u);
}

// All rows differ at worst, and smaller steps come before the largest.
TEST_F(NgramRowsTest, HoldNoMoreThanIsPlanned) {
  constexpr int kDepth = 4;
  open({});
  std::vector<TokenId> tokens(64);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * i + 1);
  for (const size_t count : {1u, 17u, 16u, 64u, 3u, 64u}) {
    const auto text = std::span<const TokenId>(tokens).first(count);
    ASSERT_TRUE(rows_->begin_step(std::vector<NgramRows::Text>{{{}, text}}).ok());
    ASSERT_TRUE(write(static_cast<int64_t>(count)).ok());
  }
  const uint64_t landing = kDepth * 2 * kDirectAlignment;
  const uint64_t planned = NgramRows::memory_bytes(tables_, 64, kDepth);
  EXPECT_LE(rows_->held_bytes() + landing, planned);
  // Rows twice and their numbers, and requests, which the reader has as well.
  EXPECT_GE(planned, landing + 64 * 2 * (2 * (8 + kDim * 4) + kDim * 4 + 2 * sizeof(ReadRequest)));
  EXPECT_LE(planned, 2 * landing + 3 * rows_->held_bytes());
  EXPECT_EQ(NgramRows::memory_bytes({}, 64, kDepth), 0u);
}

// A step that failed elsewhere leaves its reads in flight.
TEST_F(NgramRowsTest, AStepThatNobodyWaitedForIsForgotten) {
  open({.delay_waits_max = 2});
  const std::vector<TokenId> other = {13, 17, 19, 23, 29, 31, 8, 3};
  ASSERT_TRUE(rows_->begin_step(std::vector<NgramRows::Text>{{{}, other}}).ok());
  ASSERT_TRUE(rows_->begin_step(texts_).ok());
  const auto values = write(6);
  ASSERT_TRUE(values.ok()) << values.error().to_string();
  EXPECT_EQ(*values, expected(texts_));
}

}  // namespace
}  // namespace moeflux
