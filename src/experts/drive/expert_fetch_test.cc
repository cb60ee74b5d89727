#include "experts/drive/expert_fetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "checkpoint/checksum.h"
#include "experts/expert_world_test_util.h"
#include "tests/support/expect_error.h"
#include "tests/support/io/faulty_reader.h"

namespace moeflux {
namespace {

using Slot = ExpertCache::Slot;
using testing::expect_error;

constexpr size_t kSlots = 4;

ExpertKey fetch_key(int32_t layer, int32_t expert) { return {LayerId{layer}, ExpertId{expert}}; }

class ExpertFetchTest : public ::testing::Test {
 protected:
  ExpertFetchTest() {
    auto memory = allocate_host_buffer(kSlots * world_.slot_bytes());
    EXPECT_TRUE(memory.ok());
    memory_ = std::move(memory).value();
  }

  ExpertFetch::Options options() {
    return {.memory = {memory_->host_data(), kSlots * world_.slot_bytes()},
            .slot_bytes = world_.slot_bytes()};
  }
  /// Everything that is in flight, by slot.
  static std::map<uint32_t, ExpertFetch::Arrival> all(ExpertFetch& fetch) {
    std::map<uint32_t, ExpertFetch::Arrival> arrived;
    while (fetch.in_flight() > 0) {
      for (ExpertFetch::Arrival& arrival : fetch.wait()) {
        const auto slot = static_cast<uint32_t>(arrival.slot);
        EXPECT_FALSE(arrived.contains(slot));
        arrived.emplace(slot, std::move(arrival));
      }
    }
    return arrived;
  }
  bool holds(Slot slot, ExpertKey of) {
    const ExpertLayer& layer = world_.table().layer(of.layer);
    return world_.holds_its_bytes(
        index(of.layer),
        layer.weights(of.expert, *memory_, static_cast<size_t>(slot) * world_.slot_bytes()));
  }

  ExpertWorld world_;
  std::unique_ptr<Buffer> memory_;
};

TEST_F(ExpertFetchTest, BringsEachExpertIntoItsSlotWhateverTheOrderOfItsReads) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FaultyReader reader({.seed = seed, .delay_waits_max = 3, .completions_per_wait_max = 1});
    ExpertFetch fetch(world_.table(), world_.index(), reader, options());
    const std::vector<ExpertKey> keys = {fetch_key(0, 3), fetch_key(2, 11), fetch_key(1, 0),
                                         fetch_key(2, 4)};
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      fetch.start(keys[slot], Slot{slot}, ReadPriority::kDemand);
      EXPECT_TRUE(fetch.is_in_flight(Slot{slot}));
      bytes += world_.table().layer(keys[slot].layer).bytes_per_expert();
    }
    const auto arrived = all(fetch);
    ASSERT_EQ(arrived.size(), kSlots);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_TRUE(arrived.at(slot).status.ok());
      EXPECT_TRUE(arrived.at(slot).key == keys[slot]);
      EXPECT_TRUE(holds(Slot{slot}, keys[slot])) << "seed " << seed << ", slot " << slot;
      EXPECT_FALSE(fetch.is_in_flight(Slot{slot}));
    }
    EXPECT_EQ(fetch.bytes_read(), bytes);
  }
}

TEST_F(ExpertFetchTest, ExtentsThatLieTogetherInFileAndSlotAreOneRead) {
  ExpertTable table = world_.table();
  std::vector<ExpertExtent>& extents = table.layers[0].extents;
  // Expert 0: its gate in two halves, then its up.
  const ExpertExtent gate = extents[0];
  const ExpertExtent up = extents[1];
  const uint64_t half = gate.bytes / 2;
  extents[0].bytes = half;
  extents[1] = {gate.file, gate.offset + half, gate.bytes - half, gate.slot_offset + half};
  extents[2] = up;
  FaultyReader reader({});
  ExpertFetch fetch(table, world_.index(), reader, options());
  fetch.start(fetch_key(0, 0), Slot{0}, ReadPriority::kDemand);
  EXPECT_EQ(reader.reads_submitted(), 2u);
  EXPECT_TRUE(all(fetch).at(0).status.ok());
  fetch.start(fetch_key(0, 1), Slot{1}, ReadPriority::kDemand);
  EXPECT_EQ(reader.reads_submitted(), 5u);
  EXPECT_TRUE(all(fetch).at(1).status.ok());
  EXPECT_TRUE(holds(Slot{1}, fetch_key(0, 1)));
}

