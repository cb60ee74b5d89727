// How the groups of products of single tokens share the work and their multiprocessor's memory.
#include <algorithm>

#include "backend/gpu/plan_building.h"
#include "backend/gpu/unit_plans.h"

namespace moeflux::gpu {
namespace {

// Splits between two sums: so few that the sums take little memory, so many that SIMD groups seldom
// wait for each other.
constexpr uint32_t kBatchSplits = 64;
// Of a multiprocessor: what a group takes beside what it asks for, and how much more than a group
// may have there is in all.
constexpr uint32_t kReservedBytes = 1024;
// Groups that stay on a multiprocessor, and the fewest SIMD groups of theirs that take splits: a
// single group with all of them does as much as two with five each.
constexpr uint32_t kStaying = 2;
constexpr uint32_t kStayingSimdsMin = 6;
constexpr uint32_t kSimdsMin = 4;

uint32_t splits_of(uint32_t cols) { return groups_for(cols, kUnitSplit); }

uint32_t place_words(uint32_t bits) { return kUnitRows * (bits * kUnitBitWords + kUnitScaleWords); }

// `groups` that share the tiles as evenly as can be.
UnitOneLaunch make_launch(const UnitOneNeeds& needs, uint32_t groups, uint32_t simds,
                          uint32_t places) {
  UnitOneLaunch launch;
  launch.groups = std::min(groups, needs.tiles);
  UnitWalk& walk = launch.walk;
  walk.splits = splits_of(needs.cols);
  walk.tiles = groups_for(needs.tiles, launch.groups);
  walk.full = needs.tiles - launch.groups * (walk.tiles - 1);
  walk.batch = std::min(walk.tiles, std::max(1u, kBatchSplits / walk.splits));
  // No more than are busy in every turn.
  const uint32_t turns = groups_for(walk.tiles * walk.splits, simds);
  simds = groups_for(walk.tiles * walk.splits, turns);
  walk.simds = simds;
  walk.tile_step = simds / walk.splits;
  walk.split_step = simds % walk.splits;
  walk.places = places;
  const uint32_t batches = walk.batch < walk.tiles ? 2 : 1;
  walk.more = walk.splits * kUnitSplitBlocks * (kUnitBlockWords + 2) + kUnitZeroWords +
              batches * walk.batch * walk.splits * kUnitRows;
  walk.begin = (walk.more + needs.more + 3) / 4 * 4;
  const uint32_t words = walk.begin + simds * places * place_words(needs.bits);
  launch.bytes = words * static_cast<uint32_t>(sizeof(u32));
  return launch;
}

}  // namespace

UnitOneLaunch unit_one_launch(const UnitOneNeeds& needs, uint32_t cores, uint32_t most) {
  const uint32_t splits = splits_of(needs.cols);
  const auto fits = [&](const UnitOneLaunch& launch) {
    const uint32_t by_registers = needs.bits == 4 ? kUnitFits4 : kUnitFits8;
    return std::min((most + kReservedBytes) / (launch.bytes + kReservedBytes), by_registers);
  };
  const uint32_t few = std::max(1u, kUnitSimds / splits);
  const uint32_t places = few * splits > kUnitSimds ? uint32_t{kUnitPlaces} : 1;
  const UnitOneLaunch at_once =
      make_launch(needs, groups_for(needs.tiles, few), kUnitSimds, places);
  if (at_once.groups * needs.rows <= cores * fits(at_once)) return at_once;
  for (uint32_t staying = kStaying; staying > 0; --staying) {
    const uint32_t groups = std::max(1u, cores * staying / needs.rows);
    const uint32_t least = staying > 1 ? kStayingSimdsMin : kSimdsMin;
    for (uint32_t simds = kUnitSimds; simds >= least; --simds) {
      UnitOneLaunch launch = make_launch(needs, groups, simds, kUnitPlaces);
      launch.walk.by_splits = splits > kUnitSimds ? 1 : 0;
      if (fits(launch) >= staying) return launch;
    }
  }
  return make_launch(needs, needs.tiles, kSimdsMin, kUnitPlaces);
}

uint32_t unit_one_bytes_min(uint32_t bits, int64_t cols) {
  UnitOneNeeds needs;
  needs.bits = bits;
  needs.cols = static_cast<uint32_t>(cols);
  needs.more = kRouteWords;
  return make_launch(needs, 1, kSimdsMin, kUnitPlaces).bytes;
}

UnitOneLaunch unit_ranks_launch(uint32_t bits, uint32_t ranks, uint32_t more) {
  UnitOneNeeds needs;
  needs.bits = bits;
  needs.cols = ranks * kUnitSplit;
  needs.more = more;
  return make_launch(needs, 1, ranks, 1);
}

}  // namespace moeflux::gpu
