#include "experts/stores/resident_expert_store.h"

#include <gtest/gtest.h>

#include <numeric>

#include "experts/expert_world_test_util.h"
#include "tests/support/io/faulty_reader.h"

namespace moeflux {
namespace {

/// An encoder that must not be asked for ids.
class UnreadEncoder : public RoutingEncoder {
 public:
  Status read(std::span<std::byte>, Tensor) override {
    ADD_FAILURE() << "a resident layer needs no ids on the host";
    return {};
  }
};

TEST(ResidentExpertStore, DeliversTheWholeLayerInOneWaveWithoutReadingIds) {
  const ExpertWorld world;
  FaultyReader reader({});
  ExpertWorld device_world;
  auto store =
      make_resident_expert_store(world.table(), world.index(), reader, device_world.device(), {});
  ASSERT_TRUE(store.ok()) << store.error().to_string();
  std::vector<int32_t> all(ExpertWorld::kExperts);
  std::iota(all.begin(), all.end(), 0);
  UnreadEncoder encoder;
  const uint64_t reads = reader.reads_submitted();
  for (int32_t layer = 0; layer < ExpertWorld::kLayers; ++layer) {
    const Delivery delivery = deliver(world, **store, encoder, layer, {3, 1});
    EXPECT_TRUE(delivery.status.ok());
    EXPECT_EQ(delivery.waves, std::vector<std::vector<int32_t>>{all});
    EXPECT_TRUE(delivery.bytes_right) << "layer " << layer;
  }
  EXPECT_EQ(reader.reads_submitted(), reads);
  EXPECT_EQ((*store)->stats().bytes_read, world.table().bytes_total());
  EXPECT_EQ((*store)->capacity_bytes(), resident_experts_bytes(world.table()));
}

TEST(ResidentExpertStore, NamesTheExpertWhoseReadFailed) {
  ExpertWorld world;
  constexpr uint64_t kReadsPerExpert = 3;
  FaultyReader reader({.reorder = false, .failing_reads = {14 * kReadsPerExpert}});
  const auto store =
      make_resident_expert_store(world.table(), world.index(), reader, world.device(), {});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), ErrorCode::kIo);
  EXPECT_NE(store.error().message().find("layer 1 expert 2"), std::string::npos)
      << store.error().to_string();
  EXPECT_EQ(reader.in_flight(), 0u);
}

TEST(ResidentExpertStore, ComparesChecksumsUnlessToldToTrust) {
  ExpertWorld world;
  ExpertTable damaged = world.table();
  damaged.layers[2].checksums.assign(ExpertWorld::kExperts, 1);
  damaged.layers[2].checked_bytes = damaged.layers[2].slot_bytes;
  FaultyReader reader({});
  const auto refused =
      make_resident_expert_store(damaged, world.index(), reader, world.device(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorruption);
  EXPECT_TRUE(make_resident_expert_store(damaged, world.index(), reader, world.device(),
                                         {.check_arrivals = false})
                  .ok());
}

class RouteRecorder : public RouteObserver {
 public:
  void routed(const LayerRoutes& routes, std::span<const ExpertId> misses) override {
    layer = index(routes.layer);
    position = routes.position;
    ids.assign(routes.ids.begin(), routes.ids.end());
    num_misses = misses.size();
  }
  int32_t layer = -1;
  int64_t position = -1;
  std::vector<int32_t> ids;
  size_t num_misses = 99;
};

TEST(ResidentExpertStore, TellsRoutesToWhoeverObserves) {
  ExpertWorld world;
  FaultyReader reader({});
  auto store = make_resident_expert_store(world.table(), world.index(), reader, world.device(), {});
  ASSERT_TRUE(store.ok());
  RouteRecorder recorder;
  (*store)->routes().observe(&recorder);
  RoutingEncoder encoder;  // the ids stand for weights too: as many bytes
  const StepRows rows{.rows = 1, .position = 17, .phase = StepPhase::kDecode};
  EXPECT_TRUE(deliver(world, **store, encoder, 2, {3, 1}, 1000, rows).status.ok());
  EXPECT_EQ(recorder.layer, 2);
  EXPECT_EQ(recorder.position, 17);
  EXPECT_EQ(recorder.ids, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(recorder.num_misses, 0u);
}

}  // namespace
}  // namespace moeflux
