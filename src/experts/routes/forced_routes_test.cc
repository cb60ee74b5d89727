#include "experts/routes/forced_routes.h"

#include <gtest/gtest.h>

#include "experts/expert_world_test_util.h"
#include "tests/support/expect_error.h"
#include "tests/support/io/faulty_reader.h"

namespace moeflux {
namespace {

using Ids = std::vector<int32_t>;
using testing::expect_error;

/// Remembers what was written over a router's choice, and gives it back as a device would.
class OverwrittenEncoder : public RoutingEncoder {
 public:
  void write(Tensor to, std::span<const std::byte> from) override {
    if (to.dtype == DType::kI32) {
      ids.resize(from.size() / sizeof(int32_t));
      std::memcpy(ids.data(), from.data(), from.size());
    } else {
      weights.resize(from.size() / sizeof(float));
      std::memcpy(weights.data(), from.data(), from.size());
    }
  }
  Status read(std::span<std::byte> to, Tensor) override {
    EXPECT_EQ(to.size(), ids.size() * sizeof(int32_t));
    std::memcpy(to.data(), ids.data(), to.size());
    return {};
  }

  Ids ids;
  std::vector<float> weights;
};

constexpr std::string_view kColumns =
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";

// Layers 0 and 2, two experts a token: a prompt of two tokens and two tokens of decode.
RouteTrace recorded() {
  auto trace = RouteTrace::parse(
      "# route_trace v1\n# model=m arch=a n_layer=3 n_expert=16 n_expert_used=2\n" +
      std::string(kColumns) +
      "0,0,0,0,0,1,0.75,1,0\n0,0,0,0,1,2,0.25,1,0\n0,0,1,0,0,3,0.5,1,0\n0,0,1,0,1,4,0.5,1,0\n"
      "0,0,0,2,0,5,1,1,0\n0,0,0,2,1,6,0,1,0\n0,0,1,2,0,7,1,1,0\n0,0,1,2,1,8,0,1,0\n"
      "0,1,2,0,0,9,0.625,1,0\n0,1,2,0,1,15,0.375,1,0\n0,1,2,2,0,2,1,1,0\n0,1,2,2,1,3,0,1,0\n"
      "0,1,3,0,0,0,0.5,1,0\n0,1,3,0,1,12,0.5,1,0\n0,1,3,2,0,4,1,1,0\n0,1,3,2,1,5,0,1,0\n");
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.error().to_string());
  return std::move(trace).value();
}

class ForcedRoutesTest : public ::testing::Test {
 protected:
  std::unique_ptr<ExpertStore> forced(const ForcedRoutesOptions& options = {}) {
    auto routes = force_routes(trace_, world_.table(), options);
    EXPECT_TRUE(routes.ok()) << (routes.ok() ? "" : routes.error().to_string());
    auto store = world_.store(reader_, 12);
    store->routes().replace_by(std::move(routes).value());
    return store;
  }
  /// The experts that a layer is given where its router chose expert 11 throughout.
  Ids chosen(ExpertStore& store, int32_t layer, const StepRows& rows, int64_t top_k = 2) {
    const Delivery delivery = deliver(world_, store, encoder_, layer,
                                      Ids(static_cast<size_t>(rows.rows * top_k), 11), 1000, rows);
    EXPECT_TRUE(delivery.status.ok()) << delivery.status.error().to_string();
    const std::set<int32_t> distinct(encoder_.ids.begin(), encoder_.ids.end());
    EXPECT_EQ(delivery.sorted(), Ids(distinct.begin(), distinct.end()));
    return encoder_.ids;
  }

