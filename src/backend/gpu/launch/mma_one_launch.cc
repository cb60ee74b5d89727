// How the groups of products of single tokens share the work and their multiprocessor's memory.
#include <algorithm>
#include <functional>
#include <optional>

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// Splits of a SIMD group between two sums: so few that the sums take little memory, so many that
// SIMD groups seldom wait for each other.
constexpr uint32_t kBatchSplits = 8;
// CUDA reserves so many bytes of shared memory for each group. A multiprocessor has as many more
// than the largest group may request.
constexpr uint32_t kReservedBytes = 1024;
// The fewest SIMD groups that take splits. Two groups share a multiprocessor only if each has
// kPairSimdsMin; one with eight is as fast as two with five. A single one is slow, but has the bits
// of matrix units where long rows leave a small GPU no room for more: f32 products have others.
constexpr uint32_t kPairSimdsMin = 6;
constexpr uint32_t kSimdsMin = 1;
uint32_t simds_max(const MmaOneNeeds& needs) {
  return (needs.knows_type ? kMmaKnownThreads : kMmaThreadsMax) / kSimdLanes;
}

uint32_t splits_of(uint32_t cols) { return groups_for(cols, kMmaSplit); }

// Where places may begin: copies to less than a multiple of 32 bytes are asked for twice in the
// second-level cache, which took an H200's gate and up from 41 to 47 us.
uint32_t place_begin(uint32_t words) { return (words + 7) / 8 * 8; }

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

// `groups` that share the tiles as evenly as can be; each knows `listed` experts.
MmaOneLaunch make_launch(const MmaOneNeeds& needs, uint32_t groups, uint32_t simds, uint32_t places,
                         uint32_t listed = 0) {
  MmaOneLaunch launch;
  launch.groups = std::min(groups, needs.tiles);
  MmaWalk& walk = launch.walk;
  walk.splits = splits_of(needs.cols);
  const Shares shares = share_out(needs.tiles, launch.groups);
  walk.tiles = shares.most;
  walk.full = shares.full;
  walk.batch = std::min(walk.tiles, std::max(1u, simds * kBatchSplits / walk.splits));
  // No more than are busy in every turn.
  const uint32_t turns = groups_for(walk.tiles * walk.splits, simds);
  simds = groups_for(walk.tiles * walk.splits, turns);
  walk.simds = simds;
  launch.threads = std::max(simds * kSimdLanes, uint32_t{kMmaThreads});
  walk.tile_step = simds / walk.splits;
  walk.split_step = simds % walk.splits;
  walk.places = turns == 1 ? 1 : places;
  walk.place_words = mma_place_words(needs.bits);
  walk.integers = needs.grid_words == 0 ? 0 : kGgmlGrid + needs.grid_words;
  walk.in_order = needs.bits >= kFormatGgml ? 1 : 0;
  const uint32_t sums = walk.in_order != 0 ? uint32_t{kGgmlSumWords} : 2;  // of a block
  const uint32_t batches = walk.batch < walk.tiles || listed > 1 ? 2 : 1;  // of one expert each
  launch.list.table = walk.integers + walk.splits * kMmaSplitBlocks * (kMmaBlockWords + sums) +
                      kMmaZeroWords + batches * walk.batch * walk.splits * kMmaRows;
  walk.more = launch.list.table + listed * kMmaListWords;
  walk.begin = place_begin(walk.more + needs.more);
  const uint32_t words = walk.begin + simds * walk.places * walk.place_words;
  launch.bytes = words * static_cast<uint32_t>(sizeof(u32));
  return launch;
}

// On a multiprocessor, by their memory.
uint32_t groups_that_fit(const MmaOneLaunch& launch, uint32_t most) {
  return (most + kReservedBytes) / (launch.bytes + kReservedBytes);
}