/// Experts of layers 0 and 2 are copied to their slots from where they land; two may at a time.
class LandingTest : public ExpertFetchTest {
 protected:
  LandingTest() : table_(world_.table()) {
    for (const size_t layer : {0, 2}) {
      table_.layers[layer].arrangement = ExpertArrangement::kRowMajorParts;
    }
    options_ = options();
    options_.landing_bytes = 0;
  }
  ExpertTable table_;
  ExpertFetch::Options options_;
};

TEST_F(LandingTest, ExpertsBeyondTheRoomToLandWaitAndArriveWhole) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FaultyReader reader({.seed = seed, .delay_waits_max = 3, .completions_per_wait_max = 1});
    ExpertFetch fetch(table_, world_.index(), reader, options_);
    const std::vector<ExpertKey> keys = {fetch_key(0, 3), fetch_key(2, 11), fetch_key(1, 0),
                                         fetch_key(2, 4)};
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      fetch.start(keys[slot], Slot{slot}, ReadPriority::kDemand);
    }
    EXPECT_EQ(reader.reads_submitted(), 3u * 3u);
    EXPECT_TRUE(fetch.is_in_flight(Slot{3}));
    const auto arrived = all(fetch);
    ASSERT_EQ(arrived.size(), kSlots);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_TRUE(arrived.at(slot).status.ok());
      EXPECT_TRUE(holds(Slot{slot}, keys[slot])) << "seed " << seed << ", slot " << slot;
    }
  }
}

TEST_F(LandingTest, APromotedGuessLandsBeforeTheOthers) {
  FaultyReader reader({.completions_per_wait_max = 1});
  ExpertFetch fetch(table_, world_.index(), reader, options_);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    fetch.start(fetch_key(0, static_cast<int32_t>(slot)), Slot{slot}, ReadPriority::kSpeculative);
  }
  fetch.promote(Slot{3});
  std::vector<uint32_t> order;
  while (fetch.in_flight() > 0) {
    for (const ExpertFetch::Arrival& arrival : fetch.wait()) {
      order.push_back(static_cast<uint32_t>(arrival.slot));
    }
  }
  EXPECT_LT(std::ranges::find(order, 3u), std::ranges::find(order, 2u));
}

TEST_F(LandingTest, WhatIsCancelledWhileItWaitsArrivesAsCancelled) {
  FaultyReader reader({});
  ExpertFetch fetch(table_, world_.index(), reader, options_);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    fetch.start(fetch_key(0, static_cast<int32_t>(slot)), Slot{slot}, ReadPriority::kDemand);
  }
  fetch.cancel(Slot{2});
  const auto arrived = all(fetch);
  ASSERT_EQ(arrived.size(), 3u);
  EXPECT_TRUE(arrived.at(0).status.ok() && arrived.at(1).status.ok());
  expect_error(arrived.at(2).status, ErrorCode::kCancelled, {"layer 0 expert 2"});
  EXPECT_EQ(reader.reads_submitted(), 2u * 3u);
  fetch.start(fetch_key(0, 5), Slot{2}, ReadPriority::kDemand);  // the slot can be used again
  EXPECT_TRUE(all(fetch).at(2).status.ok());
  EXPECT_TRUE(holds(Slot{2}, fetch_key(0, 5)));
}

TEST_F(LandingTest, AFailedReadGivesItsRoomBack) {
  FaultyReader reader({.failing_reads = {0, 4}});
  ExpertFetch fetch(table_, world_.index(), reader, options_);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    fetch.start(fetch_key(2, static_cast<int32_t>(slot)), Slot{slot}, ReadPriority::kDemand);
  }
  const auto arrived = all(fetch);
  expect_error(arrived.at(0).status, ErrorCode::kIo, {"layer 2 expert 0"});
  expect_error(arrived.at(1).status, ErrorCode::kIo, {"layer 2 expert 1"});
  for (uint32_t slot = 2; slot < kSlots; ++slot) {
    EXPECT_TRUE(arrived.at(slot).status.ok());
    EXPECT_TRUE(holds(Slot{slot}, fetch_key(2, static_cast<int32_t>(slot))));
  }
}

