#include "state/step_batch.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "backend/reference/reference_device.h"

namespace moeflux {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges ranges_of(const StepBatch& batch) {
  Ranges ranges;
  for (const StepBatch::RowRange& range : batch.logits_ranges()) {
    ranges.emplace_back(range.begin, range.rows);
  }
  return ranges;
}

class StepBatchTest : public ::testing::Test {
 protected:
  std::unique_ptr<SequenceState> state(int64_t length) {
    auto made = SequenceState::create(*device_,
                                      {{{{.shape = {1, 4}}, {.shape = {1, 4}}}},
                                       {{{.extent = StateExtent::kFixed, .shape = {3, 8}},
                                         {.extent = StateExtent::kFixed, .shape = {1, 2, 2}}}}},
                                      64);
    EXPECT_TRUE(made.ok() && (*made)->reserve(length, *encoder_).ok());
    (*made)->advance(length);
    return std::move(made).value();
  }

  std::unique_ptr<Device> device_ = make_reference_device();
  std::unique_ptr<Encoder> encoder_ = std::move(device_->create_encoder(0)).value();
};

TEST_F(StepBatchTest, KnowsWhoseTheRowsAre) {
  const auto first = state(7);
  const auto second = state(30);
  StepBatch batch;
  batch.add(*first, {.rows = 1, .phase = StepPhase::kDecode, .logits_rows = 1});
  batch.add(*second, {.rows = 5, .phase = StepPhase::kPrompt});
  EXPECT_EQ(batch.rows(), 6);
  EXPECT_EQ(batch.decode_rows(), 1);
  ASSERT_EQ(batch.sequences().size(), 2u);
  EXPECT_EQ(batch.sequences()[0].position, 7);
  EXPECT_EQ(batch.sequences()[1].position, 30);
  const std::span<const KvRows> rows = batch.key_values(LayerId{0});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].rows, 1);
  EXPECT_EQ(rows[0].kv.length, 7);
  EXPECT_EQ(rows[1].rows, 5);
  EXPECT_EQ(rows[1].kv.k_pages.data(), second->key_value(LayerId{0}).k_pages.data());
  const std::span<const StateRows> conv = batch.states(LayerId{1}, 0);
  ASSERT_EQ(conv.size(), 2u);
  EXPECT_EQ(conv[1].rows, 5);
  EXPECT_EQ(conv[1].state.buffer, second->fixed(LayerId{1}, 0).buffer);
  const std::span<const StateRows> delta = batch.states(LayerId{1}, 1);
  ASSERT_EQ(delta.size(), 2u);
  EXPECT_EQ(delta[0].state.buffer, first->fixed(LayerId{1}, 1).buffer);
  EXPECT_EQ(delta[0].state.shape, (Shape{1, 2, 2}));
}

TEST_F(StepBatchTest, RowsWithLogitsAreRangesThatDoNotTouch) {
  const auto s = state(0);
  StepBatch batch;
  EXPECT_TRUE(batch.logits_ranges().empty());
  batch.add(*s, {.rows = 1, .logits_rows = 1});
  batch.add(*s, {.rows = 1, .logits_rows = 1});
  EXPECT_EQ(ranges_of(batch), (Ranges{{0, 2}}));
  batch.add(*s, {.rows = 3});
  batch.add(*s, {.rows = 4, .logits_rows = 1});
  batch.add(*s, {.rows = 2, .logits_rows = 2});
  EXPECT_EQ(ranges_of(batch), (Ranges{{0, 2}, {8, 3}}));
  EXPECT_EQ(batch.logits_rows(), 5);
  batch.clear();
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_EQ(batch.logits_rows(), 0);
  EXPECT_TRUE(ranges_of(batch).empty());
}

TEST_F(StepBatchTest, DecodeComesFirst) {
  const auto s = state(0);
  StepBatch batch;
  batch.add(*s, {.rows = 2, .phase = StepPhase::kPrompt});
  EXPECT_DEATH(batch.add(*s, {.rows = 1, .phase = StepPhase::kDecode}), "");
}

}  // namespace
}  // namespace moeflux
