#include "backend/gpu/launch/many_plans.h"

#include <algorithm>
#include <array>
#include <span>

#include "backend/gpu/launch/attention_rows.h"
#include "backend/gpu/launch/plan_building.h"
#include "base/units.h"

namespace moeflux::gpu {

/// A kernel of mma_attention_many.h, or of mma_attention_team.h, which has no parts.
struct ManyKernel {
  KernelId walks;
  KernelId keeps_parts;
  uint32_t simds;
  uint32_t cols_max;
  bool is_of_teams = false;
  uint32_t rows() const { return simds * 16; }
};

namespace {

constexpr uint32_t kHalvesThreads = 128;
// More rows of a kv head than this have keys and values brought into halves once for all.
constexpr uint64_t kFewQueryRowsMax = 64;

constexpr std::array kTeams{
    ManyKernel{KernelId::mma_attention_team_d64, {}, 8, 64, true},
    ManyKernel{KernelId::mma_attention_team_d128, {}, 8, 128, true},
    ManyKernel{KernelId::mma_attention_team_d256, {}, 8, 256, true},
};
constexpr std::array kMany{
    ManyKernel{KernelId::mma_attention_many_r128, KernelId::mma_attention_many_parts_r128, 8, 256},
    ManyKernel{KernelId::mma_attention_many_r64, KernelId::mma_attention_many_parts_r64, 4, 256},
};
// Three groups of narrow heads a core keep its units busier than one of more rows.
constexpr std::array kManyF16{
    ManyKernel{KernelId::mma_attention_many_f16_r64_d128,
               KernelId::mma_attention_many_parts_f16_r64, 4, 128},
    ManyKernel{KernelId::mma_attention_many_f16_r128, KernelId::mma_attention_many_parts_f16_r128,
               8, 256},
    ManyKernel{KernelId::mma_attention_many_f16_r64, KernelId::mma_attention_many_parts_f16_r64, 4,
               256},
};
std::span<const ManyKernel> many_kernels(DType type) {
  if (type == DType::kF16) return kManyF16;
  return kMany;
}
/// Halves of keys and values: Halves of mma_attention_halves.h.
uint64_t halves_of(DType type) { return type == DType::kF16 ? 1 : 2; }

/// Blocks of 64 columns, as mma_attention_team.h has them, and keys of a tile in one half each, in
/// words.
uint32_t blocks_of(uint32_t cols) { return (cols + 63) / 64; }
uint64_t team_words(const ManyKernel& kernel) {
  return uint64_t{blocks_of(kernel.cols_max)} * kTeamTileBlockWords;
}

uint32_t many_bytes(const AttentionParams& p, DType type, const ManyKernel& kernel) {
  if (kernel.is_of_teams) {
    // TeamTile: queries of two teams in both halves; places for keys, values and factors; flags.
    const uint64_t slots = kernel.cols_max <= 128 ? 2 : 1;
    return bytes_of((4 + 2 * slots) * team_words(kernel) + (1 + slots) * 3 * kTileKeys + 4 * slots);
  }
  const uint64_t columns = std::max(p.key_steps * 8, p.value_blocks * 16) * halves_of(type);
  return bytes_of(uint64_t{kernel.rows()} * p.key_steps * 16 + 3 * kTileKeys / 2 * columns +
                  2 * 3 * kTileKeys);
}
uint64_t many_groups(const AttentionParams& p, const ManyKernel& kernel) {
  return groups_for(rows_of_kv_head(p), kernel.rows()) * uint64_t{kv_heads_of(p)};
}

uint64_t halves_bytes(const AttentionParams& p, DType type, const ManyKernel& kernel) {
  const uint64_t columns = (uint64_t{p.key_steps} * 8 + p.value_blocks * 16) * halves_of(type);
  const uint64_t words =
      kernel.is_of_teams ? 2 * team_words(kernel) + 3 * kTileKeys : kTileKeys * (columns + 3);
  return words * sizeof(u32) * kv_heads_of(p) * p.num_parts;
}

/// Divides the parts among groups, of which there are `groups` otherwise, so that no core is idle.
void divide_parts(AttentionParams& p, uint64_t groups, uint32_t cores) {
  p.group_parts = static_cast<u32>(std::max<uint64_t>(groups * p.num_parts / cores, 1));
  if (groups * groups_for(p.num_parts, p.group_parts) > cores) ++p.group_parts;
}

/// The kernel of teams where rows are enough for all cores and heads of keys and values as wide.
const ManyKernel* choose_team(const AttentionParams& p, DType type, const Platform& platform) {
  if (type != DType::kF16 || !platform.multiplies_in_teams()) return nullptr;
  for (const ManyKernel& kernel : kTeams) {
    const uint32_t blocks = blocks_of(kernel.cols_max);
    if (blocks_of(p.head_dim) == blocks && blocks_of(p.v_head_dim) == blocks &&
        many_bytes(p, type, kernel) <= platform.shared_bytes_max()) {
      return &kernel;
    }
  }
  return nullptr;
}

}  // namespace

const ManyKernel* choose_many(AttentionParams& p, DType type, const Platform& platform) {
  if (p.lengths != 0 || rows_of_kv_head(p) <= kFewQueryRowsMax) return nullptr;
  const uint64_t wanted = std::max<uint64_t>(platform.cores() * 3 / 4, 1);
  if (const ManyKernel* team = choose_team(p, type, platform);
      team != nullptr && many_groups(p, *team) >= wanted) {
    p.walks = 1;
    return team;
  }
  const ManyKernel* largest = nullptr;
  for (const ManyKernel& kernel : many_kernels(type)) {
    if (std::max(p.head_dim, p.v_head_dim) > kernel.cols_max) continue;
    if (many_bytes(p, type, kernel) > platform.shared_bytes_max()) continue;
    if (largest == nullptr) largest = &kernel;
    p.walks = 1;
    if (many_groups(p, kernel) >= wanted) return &kernel;
  }
  // A group of many rows takes 54 us for a tile of 256 columns on an H200, one of few 8.
  const uint64_t few_groups = row_groups(p, kTileFewRows) * kv_heads_of(p) * p.num_parts;
  if (p.num_parts < 4 && few_groups <= platform.cores()) return nullptr;
  if (largest == nullptr || p.num_parts < 4 || partial_bytes(p) > partial_bytes_max(platform) ||
      halves_bytes(p, type, *largest) > platform.workspace_bytes_max()) {
    return largest;
  }
  p.walks = 0;
  divide_parts(p, many_groups(p, *largest), platform.cores());
  return largest;
}

bool record_many(Recorder& recorder, const AttentionHeads& heads, const ManyKernel& kernel,
                 AttentionResult& result) {
  AttentionParams& p = result.params;
  Binding& partials = result.partials;
  // Positions that do not fit at once are attended to piece by piece, by launches that take up the
  // rows where the launches before left them.
  const DType type = row_type(heads.kv);
  const uint64_t whole = halves_bytes(p, type, kernel);
  const u32 pieces = groups_for(whole, recorder.platform().workspace_bytes_max());
  const u32 parts = groups_for(p.num_parts, pieces);
  const u32 first = p.first_part;
  const u32 end = first + p.num_parts;
  const uint64_t sums = uint64_t{p.tokens} * p.heads * 2 * sizeof(float);
  const uint64_t halves_end = round_up(whole / p.num_parts * parts, 256);
  if (!recorder.take_workspace(halves_end + (p.walks != 0 ? sums : partial_bytes(p)), partials)) {
    return false;
  }
  Binding halves{partials.buffer, partials.offset_bytes, halves_end, Access::kWrite};
  partials.offset_bytes += halves_end;
  partials.size_bytes -= halves_end;
  for (u32 begin = first; begin < end; begin += parts) {
    p.first_part = begin;
    p.num_parts = std::min(parts, end - begin);
    p.resumes = (begin - first) / parts;
    p.finishes = begin + p.num_parts == end ? 1 : 0;
    constexpr ByType kHalves{KernelId::mma_attention_halves, KernelId::mma_attention_halves_f16,
                             KernelId::mma_attention_halves_q8};
    const KernelId bring =
        kernel.is_of_teams ? KernelId::mma_attention_team_halves : kHalves.of(type);
    Plan split = make_plan(bring, {p.num_parts, kv_heads_of(p), 2}, kHalvesThreads);
    split.set_params(p);
    split.bind(heads.tables.keys);
    split.bind(heads.tables.values);
    halves.access = Access::kWrite;
    split.bind(halves);
    recorder.record(split);
    const uint32_t rows = groups_for(rows_of_kv_head(p), kernel.rows());
    const uint32_t z = p.walks != 0 ? 1 : groups_for(p.num_parts, p.group_parts);
    Plan plan = make_plan(p.walks != 0 ? kernel.walks : kernel.keeps_parts,
                          {rows, kv_heads_of(p), z}, kernel.simds * kSimdLanes);
    plan.shared_bytes = many_bytes(p, type, kernel);
    plan.set_params(p);
    plan.bind(range_of(heads.q, Access::kRead));
    halves.access = Access::kRead;
    plan.bind(halves);
    plan.bind(range_of(heads.options.sinks, Access::kRead));
    if (p.walks == 0) {
      plan.bind({});
      partials.access = Access::kWrite;
    } else {
      if (pieces == 1) {
        bind_output(plan, heads.out);
      } else {
        plan.bind(range_of(heads.out, Access::kReadWrite));
      }
      partials.access = Access::kReadWrite;
    }
    plan.bind(partials);
    plan.bind({});
    if (p.walks != 0 && p.finishes != 0) {
      result.last = AttentionOp{plan, p, heads.out};
    } else {
      recorder.record(plan);
    }
  }
  return true;
}

}  // namespace moeflux::gpu