TEST_F(LandingTest, ExpertsReadInPlaceAreWholeWhereTheirViewsSay) {
  for (ExpertLayer& layer : table_.layers) {
    layer.arrangement = ExpertArrangement::kAsStored;
    compute_in_place(layer);
    ASSERT_EQ(layer.arrangement, ExpertArrangement::kAsStored);  // for so few bytes
    compute_in_place(layer, 1e6);
    ASSERT_EQ(layer.arrangement, ExpertArrangement::kInPlace);
  }
  const size_t slot_bytes = table_.slot_bytes_max();
  EXPECT_EQ(slot_bytes % kDirectAlignment, 0u);
  auto memory = allocate_host_buffer(kSlots * slot_bytes);
  ASSERT_TRUE(memory.ok());
  FaultyReader reader({.delay_waits_max = 2});
  ExpertFetch fetch(
      table_, world_.index(), reader,
      {.memory = {(*memory)->host_data(), kSlots * slot_bytes}, .slot_bytes = slot_bytes});
  EXPECT_TRUE(fetch.landing_memory().empty());
  const std::vector<ExpertKey> keys = {fetch_key(0, 3), fetch_key(2, 11), fetch_key(1, 0),
                                       fetch_key(2, 4)};
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    fetch.start(keys[slot], Slot{slot}, ReadPriority::kDemand);
  }
  for (const auto& [slot, arrival] : all(fetch)) {
    EXPECT_TRUE(arrival.status.ok());
    const ExpertWeights weights =
        table_.layer(arrival.key.layer).weights(arrival.key.expert, **memory, slot * slot_bytes);
    EXPECT_TRUE(world_.holds_its_bytes(index(arrival.key.layer), weights)) << slot;
  }
}

TEST_F(LandingTest, TasksOfArrivalsMayRunInAnyOrder) {
  FaultyReader reader({});
  ExpertFetch fetch(table_, world_.index(), reader, options_);
  fetch.start(fetch_key(0, 7), Slot{0}, ReadPriority::kDemand);
  fetch.start(fetch_key(2, 7), Slot{1}, ReadPriority::kDemand);
  while (fetch.in_flight() > 0) {
    (void)fetch.wait([](int64_t count, const std::function<void(int64_t)>& fn) {
      for (int64_t i = count; i-- > 0;) fn(i);
    });
  }
  EXPECT_TRUE(holds(Slot{0}, fetch_key(0, 7)) && holds(Slot{1}, fetch_key(2, 7)));
}

TEST_F(ExpertFetchTest, AFailedReadNamesItsExpertAndLeavesTheOthers) {
  FaultyReader reader({.failing_reads = {1}});
  ExpertFetch fetch(world_.table(), world_.index(), reader, options());
  fetch.start(fetch_key(1, 5), Slot{2}, ReadPriority::kDemand);
  fetch.start(fetch_key(1, 6), Slot{0}, ReadPriority::kDemand);
  const auto arrived = all(fetch);
  expect_error(arrived.at(2).status, ErrorCode::kIo, {"layer 1 expert 5"});
  EXPECT_TRUE(arrived.at(0).status.ok());
  EXPECT_TRUE(holds(Slot{0}, fetch_key(1, 6)));
  EXPECT_EQ(fetch.bytes_read(), world_.table().layer(LayerId{1}).bytes_per_expert());
  fetch.start(fetch_key(1, 5), Slot{2}, ReadPriority::kDemand);  // the slot can be used again
  EXPECT_TRUE(all(fetch).at(2).status.ok());
  EXPECT_TRUE(holds(Slot{2}, fetch_key(1, 5)));
}

TEST_F(ExpertFetchTest, ADamagedExpertIsRefusedUnlessNobodyAsks) {
  ExpertTable table = world_.table();
  table.layers[0].checked_bytes = table.layers[0].slot_bytes;
  table.layers[0].checksums.assign(ExpertWorld::kExperts, 1);  // of none of them
  for (const bool check : {true, false}) {
    FaultyReader reader({});
    ExpertFetch::Options with = options();
    with.check_arrivals = check;
    ExpertFetch fetch(table, world_.index(), reader, with);
    fetch.start(fetch_key(0, 2), Slot{0}, ReadPriority::kDemand);
    const Status status = all(fetch).at(0).status;
    EXPECT_EQ(status.ok(), !check);
    if (check) expect_error(status, ErrorCode::kCorruption, {"layer 0 expert 2", "checksum"});
  }
}

TEST_F(ExpertFetchTest, NothingIsInFlightAfterIt) {
  FaultyReader reader({.delay_waits_max = 5});
  {
    ExpertFetch fetch(world_.table(), world_.index(), reader, options());
    EXPECT_TRUE(fetch.poll().empty());
    fetch.start(fetch_key(0, 1), Slot{0}, ReadPriority::kDemand);
    fetch.start(fetch_key(2, 1), Slot{1}, ReadPriority::kSpeculative);
  }
  EXPECT_EQ(reader.in_flight(), 0u);
}

}  // namespace
}  // namespace moeflux