// Groups that stay, `per_core` a multiprocessor, with as many SIMD groups as memory allows.
std::optional<MmaOneLaunch> staying_launch(const MmaOneNeeds& needs, uint32_t cores,
                                           uint32_t per_core, uint32_t simds_min,
                                           uint32_t simds_max, uint32_t most) {
  const uint32_t groups = std::max(1u, cores * per_core / needs.rows);
  for (uint32_t simds = simds_max; simds >= simds_min; --simds) {
    MmaOneLaunch launch = make_launch(needs, groups, simds, kMmaPlaces);
    launch.walk.by_splits = !needs.makes_row && launch.walk.splits > kMmaSimds ? 1 : 0;
    if (groups_that_fit(launch, most) >= per_core) return launch;
  }
  return std::nullopt;
}

// Groups of long rows that have a multiprocessor each, and all of it: more SIMD groups take splits
// than elsewhere, and all threads make integers.
std::optional<MmaOneLaunch> launch_alone(const MmaOneNeeds& needs, uint32_t groups, uint32_t cores,
                                         uint32_t most) {
  const bool fits = groups * needs.rows <= cores && splits_of(needs.cols) > kMmaSimds;
  if (!fits || !needs.may_double) return std::nullopt;
  for (uint32_t simds = simds_max(needs); simds > kMmaSimds; --simds) {
    MmaOneLaunch launch = make_launch(needs, groups, simds, kMmaPlaces);
    launch.threads = std::max(launch.threads, uint32_t{kMmaThreadsMax});
    if (groups_that_fit(launch, most) > 0) return launch;
  }
  return std::nullopt;
}

// Groups that are all at work at once, if they are.
std::optional<MmaOneLaunch> launch_at_once(const MmaOneNeeds& needs, uint32_t cores,
                                           uint32_t most) {
  const uint32_t splits = splits_of(needs.cols);
  const uint32_t few = std::max(1u, kMmaSimds / splits);
  const uint32_t places = few * splits > kMmaSimds ? uint32_t{kMmaPlaces} : 1;
  const uint32_t groups = groups_for(needs.tiles, few);
  if (const auto alone = launch_alone(needs, groups, cores, most)) return alone;
  const MmaOneLaunch launch = make_launch(needs, groups, kMmaSimds, places);
  const uint32_t by_registers = needs.bits == 4    ? kMmaFits4
                                : needs.bits == 8  ? kMmaFits8
                                : needs.knows_type ? kMmaFitsKnown
                                                   : kMmaFitsGgml;
  const uint32_t fit = std::min(groups_that_fit(launch, most), by_registers);
  if (launch.groups * needs.rows > cores * fit) return std::nullopt;
  return launch;
}

// Groups of `sets` sets of tiles, if they know the type and have the memory.
std::optional<MmaFewLaunch> make_few_launch(uint32_t bits, uint32_t cols, uint32_t tokens,
                                            uint32_t sets, uint32_t most) {
  if (!knows_few(bits)) return std::nullopt;
  MmaFewLaunch launch;
  launch.tokens = tokens;
  launch.rows = mma_few_rows(bits, sets);
  MmaWalk& walk = launch.walk;
  walk.splits = splits_of(cols);
  walk.tiles = sets;
  walk.place_words = mma_place_words(bits);
  const uint32_t units = walk.splits * sets;
  walk.simds = groups_for(units, groups_for(units, kMmaSimds));
  launch.threads = walk.simds * kSimdLanes;
  launch.bytes = units * (mma_few_rows(bits, 1) / kMmaRows) * walk.place_words *
                 static_cast<uint32_t>(sizeof(u32));
  if (launch.bytes > most) return std::nullopt;
  return launch;
}

}  // namespace