  ExpertWorld world_;
  FaultyReader reader_{{}};
  RouteTrace trace_ = recorded();
  OverwrittenEncoder encoder_;
};

TEST_F(ForcedRoutesTest, PromptsAndSingleTokensTakeTheirOwnTokensInTurn) {
  const auto store = forced();
  EXPECT_EQ(chosen(*store, 0, prompt_of(2)), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(chosen(*store, 0, prompt_of(3)), (Ids{1, 2, 3, 4, 1, 2}));
  EXPECT_EQ(chosen(*store, 0, prompt_of(2)), (Ids{3, 4, 1, 2}));
  EXPECT_EQ(chosen(*store, 0, kOneOfDecode).front(), 9);
  EXPECT_EQ(chosen(*store, 0, kOneOfDecode).front(), 0);
  EXPECT_EQ(chosen(*store, 0, kOneOfDecode).front(), 9);
}

TEST_F(ForcedRoutesTest, SequencesOfAStepAreSpreadOverTheTrace) {
  const std::vector<int64_t> top_k(world_.table().layers.size(), 2);
  const auto bytes = [&](std::initializer_list<StepRows> rows, int64_t steps) {
    const auto all = forced_expert_bytes(trace_, world_.table(), top_k, std::vector(rows), steps);
    EXPECT_TRUE(all.ok()) << (all.ok() ? "" : all.error().to_string());
    return all.ok() ? *all : 0.0;
  };
  // The trace has two tokens of decode, which share no expert: two sequences have one each, and of
  // three one has another's.
  const double one = bytes({kOneOfDecode}, 2);
  EXPECT_EQ(bytes({kOneOfDecode, kOneOfDecode}, 1), 2 * one);
  EXPECT_EQ(bytes({kOneOfDecode, kOneOfDecode, kOneOfDecode}, 2), 2 * one);
  EXPECT_EQ(bytes({prompt_of(1), prompt_of(1)}, 1), 2 * one);
}

TEST_F(ForcedRoutesTest, LayersTakeTheRoutedLayersOfTheTraceInOrder) {
  const auto store = forced();
  EXPECT_EQ(chosen(*store, 1, prompt_of(2)), (Ids{5, 6, 7, 8}));
  EXPECT_EQ(chosen(*store, 2, prompt_of(2)), (Ids{1, 2, 3, 4}));  // there is no third
}

TEST_F(ForcedRoutesTest, ExpertsAreTakenModuloTheLayersAndStayDistinct) {
  const auto store = forced();
  EXPECT_EQ(chosen(*store, 0, kOneOfDecode), (Ids{9, 3}));  // 15 of 12
  EXPECT_EQ(chosen(*store, 0, kOneOfDecode), (Ids{0, 1}));  // 12 of 12 is 0, which is taken
}

TEST_F(ForcedRoutesTest, RanksBeyondTheTracesComeFromTheTokensThatFollow) {
  const auto store = forced();
  EXPECT_EQ(chosen(*store, 0, prompt_of(2), 3), (Ids{1, 2, 3, 3, 4, 1}));
}

TEST_F(ForcedRoutesTest, WeightsStayTheRoutersUnlessAskedFor) {
  const auto store = forced();
  chosen(*store, 0, prompt_of(2));
  EXPECT_TRUE(encoder_.weights.empty());
  const auto with_weights = forced({.with_weights = true});
  chosen(*with_weights, 0, prompt_of(2));
  EXPECT_EQ(encoder_.weights, (std::vector<float>{0.75f, 0.25f, 0.5f, 0.5f}));
  chosen(*with_weights, 0, kOneOfDecode);
  EXPECT_EQ(encoder_.weights, (std::vector<float>{0.625f, 0.375f}));
}

TEST_F(ForcedRoutesTest, WeightsOfOtherRanksAreRefused) {
  const auto store = forced({.with_weights = true});
  const ScratchScope scope(encoder_);
  store->begin_step(std::span(&kOneOfDecode, 1), encoder_);
  expect_error(store->lease(LayerId{0}, encoder_, encoder_.choose({1, 2, 3})),
               ErrorCode::kInvalidArgument, {"layer 0", "2 weights", "model's 3"});
}

TEST_F(ForcedRoutesTest, NothingIsReadEarlyBecauseOfTheRouter) {
  const auto store = world_.store(reader_, 4, {}, LookaheadMode::kOn);
  EXPECT_TRUE(store->wants_hint(LayerId{0}));
  auto routes = force_routes(trace_, world_.table(), {});
  ASSERT_TRUE(routes.ok()) << routes.error().to_string();
  store->routes().replace_by(std::move(routes).value());
  EXPECT_FALSE(store->wants_hint(LayerId{0}));
}

TEST_F(ForcedRoutesTest, ATraceWithoutDecodeIsRefused) {
  const auto prompt = RouteTrace::parse(
      "# route_trace v1\n# model=m arch=a n_layer=1 n_expert=4 n_expert_used=1\n" +
      std::string(kColumns) + "0,0,0,0,0,1,1,1,0\n");
  ASSERT_TRUE(prompt.ok()) << prompt.error().to_string();
  expect_error(force_routes(*prompt, world_.table(), {}), ErrorCode::kInvalidArgument,
               {"no decode tokens"});
}

}  // namespace
}  // namespace moeflux
