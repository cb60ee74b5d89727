// How the groups of products of single tokens share the work and their multiprocessor's memory.
#include <algorithm>
#include <optional>

#include "backend/gpu/plan_building.h"
#include "backend/gpu/unit_plans.h"

namespace moeflux::gpu {
namespace {

// Splits of a SIMD group between two sums: so few that the sums take little memory, so many that
// SIMD groups seldom wait for each other.
constexpr uint32_t kBatchSplits = 8;
// Of a multiprocessor: what a group takes beside what it asks for, and how much more than a group
// may have there is in all.
constexpr uint32_t kReservedBytes = 1024;
// The fewest SIMD groups that take splits: in each of two groups of a multiprocessor, or else in
// one, which with eight does as much as two with five each.
constexpr uint32_t kPairSimdsMin = 6;
constexpr uint32_t kSimdsMin = 4;
constexpr uint32_t kSimdsMax = kUnitThreadsMax / kSimdLanes;

uint32_t splits_of(uint32_t cols) { return groups_for(cols, kUnitSplit); }

uint32_t place_words(uint32_t bits) { return kUnitRows * (bits * kUnitBitWords + kUnitScaleWords); }

// Places begin where 128 bytes do: copies to 16 bytes off a multiple of 32 are requested twice from
// the second-level cache, which took an H200 47 us in place of 40.
uint32_t place_begin(uint32_t words) { return (words + 31) / 32 * 32; }

// How `groups` share tiles as evenly as can be: so many each of the first `full`, the others one
// less.
struct Shares {
  uint32_t most;
  uint32_t full;
};
Shares share_out(uint32_t tiles, uint32_t groups) {
  const uint32_t most = groups_for(tiles, groups);
  return {most, tiles - groups * (most - 1)};
}

// Of experts, at most, that a group has tiles of.
uint32_t experts_of_group(const UnitOneNeeds& needs, uint32_t tiles, bool spreads_first) {
  const uint32_t each = needs.expert_tiles;
  if (!spreads_first && each % tiles == 0) return 1;
  const uint32_t of_list = tiles < 2 ? 1 : (tiles - 2) / each + 2;
  return std::min(needs.tiles / each, of_list + (spreads_first ? 1 : 0));
}

// `groups` that share the tiles as evenly as can be; with spreads_first those of the first expert
// by themselves.
UnitOneLaunch make_launch(const UnitOneNeeds& needs, uint32_t groups, uint32_t simds,
                          uint32_t places, bool spreads_first = false) {
  UnitOneLaunch launch;
  launch.groups = std::min(groups, needs.tiles);
  UnitWalk& walk = launch.walk;
  walk.splits = splits_of(needs.cols);
  const Shares all = share_out(needs.tiles, launch.groups);
  walk.tiles = all.most;
  walk.full = all.full;
  const Shares first = spreads_first ? share_out(needs.expert_tiles, launch.groups) : all;
  launch.shared_tiles = first.most;
  launch.shared_full = first.full;
  const uint32_t experts =
      needs.expert_tiles == 0 ? 1 : experts_of_group(needs, walk.tiles, spreads_first);
  walk.staged = walk.splits * (needs.own_rows ? experts : 1);
  walk.batch = std::min(walk.tiles, std::max(1u, simds * kBatchSplits / walk.splits));
  // No more than are busy in every turn.
  const uint32_t turns = groups_for(walk.tiles * walk.splits, simds);
  simds = groups_for(walk.tiles * walk.splits, turns);
  walk.simds = simds;
  launch.threads = std::max(simds * kSimdLanes, uint32_t{kUnitThreads});
  walk.tile_step = simds / walk.splits;
  walk.split_step = simds % walk.splits;
  walk.places = places;
  const uint32_t batches = walk.batch < walk.tiles || experts > 1 ? 2 : 1;  // of one expert each
  walk.experts = walk.staged * kUnitSplitBlocks * (kUnitBlockWords + 2) + kUnitZeroWords +
                 batches * walk.batch * walk.splits * kUnitRows;
  walk.more = walk.experts + (needs.expert_tiles == 0 ? 0 : experts * kUnitStretchWords);
  walk.begin = place_begin(walk.more + needs.more);
  const uint32_t words = walk.begin + simds * places * place_words(needs.bits);
  launch.bytes = words * static_cast<uint32_t>(sizeof(u32));
  return launch;
}

// On a multiprocessor, by their memory.
uint32_t groups_that_fit(const UnitOneLaunch& launch, uint32_t most) {
  return (most + kReservedBytes) / (launch.bytes + kReservedBytes);
}

// Groups that stay, `per_core` a multiprocessor, with as many SIMD groups as memory allows.
std::optional<UnitOneLaunch> staying_launch(const UnitOneNeeds& needs, uint32_t cores,
                                            uint32_t per_core, uint32_t simds_min,
                                            uint32_t simds_max, uint32_t most) {
  const uint32_t groups = std::max(1u, cores * per_core / needs.rows);
  for (uint32_t simds = simds_max; simds >= simds_min; --simds) {
    UnitOneLaunch launch = make_launch(needs, groups, simds, kUnitPlaces, needs.shares_first);
    launch.walk.by_splits = !needs.makes_row && launch.walk.splits > kUnitSimds ? 1 : 0;
    if (groups_that_fit(launch, most) >= per_core) return launch;
  }
  return std::nullopt;
}

}  // namespace

UnitOneLaunch unit_one_launch(const UnitOneNeeds& needs, uint32_t cores, uint32_t most) {
  const uint32_t splits = splits_of(needs.cols);
  const uint32_t few = std::max(1u, kUnitSimds / splits);
  const uint32_t places = few * splits > kUnitSimds ? uint32_t{kUnitPlaces} : 1;
  const UnitOneLaunch at_once =
      make_launch(needs, groups_for(needs.tiles, few), kUnitSimds, places);
  uint32_t by_registers = needs.bits == 4 ? kUnitFits4 : kUnitFits8;
  if (needs.bits == 4 && needs.expert_tiles != 0) by_registers = kUnitExpertFits4;
  const uint32_t fit = std::min(groups_that_fit(at_once, most), by_registers);
  if (at_once.groups * needs.rows <= cores * fit) return at_once;
  // One group a multiprocessor makes the integers of a row once; two leave none without one where
  // groups come in rows, and of wide codes one has all the memory anyway.
  std::optional<UnitOneLaunch> launch;
  if (needs.bits == 4 && !needs.makes_row && cores % needs.rows == 0) {
    launch = staying_launch(needs, cores, 1, kUnitSimds + 1, kSimdsMax, most);
  }
  if (!launch) launch = staying_launch(needs, cores, 2, kPairSimdsMin, kUnitSimds, most);
  if (!launch) launch = staying_launch(needs, cores, 1, kSimdsMin, kUnitSimds, most);
  return launch ? *launch : make_launch(needs, needs.tiles, kSimdsMin, kUnitPlaces);
}

uint32_t unit_one_bytes_min(uint32_t bits, int64_t cols) {
  UnitOneNeeds needs;
  needs.bits = bits;
  needs.cols = static_cast<uint32_t>(cols);
  needs.more = kRouteWords;
  return make_launch(needs, 1, kSimdsMin, kUnitPlaces).bytes;
}

UnitOneLaunch unit_down_launch(const UnitOneNeeds& needs, uint32_t cores, uint32_t most) {
  const uint32_t experts = needs.tiles / needs.expert_tiles;
  const uint32_t groups = std::clamp(cores / needs.rows, groups_for(needs.expert_tiles, kUnitSimds),
                                     needs.expert_tiles);
  UnitOneLaunch launch;
  launch.groups = groups;
  const Shares shares = share_out(needs.expert_tiles, groups);
  UnitWalk& walk = launch.walk;
  walk.splits = splits_of(needs.cols);
  walk.staged = walk.splits * experts;
  walk.tiles = shares.most;
  walk.full = shares.full;
  walk.places = kUnitPlaces;
  walk.experts = walk.staged * kUnitSplitBlocks * (kUnitBlockWords + 2) + kUnitZeroWords +
                 walk.tiles * walk.staged * kUnitRows;
  walk.more = walk.experts + kUnitDownWords;
  walk.begin = place_begin(walk.more + needs.more);
  walk.simds = std::min(kSimdsMax, std::max(uint32_t{kUnitSimds}, walk.tiles * walk.staged));
  const auto bytes = [&] {
    const uint32_t words = walk.begin + walk.simds * walk.places * place_words(needs.bits);
    return words * static_cast<uint32_t>(sizeof(u32));
  };
  while (walk.simds > kUnitSimds && bytes() > most) --walk.simds;
  walk.tile_step = walk.simds / walk.splits;
  walk.split_step = walk.simds % walk.splits;
  launch.threads = walk.simds * kSimdLanes;
  launch.bytes = bytes();
  return launch;
}

UnitOneLaunch unit_ranks_launch(uint32_t bits, uint32_t ranks, uint32_t more) {
  UnitOneNeeds needs;
  needs.bits = bits;
  needs.cols = ranks * kUnitSplit;
  needs.more = more;
  return make_launch(needs, 1, ranks, 1);
}

}  // namespace moeflux::gpu
