#include "state/sequence_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "backend/encoder.h"
#include "backend/reference/reference_device.h"

namespace moeflux {
namespace {

constexpr int64_t kPage = SequenceState::kPageTokens;

LayerStateSpec key_value_layer() {
  return {.kind = StateKind::kKeyValue, .num_kv_heads = 2, .head_dim = 8, .v_head_dim = 4};
}

LayerStateSpec delta_layer() {
  return {.kind = StateKind::kGatedDelta,
          .conv_taps = 4,
          .conv_channels = 10,
          .value_heads = 3,
          .key_dim = 8,
          .value_dim = 5};
}

constexpr int64_t kStepTokensMax = 1 << 20;
constexpr LayerId kDelta{0};
constexpr LayerId kAttention{1};

std::unique_ptr<SequenceState> make_state(Device& device) {
  auto state = SequenceState::create(device, {delta_layer(), key_value_layer()}, kStepTokensMax);
  EXPECT_TRUE(state.ok());
  return std::move(state).value();
}

TEST(LayerStateSpec, CountsBytesByKind) {
  EXPECT_EQ(key_value_layer().bytes_per_token(), 2u * (8 + 4) * sizeof(float));
  EXPECT_EQ(key_value_layer().bytes_fixed(), 0u);
  EXPECT_EQ(delta_layer().bytes_per_token(), 0u);
  EXPECT_EQ(delta_layer().bytes_fixed(), (3u * 10 + 3 * 8 * 5) * sizeof(float));
}

TEST(SequenceState, StartsEmptyWithItsRecurrentStateZero) {
  const auto device = make_reference_device();
  const auto state = make_state(*device);
  EXPECT_EQ(state->length(), 0);
  EXPECT_TRUE(state->key_value(kAttention).k_pages.empty());
  const DeltaStateView delta = state->gated_delta(kDelta);
  EXPECT_EQ(delta.conv.shape, (Shape{3, 10}));
  EXPECT_EQ(delta.delta.shape, (Shape{3, 8, 5}));
  for (const Tensor& tensor : {delta.conv, delta.delta}) {
    const float* values = host_ptr<float>(tensor);
    EXPECT_TRUE(
        std::all_of(values, values + tensor.num_elements(), [](float v) { return v == 0.0f; }));
  }
}

TEST(SequenceState, PagesGrowAtTheirBoundariesOnly) {
  const auto device = make_reference_device();
  const auto state = make_state(*device);
  const std::vector<std::pair<int64_t, size_t>> steps = {
      {1, 1}, {kPage, 1}, {kPage + 1, 2}, {2, 2}, {4 * kPage, 4}, {4 * kPage + 1, 5}};
  for (const auto& [length, pages] : steps) {
    ASSERT_TRUE(state->reserve(length).ok());
    const KvView kv = state->key_value(kAttention);
    EXPECT_EQ(kv.k_pages.size(), pages) << length;
    EXPECT_EQ(kv.v_pages.size(), pages) << length;
    EXPECT_EQ(kv.page_tokens, kPage);
  }
  EXPECT_EQ(state->key_value(kAttention).k_pages[4].shape, (Shape{kPage, 2, 8}));
  EXPECT_EQ(state->key_value(kAttention).v_pages[4].shape, (Shape{kPage, 2, 4}));
}

TEST(SequenceState, GrowingMovesNoPage) {
  const auto device = make_reference_device();
  const auto state = make_state(*device);
  ASSERT_TRUE(state->reserve(1).ok());
  float* first = host_ptr<float>(state->key_value(kAttention).k_pages[0]);
  first[0] = 7.0f;
  ASSERT_TRUE(state->reserve(100 * kPage).ok());
  EXPECT_EQ(host_ptr<float>(state->key_value(kAttention).k_pages[0]), first);
  EXPECT_EQ(first[0], 7.0f);
}

TEST(SequenceState, KeysAndValuesOfAPageDoNotOverlap) {
  const auto device = make_reference_device();
  const auto state = make_state(*device);
  ASSERT_TRUE(state->reserve(2 * kPage).ok());
  const KvView kv = state->key_value(kAttention);
  float mark = 0.0f;
  for (const auto& pages : {kv.k_pages, kv.v_pages}) {
    for (const Tensor& page : pages) {
      mark += 1.0f;
      std::fill_n(host_ptr<float>(page), page.num_elements(), mark);
    }
  }
  mark = 0.0f;
  for (const auto& pages : {kv.k_pages, kv.v_pages}) {
    for (const Tensor& page : pages) {
      mark += 1.0f;
      const float* values = host_ptr<float>(page);
      EXPECT_EQ(std::count(values, values + page.num_elements(), mark), page.num_elements());
    }
  }
}

TEST(SequenceState, LengthAdvancesAndIsSeenByEveryLayer) {
  const auto device = make_reference_device();
  const auto state = make_state(*device);
  ASSERT_TRUE(state->reserve(10).ok());
  state->advance(3);
  state->advance(4);
  EXPECT_EQ(state->length(), 7);
  EXPECT_EQ(state->key_value(kAttention).length, 7);
}

TEST(SequenceState, CountsItsMemory) {
  const auto device = make_reference_device();
  const auto state = make_state(*device);
  const uint64_t fixed = state->size_bytes();
  EXPECT_GE(fixed, delta_layer().bytes_fixed());
  ASSERT_TRUE(state->reserve(kPage + 1).ok());
  EXPECT_EQ(state->size_bytes() - fixed,
            2 * static_cast<uint64_t>(kPage) * key_value_layer().bytes_per_token());
}

/// Refuses memory beyond a number of buffers.
class SmallDevice : public Device {
 public:
  explicit SmallDevice(int buffers) : buffers_left_(buffers) {}
  std::string_view name() const override { return "small"; }
  std::string_view description() const override { return "small"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (buffers_left_-- <= 0) return Error(ErrorCode::kResourceExhausted, "full");
    return inner_->allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t bytes) override {
    return inner_->create_encoder(bytes);
  }

 private:
  std::unique_ptr<Device> inner_ = make_reference_device();
  int buffers_left_;
};

TEST(SequenceState, MemoryThatRunsOutIsAnErrorAndKeepsWhatThereWas) {
  SmallDevice none(0);
  const auto refused = SequenceState::create(none, {delta_layer()}, kStepTokensMax);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);

  SmallDevice two(2);
  const auto state = make_state(two);
  ASSERT_TRUE(state->reserve(kPage).ok());
  const Status grown = state->reserve(kPage + 1);
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(state->reserve(kPage).ok());
  EXPECT_EQ(state->key_value(kAttention).k_pages.size(), 1u);
}

}  // namespace
}  // namespace moeflux
