#include "state/sequence_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/encoder.h"
#include "backend/reference/reference_device.h"
#include "backend/trace/trace_encoder.h"

namespace moeflux {
namespace {

constexpr int64_t kPage = SequenceState::kPageTokens;

LayerStateSpec key_value_layer() { return {{{.shape = {2, 8}}, {.shape = {2, 4}}}}; }

LayerStateSpec delta_layer() {
  return {{{.extent = StateExtent::kFixed, .shape = {3, 10}},
           {.extent = StateExtent::kFixed, .shape = {3, 8, 5}}}};
}

constexpr int64_t kStepTokensMax = 1 << 20;
constexpr LayerId kDelta{0};
constexpr LayerId kAttention{1};

std::unique_ptr<SequenceState> make_state(Device& device) {
  auto state = SequenceState::create(device, {delta_layer(), key_value_layer()}, kStepTokensMax);
  EXPECT_TRUE(state.ok());
  return std::move(state).value();
}

class SequenceStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto encoder = device_->create_encoder(0);
    ASSERT_TRUE(encoder.ok());
    encoder_ = std::move(encoder).value();
  }

  std::unique_ptr<Device> device_ = make_reference_device();
  std::unique_ptr<Encoder> encoder_;
};

TEST(LayerStateSpec, CountsBytesByExtent) {
  EXPECT_EQ(key_value_layer().bytes_per_token(), 2u * (8 + 4) * sizeof(float));
  EXPECT_EQ(key_value_layer().bytes_fixed(), 0u);
  EXPECT_EQ(delta_layer().bytes_per_token(), 0u);
  EXPECT_EQ(delta_layer().bytes_fixed(), (3u * 10 + 3 * 8 * 5) * sizeof(float));
}

TEST_F(SequenceStateTest, StartsEmptyWithItsRecurrentStateZero) {
  const auto state = make_state(*device_);
  EXPECT_EQ(state->length(), 0);
  EXPECT_TRUE(state->key_value(kAttention).k_pages.empty());
  EXPECT_EQ(state->fixed(kDelta, 0).shape, (Shape{3, 10}));
  EXPECT_EQ(state->fixed(kDelta, 1).shape, (Shape{3, 8, 5}));
  for (const Tensor& tensor : {state->fixed(kDelta, 0), state->fixed(kDelta, 1)}) {
    const float* values = host_ptr<float>(tensor);
    EXPECT_TRUE(
        std::all_of(values, values + tensor.num_elements(), [](float v) { return v == 0.0f; }));
  }
}

TEST_F(SequenceStateTest, PagesGrowAtTheirBoundariesOnly) {
  const auto state = make_state(*device_);
  const std::vector<std::pair<int64_t, size_t>> steps = {
      {1, 1}, {kPage, 1}, {kPage + 1, 2}, {2, 2}, {4 * kPage, 4}, {4 * kPage + 1, 5}};
  for (const auto& [length, pages] : steps) {
    ASSERT_TRUE(state->reserve(length, *encoder_).ok());
    const KvView kv = state->key_value(kAttention);
    EXPECT_EQ(kv.k_pages.size(), pages) << length;
    EXPECT_EQ(kv.v_pages.size(), pages) << length;
    EXPECT_EQ(kv.page_tokens, kPage);
  }
  EXPECT_EQ(state->key_value(kAttention).v_pages[4].shape, (Shape{kPage, 2, 4}));
}

// A GPU takes some 15 us for each allocation.
TEST_F(SequenceStateTest, TensorsShareAllocationsAndCopies) {
  const auto state = make_state(*device_);
  EXPECT_EQ(state->fixed(kDelta, 0).buffer, state->fixed(kDelta, 1).buffer);
  ASSERT_TRUE(state->reserve(2 * kPage, *encoder_).ok());
  const KvView kv = state->key_value(kAttention);
  EXPECT_EQ(kv.k_pages[1].buffer, kv.v_pages[1].buffer);
  EXPECT_NE(kv.k_pages[0].buffer, kv.k_pages[1].buffer);
  state->advance(10);
  const std::unique_ptr<SequenceState> shared = state->share();
  TraceEncoder trace;
  ASSERT_TRUE(state->reserve(11, trace).ok());
  EXPECT_EQ(trace.ops().size(), 2u) << trace.to_string();  // what has a fixed size, and pages
}

TEST_F(SequenceStateTest, GrowingMovesNoPage) {
  const auto state = make_state(*device_);
  ASSERT_TRUE(state->reserve(1, *encoder_).ok());
  float* first = host_ptr<float>(state->key_value(kAttention).k_pages[0]);
  first[0] = 7.0f;
  ASSERT_TRUE(state->reserve(100 * kPage, *encoder_).ok());
  EXPECT_EQ(host_ptr<float>(state->key_value(kAttention).k_pages[0]), first);
  EXPECT_EQ(first[0], 7.0f);
}