MmaOneLaunch mma_one_launch(const MmaOneNeeds& needs, uint32_t cores, uint32_t most) {
  const std::optional<MmaOneLaunch> at_once = launch_at_once(needs, cores, most);
  if (at_once) return *at_once;
  // One group a multiprocessor makes the integers of a row once; two leave none without one where
  // groups come in rows, and of wide codes one has all the memory anyway.
  std::optional<MmaOneLaunch> launch;
  if (needs.bits != 8 && !needs.makes_row && cores % needs.rows == 0) {
    launch = staying_launch(needs, cores, 1, kMmaSimds + 1, simds_max(needs), most);
  }
  if (!launch) launch = staying_launch(needs, cores, 2, kPairSimdsMin, kMmaSimds, most);
  if (!launch) launch = staying_launch(needs, cores, 1, kSimdsMin, kMmaSimds, most);
  return launch ? *launch : make_launch(needs, needs.tiles, kSimdsMin, kMmaPlaces);
}

std::optional<MmaFewLaunch> mma_few_launch(uint32_t bits, uint32_t cols, uint32_t tokens,
                                           uint32_t cores, uint32_t most,
                                           const std::function<uint32_t(uint32_t)>& groups) {
  uint32_t of_group = tokens <= 8 ? 8 : tokens <= 16 ? 16 : uint32_t{kMmaFewTokens};
  // An H200 takes 165 us for a head of 16 tokens with eight and 150 with four; of 8 tokens 108 and
  // 124. GGML's types always take less with four.
  const bool takes_four = bits >= kFormatGgml || (bits == 4 && of_group == 16);
  const uint32_t simds = takes_four ? kMmaFewSimds : uint32_t{kMmaSimds};
  uint32_t sets = std::max(1u, simds / splits_of(cols));
  const auto idle = [&] {
    return groups(mma_few_rows(bits, sets)) * groups_for(tokens, of_group) < cores;
  };
  while (sets > 1 && idle()) sets /= 2;
  while (of_group > 8 && idle()) of_group /= 2;
  return make_few_launch(bits, cols, of_group, sets, most);
}

std::optional<MmaFewLaunch> mma_slots_launch(uint32_t bits, uint32_t cols, uint32_t tile,
                                             uint32_t simds, uint32_t most) {
  return make_few_launch(bits, cols, tile, std::max(1u, simds / splits_of(cols)), most);
}

std::optional<MmaOneLaunch> mma_list_launch(const MmaOneNeeds& needs, uint32_t experts,
                                            uint32_t cores, uint32_t most) {
  if (launch_at_once(needs, cores, most)) return std::nullopt;
  MmaOneNeeds all = needs;
  all.tiles = needs.tiles * experts;
  all.rows = needs.rows / experts;
  if (all.rows > cores) return std::nullopt;
  const uint32_t groups = std::min(cores / all.rows, all.tiles);
  // A group's share of the list may begin and end inside an expert, so it has tiles of up to share
  // / tiles + 3 experts.
  const uint32_t share = groups_for(all.tiles, groups);
  const uint32_t listed = std::min(experts, share / needs.tiles + 3);
  for (uint32_t simds = simds_max(needs); simds > kMmaSimds; --simds) {
    MmaOneLaunch launch = make_launch(all, groups, simds, kMmaPlaces, listed);
    if (groups_that_fit(launch, most) == 0) continue;
    const Shares shared = share_out(needs.tiles, groups);
    launch.list.shared_tiles = shared.most;
    launch.list.shared_full = shared.full;
    launch.list.writer = groups - 1;  // which has the least to do
    return launch;
  }
  return std::nullopt;
}

uint32_t mma_one_bytes_min(uint32_t bits, int64_t cols) {
  MmaOneNeeds needs;
  needs.bits = bits;
  needs.grid_words = grid_words(bits);
  needs.cols = static_cast<uint32_t>(cols);
  needs.more = kRouteWords;
  return make_launch(needs, 1, kSimdsMin, kMmaPlaces).bytes;
}

MmaOneLaunch mma_ranks_launch(uint32_t bits, uint32_t ranks, uint32_t more) {
  MmaOneNeeds needs;
  needs.bits = bits;
  needs.grid_words = grid_words(bits);
  needs.cols = ranks * kMmaSplit;
  needs.more = more;
  return make_launch(needs, 1, ranks, 1);
}

}  // namespace moeflux::gpu
