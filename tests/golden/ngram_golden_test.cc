// The golden model with an embedding of n-grams, whose table stays in its file: what happens when
// that cannot be read, and that no memory holds it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/tensor_index.h"
#include "engine/engine.h"
#include "plan/model_sizes.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr const char* kFamily = "qwen4_exp_text";
constexpr const char* kHashes = "model.layers.0.ple.ple_embedding.";

class NgramGolden : public ::testing::Test {
 protected:
  NgramGolden() {
    const std::string from = golden_folder(kFamily);
    for (const char* file : {"config.json", "model.safetensors"}) {
      write_bytes(folder_ / file, read_bytes(from + "/" + file));
    }
    tokens_ = read_golden(from + "/golden.safetensors")["tokens"].ints;
    auto engine = Engine::open(folder_.path(), *device_, {.expert_cache_bytes = uint64_t{1} << 30});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    engine_ = std::move(engine).value();
  }
  std::unique_ptr<Sequence> start() { return std::move(engine_->create_sequence()).value(); }
  Result<std::vector<float>> last(Sequence& sequence, std::span<const TokenId> tokens) {
    MF_ASSIGN_OR_RETURN(const std::span<const float> row, eval_last(*engine_, sequence, tokens));
    return std::vector<float>(row.begin(), row.end());
  }

  TempFolder folder_;
  std::unique_ptr<Device> device_ = make_test_device({});
  std::vector<TokenId> tokens_;
  std::unique_ptr<Engine> engine_;
};

// All experts that these tokens choose are cached by then: what is read is the table alone.
TEST_F(NgramGolden, AnUnreadableTableBreaksTheSequenceUntilItIsTruncated) {
  const auto expected = last(*start(), tokens_);
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  const auto sequence = start();
  ASSERT_TRUE(last(*sequence, std::span(tokens_).first(20)).ok());

  const std::string weights = folder_ / "model.safetensors";
  const std::string whole = read_bytes(weights);
  std::filesystem::resize_file(weights, 64);
  expect_error(last(*sequence, std::span(tokens_).subspan(20)), ErrorCode::kIo,
               {"layer 0", "n-grams", weights});
  expect_error(last(*sequence, std::span(tokens_).subspan(20)), ErrorCode::kFailedPrecondition,
               {"broke at token 20"});

  write_bytes(weights, whole);
  ASSERT_TRUE(engine_->truncate(*sequence, 19).ok());
  const auto again = last(*sequence, std::span(tokens_).subspan(19));
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(*again, *expected);
}

TEST_F(NgramGolden, RowsThatAStepReadsAreCountedApartFromExperts) {
  EXPECT_GT(engine_->memory_plan().table_rows_bytes, 0u);
  const auto sequence = start();
  ASSERT_TRUE(last(*sequence, std::span(tokens_).first(20)).ok());
  const ExpertStats prompt = engine_->expert_stats();
  constexpr uint64_t kRow = 16 * 2;  // bf16
  EXPECT_GT(prompt.table_bytes_read, 0u);
  EXPECT_EQ(prompt.table_bytes_read % kRow, 0u);
  ASSERT_TRUE(last(*sequence, std::span(tokens_).subspan(20, 1)).ok());
  const ExpertStats token = engine_->expert_stats() - prompt;
  EXPECT_GT(token.table_bytes_read, 0u);
  EXPECT_LT(token.table_bytes_read, prompt.table_bytes_read);
}

TEST_F(NgramGolden, NumbersThatNameRowsOutsideTheTableAreRefused) {
  const std::string weights = folder_ / "model.safetensors";
  const std::string whole = read_bytes(weights);
  const auto index = TensorIndex::open(folder_.path());
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  for (const char* of : {"layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"}) {
    const std::string name = std::string(kHashes) + of;
    const TensorEntry* entry = index->find(name);
    ASSERT_NE(entry, nullptr) << name;
    for (const int64_t value : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
      std::string changed = whole;
      std::memcpy(changed.data() + entry->offset_bytes, &value, sizeof(value));
      write_bytes(weights, changed);
      expect_error(load_model(folder_.path(), *device_, WeightLoading::kRead),
                   ErrorCode::kCorruption, {"rows of its heads"});
    }
  }
}

TEST_F(NgramGolden, TheTableIsCountedOnTheDriveAndNotInMemory) {
  const auto loaded = load_model(folder_.path(), *device_, WeightLoading::kRead);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  constexpr uint64_t kTable = uint64_t{4096} * 16;
  const ModelSizes sizes = measure_model(**loaded);
  EXPECT_EQ(sizes.table_bytes, 2 * kTable);
  EXPECT_EQ(sizes.parameters, (*loaded)->dense.parameters + kTable + 4 * 8 * 3 * 64 * 64);
  EXPECT_EQ(sizes.total_bytes(), sizes.dense_bytes + sizes.experts_bytes + sizes.table_bytes);
}

}  // namespace
}  // namespace moeflux::testing