// A layer that is a position behind writes into the page before that of the step's first token.
TEST_F(SequenceStateTest, RowsBehindTheTextAreTheStatesOwn) {
  const LayerStateSpec behind{{{.shape = {2, 8}, .behind = 1}}};
  auto made = SequenceState::create(*device_, {key_value_layer(), behind}, kStepTokensMax);
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<SequenceState> state = std::move(made).value();
  const LayerId draft{1};
  ASSERT_TRUE(state->reserve(kPage, *encoder_).ok());
  state->advance(kPage);
  const auto first_page = [&](LayerId layer) { return state->pages(layer, 0)[0].buffer; };
  const Buffer* const own = first_page(draft);
  const Buffer* const keys = first_page(LayerId{0});
  const std::unique_ptr<SequenceState> shared = state->share();
  ASSERT_TRUE(state->reserve(kPage + 1, *encoder_).ok());
  EXPECT_NE(first_page(draft), own);
  EXPECT_EQ(first_page(LayerId{0}), keys);
  // Further rows grow that layer alone, and the text stays where it is.
  state->advance(1);
  ASSERT_TRUE(state->reserve_rows(draft, kPage, 2 * kPage + 1, *encoder_).ok());
  EXPECT_EQ(state->pages(draft, 0).size(), 3u);
  EXPECT_EQ(state->pages(LayerId{0}, 0).size(), 2u);
  EXPECT_EQ(state->length(), kPage + 1);
  EXPECT_TRUE(state->can_truncate(kPage));
}

