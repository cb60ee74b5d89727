#include "experts/resident_expert_store.h"

#include <gtest/gtest.h>

#include <numeric>

#include "experts/expert_world_test_util.h"
#include "io/faulty/faulty_reader.h"

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
      make_resident_expert_store(world.table(), world.index(), reader, device_world.device());
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

TEST(ResidentExpertStore, NamesTheLayerWhoseReadFailed) {
  ExpertWorld world;
  FaultyReader reader({.failure_probability = 1.0});
  const auto store =
      make_resident_expert_store(world.table(), world.index(), reader, world.device());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), ErrorCode::kIo);
  EXPECT_NE(store.error().message().find("layer 0"), std::string::npos)
      << store.error().to_string();
}

}  // namespace
}  // namespace moeflux