TEST_F(SequenceStateTest, KeysAndValuesOfAPageDoNotOverlap) {
  const auto state = make_state(*device_);
  ASSERT_TRUE(state->reserve(2 * kPage, *encoder_).ok());
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

TEST_F(SequenceStateTest, LengthAdvancesAndIsSeenByEveryLayer) {
  const auto state = make_state(*device_);
  ASSERT_TRUE(state->reserve(10, *encoder_).ok());
  state->advance(3);
  state->advance(4);
  EXPECT_EQ(state->length(), 7);
  EXPECT_EQ(state->key_value(kAttention).length, 7);
}

TEST_F(SequenceStateTest, CountsItsMemory) {
  const auto state = make_state(*device_);
  const uint64_t fixed = state->size_bytes();
  EXPECT_GE(fixed, delta_layer().bytes_fixed());
  ASSERT_TRUE(state->reserve(kPage + 1, *encoder_).ok());
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

TEST_F(SequenceStateTest, MemoryThatRunsOutIsAnErrorAndKeepsWhatThereWas) {
  SmallDevice none(0);
  const auto refused = SequenceState::create(none, {delta_layer()}, kStepTokensMax);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);

  SmallDevice two(2);
  const auto state = make_state(two);
  ASSERT_TRUE(state->reserve(kPage, *encoder_).ok());
  const Status grown = state->reserve(kPage + 1, *encoder_);
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(state->reserve(kPage, *encoder_).ok());
  EXPECT_EQ(state->key_value(kAttention).k_pages.size(), 1u);
}

/// Computes nothing, and keeps what its work needs until a test lets go of it.
class KeepingEncoder : public TraceEncoder {
 public:
  void keep_alive(std::unique_ptr<Retained> resource) override {
    kept.push_back(std::move(resource));
  }
  std::vector<std::unique_ptr<Retained>> kept;
};

// A device copies later than it is asked to.
TEST_F(SequenceStateTest, WhatACopyReadsLivesUntilTheCopyHasEnded) {
  const auto memory = std::make_shared<StateMemory>(*device_);
  auto made = SequenceState::create(memory, {key_value_layer()}, kStepTokensMax);
  ASSERT_TRUE(made.ok());
  std::unique_ptr<SequenceState> first = std::move(made).value();
  ASSERT_TRUE(first->reserve(10, *encoder_).ok());
  first->advance(10);
  const uint64_t page_bytes = memory->near_bytes();
  const std::unique_ptr<SequenceState> second = first->share();
  KeepingEncoder later;
  ASSERT_TRUE(second->reserve(11, later).ok());
  first.reset();
  EXPECT_EQ(memory->near_bytes(), 2 * page_bytes);
  later.kept.clear();
  EXPECT_EQ(memory->near_bytes(), page_bytes);
}

// A sequence must not see what another has left, wherever its memory comes from.
TEST_F(SequenceStateTest, MemoryThatWasGivenBackIsClearedAndUsedAgain) {
  const auto memory = std::make_shared<StateMemory>(*device_);
  const auto make = [&] {
    auto made = SequenceState::create(memory, {delta_layer(), key_value_layer()}, kStepTokensMax,
                                      encoder_.get());
    EXPECT_TRUE(made.ok() && made.value()->reserve(10, *encoder_).ok());
    EXPECT_TRUE(encoder_->wait(encoder_->submit()).ok());
    return std::move(made).value();
  };
  const auto floats = [](const SequenceState& state) {
    const Tensor fixed = state.fixed(kDelta, 0);
    const Tensor keys = state.key_value(kAttention).k_pages.front();
    return std::vector<std::span<float>>{
        {host_ptr<float>(fixed), static_cast<size_t>(fixed.shape.num_elements())},
        {host_ptr<float>(keys), static_cast<size_t>(keys.shape.num_elements())}};
  };
  std::unique_ptr<SequenceState> state = make();
  std::vector<const float*> places;
  for (const std::span<float> own : floats(*state)) {
    std::ranges::fill(own, std::numeric_limits<float>::quiet_NaN());
    places.push_back(own.data());
  }
  state.reset();
  state = make();
  const std::vector<std::span<float>> again = floats(*state);
  for (size_t i = 0; i < again.size(); ++i) {
    const std::span<float> own = again[i];
    EXPECT_EQ(own.data(), places[i]);
    EXPECT_TRUE(std::ranges::all_of(own, [](float x) { return x == 0.0f; }));
  }
}

LayerStateSpec window_layer(int64_t window) {
  LayerStateSpec spec = key_value_layer();
  for (StateTensor& tensor : spec.tensors) tensor.window = window;
  return spec;
}

LayerStateSpec latent_layer() { return {{{.shape = {1, 6}}}}; }

/// Steps whose keys, values and recurrent state say at which token and in whose hands they were
/// written; with so many bytes of the device's own memory, the rest in the host's.
class WrittenStateTest : public SequenceStateTest,
                         public ::testing::WithParamInterface<std::optional<uint64_t>> {
 protected:
  static constexpr int64_t kStep = 64;
  using State = std::unique_ptr<SequenceState>;

  std::shared_ptr<StateMemory> memory_ = std::make_shared<StateMemory>(*device_);

  State make(std::vector<LayerStateSpec> layers) {
    if (GetParam()) memory_->bound({{.near_bytes = *GetParam(), .kept_bytes = *GetParam() / 4}});
    auto state = SequenceState::create(memory_, std::move(layers), kStep);
    EXPECT_TRUE(state.ok());
    return std::move(state).value();
  }
  static float* row(std::span<const Tensor> pages, int64_t position) {
    const Tensor& page = pages[static_cast<size_t>(position / kPage) % pages.size()];
    return host_ptr<float>(page.slice(0, position % kPage, 1));
  }
  void append(SequenceState& state, int64_t tokens, float mark) {
    while (tokens > 0) {
      const int64_t n = std::min(tokens, kStep);
      ASSERT_TRUE(state.reserve(state.length() + n, *encoder_).ok());
      for (int32_t i = 0; i < state.num_layers(); ++i) write(state, LayerId{i}, n, mark);
      state.advance(n);
      tokens -= n;
    }
  }
  static void write(SequenceState& state, LayerId layer, int64_t n, float mark) {
    if (!state.spec(layer).tensors.front().is_per_token()) {
      *host_ptr<float>(state.fixed(layer, 1)) += mark * static_cast<float>(n);
      *host_ptr<float>(state.fixed(layer, 0)) = mark;
      return;
    }
    const KvView kv = state.key_value(layer);
    for (int64_t t = kv.length; t < kv.length + n; ++t) {
      *row(kv.k_pages, t) = mark + static_cast<float>(t);
      if (state.spec(layer).tensors.size() > 1) *row(kv.v_pages, t) = -mark - static_cast<float>(t);
    }
  }
  static float key(const SequenceState& state, LayerId layer, int64_t position) {
    return *row(state.key_value(layer).k_pages, position);
  }
  static float value(const SequenceState& state, LayerId layer, int64_t position) {
    return *row(state.key_value(layer).v_pages, position);
  }
  static float delta(const SequenceState& state, LayerId layer) {
    return *host_ptr<float>(state.fixed(layer, 1));
  }
  std::vector<std::vector<std::byte>> bytes_of(const SequenceState& state) {
    std::vector<std::vector<std::byte>> all;
    for (int32_t i = 0; i < state.num_layers(); ++i) {
      const LayerId layer{i};
      all.emplace_back(SequenceState::layer_bytes(state.spec(layer), state.length()));
      EXPECT_TRUE(state.read_layer(*encoder_, layer, all.back()).ok());
    }
    return all;
  }
};

TEST_P(WrittenStateTest, SharedPastIsCopiedByWhoWritesFirst) {
  const State first = make({delta_layer(), key_value_layer()});
  append(*first, 10, 1000.0f);
  const State second = first->share();
  EXPECT_EQ(host_ptr<float>(first->key_value(kAttention).k_pages[0]),
            host_ptr<float>(second->key_value(kAttention).k_pages[0]));
  append(*first, 1, 2000.0f);
  append(*second, 1, 3000.0f);
  for (int64_t t = 0; t < 10; ++t) {
    EXPECT_EQ(key(*first, kAttention, t), 1000.0f + static_cast<float>(t));
    EXPECT_EQ(key(*second, kAttention, t), 1000.0f + static_cast<float>(t));
    EXPECT_EQ(value(*second, kAttention, t), -1000.0f - static_cast<float>(t));
  }
  EXPECT_EQ(key(*first, kAttention, 10), 2010.0f);
  EXPECT_EQ(key(*second, kAttention, 10), 3010.0f);
  EXPECT_EQ(value(*first, kAttention, 10), -2010.0f);
  EXPECT_EQ(delta(*first, kDelta), 12000.0f);
  EXPECT_EQ(delta(*second, kDelta), 13000.0f);
}

TEST_P(WrittenStateTest, WholePagesStaySharedAndTheLastOwnerDoesNotCopy) {
  const State first = make({delta_layer(), key_value_layer()});
  append(*first, kPage + 10, 1.0f);
  State second = first->share();
  append(*second, 1, 2.0f);
  const auto page = [](const SequenceState& state, size_t i) {
    return host_ptr<float>(state.key_value(kAttention).k_pages[i]);
  };
  EXPECT_EQ(page(*first, 0), page(*second, 0));
  EXPECT_NE(page(*first, 1), page(*second, 1));
  second.reset();
  const float* before = page(*first, 1);
  append(*first, 1, 3.0f);
  EXPECT_EQ(page(*first, 1), before);
}

TEST_P(WrittenStateTest, RingOfASharedPastKeepsWhatTheOtherOverwrites) {
  const State first = make({window_layer(16)});
  append(*first, 700, 10000.0f);
  const size_t ring = first->key_value(LayerId{0}).k_pages.size();
  ASSERT_EQ(ring, 2u);
  const State second = first->share();
  append(*first, 2 * kPage * static_cast<int64_t>(ring), 50000.0f);
  for (int64_t t = 700 - 15; t < 700; ++t) {
    EXPECT_EQ(key(*second, LayerId{0}, t), 10000.0f + static_cast<float>(t));
    EXPECT_EQ(value(*second, LayerId{0}, t), -10000.0f - static_cast<float>(t));
  }
}

TEST_P(WrittenStateTest, AttentionForgetsAtAnyPosition) {
  const State state = make({key_value_layer(), latent_layer()});
  append(*state, 600, 1.0f);
  EXPECT_TRUE(state->can_truncate(0) && state->can_truncate(300) && state->can_truncate(600));
  state->truncate(300);
  EXPECT_EQ(state->length(), 300);
  EXPECT_EQ(key(*state, LayerId{1}, 299), 300.0f);
}

TEST_P(WrittenStateTest, RecurrentStateDoesNotForget) {
  const State state = make({delta_layer(), key_value_layer()});
  append(*state, 5, 1.0f);
  EXPECT_TRUE(state->can_truncate(5));
  EXPECT_FALSE(state->can_truncate(4));
  EXPECT_FALSE(state->can_truncate(0));
  ASSERT_TRUE(state->reserve(6, *encoder_).ok());  // a step that never finishes
  EXPECT_FALSE(state->can_truncate(5));
}

TEST_P(WrittenStateTest, RingForgetsAsLongAsTheWindowIsHeld) {
  constexpr int64_t kWindow = 16;
  const State state = make({window_layer(kWindow)});
  append(*state, 3 * kPage, 1.0f);
  // Two pages: the tokens from kPage on are held.
  EXPECT_TRUE(state->can_truncate(3 * kPage));
  EXPECT_TRUE(state->can_truncate(kPage + kWindow - 1));
  EXPECT_FALSE(state->can_truncate(kPage + kWindow - 2));
  EXPECT_FALSE(state->can_truncate(1));
  EXPECT_TRUE(state->can_truncate(0));  // nothing is read
  state->truncate(kPage + kWindow);
  append(*state, 1, 1.0f);
  EXPECT_FALSE(state->can_truncate(kPage + kWindow - 2));  // forgetting brings nothing back
  for (int64_t t = kPage; t <= kPage + kWindow; ++t) {
    EXPECT_EQ(key(*state, LayerId{0}, t), 1.0f + static_cast<float>(t));
  }
  state->truncate(0);
  append(*state, 40, 7.0f);
  EXPECT_TRUE(state->can_truncate(20));  // only rows written since are there
  EXPECT_EQ(key(*state, LayerId{0}, 20), 27.0f);
}

TEST_P(WrittenStateTest, BytesOfAStateFillAnotherWithOtherRings) {
  const std::vector<LayerStateSpec> specs = {delta_layer(), key_value_layer(), window_layer(16),
                                             latent_layer()};
  for (const int64_t length : {0, 1, 15, 16, 255, 256, 257, 700}) {
    const State from = make(specs);
    append(*from, length, 1.0f);
    const auto bytes = bytes_of(*from);
    EXPECT_EQ(bytes[2].size(), static_cast<size_t>(std::min<int64_t>(length, 15)) *
                                   window_layer(16).bytes_per_token());
    const std::vector<std::span<const std::byte>> views(bytes.begin(), bytes.end());
    auto to = SequenceState::create(*device_, specs, 5 * kPage);
    ASSERT_TRUE(to.ok());
    ASSERT_TRUE((*to)->fill(*encoder_, {length, length}, views).ok());
    EXPECT_EQ((*to)->length(), length);
    EXPECT_EQ(bytes_of(**to), bytes) << length;
    EXPECT_EQ((*to)->can_truncate(length), true);
  }
}

TEST_P(WrittenStateTest, FirstTokensOfAStateFillAnother) {
  const std::vector<LayerStateSpec> specs = {key_value_layer(), window_layer(1000), latent_layer()};
  const State from = make(specs);
  append(*from, 700, 1.0f);
  const auto bytes = bytes_of(*from);
  const std::vector<std::span<const std::byte>> views(bytes.begin(), bytes.end());
  for (const int64_t length : {0, 1, 255, 256, 257, 699, 700}) {
    const State cut = make(specs);
    append(*cut, length, 1.0f);
    const State to = make(specs);
    ASSERT_TRUE(to->fill(*encoder_, {.length = length, .of = 700}, views).ok());
    EXPECT_EQ(to->length(), length);
    EXPECT_EQ(bytes_of(*to), bytes_of(*cut)) << length;
    EXPECT_EQ(to->size_bytes(), cut->size_bytes());
  }
}

TEST_P(WrittenStateTest, FilledRingHoldsItsWindowOnly) {
  const State from = make({window_layer(16)});
  append(*from, 100, 1.0f);
  const auto bytes = bytes_of(*from);
  const std::vector<std::span<const std::byte>> views(bytes.begin(), bytes.end());
  const State to = make({window_layer(16)});
  ASSERT_TRUE(to->fill(*encoder_, {100, 100}, views).ok());
  EXPECT_TRUE(from->can_truncate(99));
  EXPECT_FALSE(to->can_truncate(99));
  const std::vector<LayerStateSpec> specs = {window_layer(16)};
  EXPECT_EQ(SequenceState::shortest_truncation(specs, 100), 100);
  EXPECT_EQ(SequenceState::shortest_truncation(specs, 15), 0);
  const std::vector<LayerStateSpec> recurrent = {key_value_layer(), delta_layer()};
  EXPECT_EQ(SequenceState::shortest_truncation(recurrent, 5), 5);
}

TEST_P(WrittenStateTest, MemoryThatRunsOutWhileCopyingKeepsThePast) {
  SmallDevice three(3);
  auto made = SequenceState::create(three, {delta_layer(), key_value_layer()}, kStep);
  ASSERT_TRUE(made.ok());
  const State state = std::move(made).value();
  append(*state, 5, 1.0f);
  const State shared = state->share();
  EXPECT_FALSE(state->reserve(6, *encoder_).ok());  // one of two copies fits
  EXPECT_EQ(bytes_of(*state), bytes_of(*shared));
  EXPECT_TRUE(state->can_truncate(5));
}

// All near, some of each, all far.
INSTANTIATE_TEST_SUITE_P(Near, WrittenStateTest,
                         ::testing::Values(std::nullopt, uint64_t{40} << 10, uint64_t{0}),
                         [](const auto& near) {
                           return near.param ? std::to_string(*near.param) : "unbounded";
                         });

}  // namespace
}  // namespace moeflux
