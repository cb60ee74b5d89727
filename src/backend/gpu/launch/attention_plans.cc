// The choice of kernels and of their groups, and of the launch that adds what groups have.
#include "backend/gpu/launch/attention_plans.h"

#include <algorithm>
#include <array>
#include <span>

#include "backend/gpu/launch/attention_rows.h"
#include "backend/gpu/launch/many_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/wide_many_plans.h"
#include "base/units.h"
#include "quant/q8_rows.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kAttentionThreads = 128;
constexpr uint32_t kFewThreads = 256;
constexpr uint32_t kMergeThreads = 256;
// Below this many groups, splits of a query get groups of their own: large GPUs run a few hundred
// at a time.
constexpr uint32_t kGroupsWanted = 512;
constexpr float kLog2OfE = 1.44269504f;

AttentionParams attention_params(const Tensor& out, const Tensor& q, int64_t kv_heads,
                                 const KvView& kv, const AttentionOptions& options) {
  AttentionParams p{};
  p.q = heads_layout(q);
  p.out = heads_layout(out);
  p.k_page = heads_layout(kv.k_pages.front());
  p.v_page = heads_layout(kv.v_pages.front());
  p.tokens = static_cast<u32>(q.dim(0));
  p.heads = static_cast<u32>(q.dim(1));
  p.heads_per_kv_head = static_cast<u32>(q.dim(1) / kv_heads);
  p.head_dim = static_cast<u32>(q.dim(2));
  p.v_head_dim = static_cast<u32>(out.dim(2));
  p.v_scales = static_cast<u32>(q8_rows::cols_of(kv.v_pages.front().dim(2)));
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.new_from = ~0u;
  p.window = static_cast<u32>(options.window);
  p.chunked = options.chunked && options.window > 0 ? 1 : 0;
  p.has_sinks = options.sinks.is_null() ? 0 : 1;
  p.sink_stride = options.sinks.shape.rank() == 2 ? p.heads : 0;
  p.bias_extent =
      options.distance_bias.is_null() ? 0 : static_cast<u32>(options.distance_bias.dim(2));
  p.partial_words = (p.v_head_dim + 3) / 4 * 4;
  p.scale = options.scale * kLog2OfE;
  p.column_factor = 1.0f;
  return p;
}

/// Sets the parts of `size` positions that any query sees. Several sequences have parts of their
/// own each; then it is the largest number of them.
void count_parts(AttentionParams& p, u32 size, const KvTables& tables) {
  const auto count = [&](u32 begin, u32 tokens) {
    p.first_key = static_cast<u32>(first_seen(begin, p.window, p.chunked != 0));
    p.first_part = p.first_key / size;
    return (begin + tokens - 1) / size - p.first_part + 1;
  };
  if (tables.is_of_one()) {
    p.num_parts = count(p.begin, p.tokens);
    return;
  }
  p.num_parts = 0;
  for (const KvRows& s : tables.sequences) {
    p.num_parts = std::max(p.num_parts, count(static_cast<u32>(s.kv.length), 1));
  }
  p.first_key = p.first_part = 0;  // kernels find those of their sequences
}

KernelId heads_kernel(const KvView& kv) {
  constexpr ByType kKernels{KernelId::attention_heads, KernelId::attention_heads_f16,
                            KernelId::attention_heads_q8};
  return kKernels.of(row_type(kv));
}

/// Whether tokens have sinks or biases of their own, which attention_heads alone knows.
bool is_by_head(const AttentionParams& p) { return p.sink_stride > 0 || p.bias_extent > 0; }

bool are_wide(const AttentionHeads& heads) {
  const auto wide = [](const Tensor& page) {
    return is_wide(page) && page.dim(2) % wide_elements(page.dtype) == 0;
  };
  return wide(heads.q) && wide(heads.out) && heads.all_kv([&](const KvView& kv) {
    return std::all_of(kv.k_pages.begin(), kv.k_pages.end(), wide) &&
           std::all_of(kv.v_pages.begin(), kv.v_pages.end(), wide);
  });
}

bool share_rows(const AttentionHeads& heads) {
  return heads.all_kv([](const KvView& kv) {
    return std::equal(kv.k_pages.begin(), kv.k_pages.end(), kv.v_pages.begin(), kv.v_pages.end(),
                      [](const Tensor& k, const Tensor& v) {
                        return k.buffer == v.buffer && k.offset_bytes == v.offset_bytes &&
                               k.strides == v.strides;
                      });
  });
}

// --- Tiles of 64 keys: mma_attention_few.h; many_plans.h has many rows ---

/// Rows of values begin on banks 4 apart, as pairs of them are read together.
void lay_out_tiles(AttentionParams& p, DType values, const KvTables& tables) {
  p.key_steps = (p.head_dim + 15) / 16;
  p.value_blocks = (p.v_head_dim + 31) / 32;
  p.key_words = (p.head_dim + 31) / 32 * 32;
  p.value_words = p.value_blocks * 8 * static_cast<u32>(dtype_bits(values)) / 8 + 4;
  count_parts(p, kTileKeys, tables);
}

/// A group that walks has weights beside its queries; of a group for a tile they take their place.
uint32_t few_bytes(const AttentionParams& p, bool walks) {
  const uint64_t query_words = uint64_t{p.key_steps} * 16;
  const uint64_t first_words =
      walks ? query_words + kTileKeys : std::max(query_words, uint64_t{kTileKeys});
  return bytes_of(kTileFewRows * (first_words + kTileScoreWords + 3) +
                  kTileKeys * (uint64_t{p.value_words} + 3));
}

/// A kernel whose groups walk, or one of eight SIMD groups for a tile.
KernelId few_kernel(const AttentionParams& p, DType type) {
  constexpr ByType kWalks{KernelId::mma_attention_few, KernelId::mma_attention_few_f16,
                          KernelId::mma_attention_few_q8};
  constexpr ByType kParts{KernelId::mma_attention_few_parts, KernelId::mma_attention_few_parts_f16,
                          KernelId::mma_attention_few_parts_q8};
  constexpr ByType kFullWalks{KernelId::mma_attention_few_d256,
                              KernelId::mma_attention_few_f16_d256,
                              KernelId::mma_attention_few_q8_d256};
  constexpr ByType kFullParts{KernelId::mma_attention_few_parts_d256,
                              KernelId::mma_attention_few_parts_f16_d256,
                              KernelId::mma_attention_few_parts_q8_d256};
  const bool is_full = p.head_dim == kTileSteps * 16 && p.v_head_dim == kTileBlocks * 32;
  if (p.walks != 0) return (is_full ? kFullWalks : kWalks).of(type);
  return (is_full ? kFullParts : kParts).of(type);
}

/// A kernel of fewer SIMD groups for a tile.
struct TileKernel {
  uint32_t cols;  // of heads
  uint32_t simds;
  KernelId f16;
  KernelId q8;
};
constexpr std::array kTileKernels{TileKernel{64, 2, KernelId::mma_attention_few_tiles_f16_d64,
                                             KernelId::mma_attention_few_tiles_q8_d64},
                                  TileKernel{128, 2, KernelId::mma_attention_few_tiles_f16_d128,
                                             KernelId::mma_attention_few_tiles_q8_d128},
                                  TileKernel{256, 4, KernelId::mma_attention_few_tiles_f16_d256,
                                             KernelId::mma_attention_few_tiles_q8_d256}};

Plan few_plan(const AttentionParams& p, DType type, uint32_t groups, const Platform& platform) {
  const uint32_t kv_heads = kv_heads_of(p);
  const uint64_t tiles = p.walks != 0 ? 0 : uint64_t{groups} * kv_heads * p.num_parts;
  KernelId id = few_kernel(p, type);
  uint32_t threads = kFewThreads;
  for (const TileKernel& kernel : kTileKernels) {
    const bool fits = p.head_dim == kernel.cols && p.v_head_dim == kernel.cols;
    if (!fits || type == DType::kF32 || tiles <= uint64_t{2} * platform.cores()) continue;
    id = type == DType::kF16 ? kernel.f16 : kernel.q8;
    threads = kernel.simds * kSimdLanes;
  }
  Plan plan = make_plan(id, {groups, kv_heads, 1}, threads);
  plan.shared_bytes = few_bytes(p, p.walks != 0);
  return plan;
}

/// Whether attention runs in tiles: a matter of shapes and of where a model's tensors lie, not of
/// their number, as bits depend on it.
bool fits_tiles(const AttentionParams& p, const AttentionHeads& heads, const Platform& platform) {
  return platform.has_matrix_units() && !is_by_head(p) && are_wide(heads) &&
         p.page_tokens % 8 == 0 && p.head_dim <= kTileSteps * 16 &&
         p.v_head_dim <= kTileBlocks * 32 && few_bytes(p, true) <= platform.shared_bytes_max();
}

// --- Wide rows: mma_attention_wide.h ---

struct WideKernel {
  ByType ids;
  uint32_t rows;
};
constexpr WideKernel kWide16{
    {KernelId::mma_attention_wide_r16, KernelId::mma_attention_wide_f16_r16,
     KernelId::mma_attention_wide_q8_r16},
    16};
constexpr WideKernel kWide32{
    {KernelId::mma_attention_wide_r32, KernelId::mma_attention_wide_f16_r32,
     KernelId::mma_attention_wide_q8_r32},
    32};
constexpr uint32_t kWideThreads = 512;
// Groups of single tiles for every core, at most: at 1000 positions they take 20 us on an H200,
// where splits take 42.
constexpr uint32_t kWideTileWaves = 4;

/// Rows begin on banks 16 apart, as row_stage.h has it.
void lay_out_wide(AttentionParams& p, bool shares_rows, const KvTables& tables) {
  p.shares_rows = shares_rows ? 1 : 0;
  p.key_words = (p.head_dim + 31) / 32 * 32 + 16;
  p.value_words = shares_rows ? p.key_words : (p.v_head_dim + 31) / 32 * 32 + 16;
  count_parts(p, kWideSplit, tables);
}

uint32_t wide_bytes(const AttentionParams& p, uint32_t rows) {
  // A query, two parts of its scores, its factors.
  const uint64_t row_words = p.key_words + 2 * (kWideKeys + 16) + 3;
  return bytes_of(rows * row_words + kWideKeys * (std::max(p.key_words, p.value_words) + 2));
}

bool fits_wide(const AttentionParams& p, const AttentionHeads& heads, const Platform& platform) {
  return platform.has_matrix_units() && !is_by_head(p) && are_wide(heads) &&
         p.page_tokens % kWideKeys == 0 && p.head_dim <= 576 && p.v_head_dim <= 512 &&
         wide_bytes(p, kWide16.rows) <= platform.shared_bytes_max();
}

/// Whether each tile has groups of its own: as long as these run nearly all at once.
bool fits_wide_tiles(AttentionParams& p, const KvTables& tables, const Platform& platform) {
  const uint64_t groups = row_groups(p, kWideFewRows) * kv_heads_of(p);
  AttentionParams tiles = p;
  count_parts(tiles, kWideKeys, tables);
  tiles.split_parts = kWideSplit / kWideKeys;
  tiles.walks = 0;
  const u32 end = tiles.first_part + tiles.num_parts;
  if (p.shares_rows == 0 || end > kWideTiledSplits * tiles.split_parts ||
      tiles.first_part % tiles.split_parts != 0 ||
      groups * tiles.num_parts > uint64_t{kWideTileWaves} * platform.cores()) {
    return false;
  }
  p = tiles;
  return true;
}

/// The most rows a group that leave no core idle; fewer, and groups for splits, if rows are few.
WideKernel choose_wide(AttentionParams& p, const Platform& platform) {
  const auto fits = [&](const WideKernel& kernel) {
    return wide_bytes(p, kernel.rows) <= platform.shared_bytes_max();
  };
  const auto groups = [&](const WideKernel& kernel) {
    return row_groups(p, kernel.rows) * kv_heads_of(p);
  };
  const uint64_t wanted = std::max<uint64_t>(platform.cores() * 3 / 4, 1);
  p.walks = 1;
  if (fits(kWide32) && groups(kWide32) >= wanted) return kWide32;
  if (groups(kWide16) >= wanted) return kWide16;
  p.walks = p.num_parts == 1 ? 1 : 0;
  const uint64_t rows = p.lengths == 0 ? rows_of_kv_head(p) : p.heads_per_kv_head;
  const bool shares = rows > kWide32.rows / 2 && fits(kWide32) &&
                      groups(kWide32) * (p.walks != 0 ? 1 : p.num_parts) >= wanted;
  return shares ? kWide32 : kWide16;
}

// Memory for the parts that groups leave of one piece of all.
bool take_partials(Recorder& recorder, AttentionResult& result) {
  if (!recorder.take_workspace(partial_bytes(result.params), result.partials)) return false;
  result.partials.access = Access::kWrite;
  return true;
}

bool record_wide_tiles(Recorder& recorder, const AttentionHeads& heads, AttentionResult& result) {
  if (!take_partials(recorder, result)) return false;
  const AttentionParams& p = result.params;
  const KernelId few = row_type(heads.kv) == DType::kF16 ? KernelId::mma_attention_wide_few_f16
                                                         : KernelId::mma_attention_wide_few;
  Plan plan = make_plan(
      few, {static_cast<uint32_t>(row_groups(p, kWideFewRows)), kv_heads_of(p), p.num_parts},
      kWideThreads);
  plan.shared_bytes = wide_bytes(p, kWideFewRows);
  plan.set_params(p);
  plan.bind(range_of(heads.q, Access::kRead));
  plan.bind(heads.tables.keys);
  plan.bind(result.partials);
  recorder.record(plan);
  return true;
}

// Plans without parameters and partial sums.

Plan heads_plan(AttentionParams& p, const AttentionHeads& heads) {
  count_parts(p, kAttentionSplit, heads.tables);
  p.walks = p.num_parts == 1 || p.tokens * p.heads >= kGroupsWanted ? 1 : 0;
  return make_plan(heads_kernel(heads.kv), {p.heads, p.tokens, 1}, kAttentionThreads,
                   bytes_of(p.head_dim + 2 * kAttentionTile));
}

Plan wide_plan(AttentionParams& p, const AttentionHeads& heads, const Platform& platform) {
  const WideKernel kernel = choose_wide(p, platform);
  Plan plan = make_plan(kernel.ids.of(row_type(heads.kv)),
                        {static_cast<uint32_t>(row_groups(p, kernel.rows)), kv_heads_of(p), 1},
                        kWideThreads);
  plan.shared_bytes = wide_bytes(p, kernel.rows);
  return plan;
}

/// Whether a gate may join this launch. Kernels of few rows bind what they write alone.
bool bind_heads(Plan& plan, const AttentionHeads& heads, const AttentionResult& result,
                bool is_few) {
  const bool walks = result.params.walks != 0;
  plan.bind(range_of(heads.q, Access::kRead));
  plan.bind(heads.tables.keys);
  plan.bind(heads.tables.values);
  if (walks || !is_few) plan.bind(range_of(heads.options.sinks, Access::kRead));
  if (walks) bind_output(plan, heads.out);
  if (!walks && !is_few) plan.bind({});
  if (!walks || !is_few) plan.bind(result.partials);
  if (plan.kernel == heads_kernel(heads.kv)) {
    plan.bind(range_of(heads.options.distance_bias, Access::kRead));
  }
  const bool takes_gate = kernel_info(plan.kernel).bindings > plan.num_bindings;
  if (takes_gate) plan.bind({});
  return takes_gate;
}

/// Groups for parts, as many at once as their memory holds; all but the last are merged.
bool record_parts(Recorder& recorder, const AttentionHeads& heads, Plan plan, bool is_few,
                  AttentionResult& result) {
  AttentionParams& p = result.params;
  const uint64_t most = std::max<uint64_t>(partial_bytes_max(recorder.platform()), 1);
  const u32 parts = groups_for(p.num_parts, groups_for(partial_bytes(p), most));
  const u32 first = p.first_part;
  const u32 end = first + p.num_parts;
  p.num_parts = parts;
  if (!take_partials(recorder, result)) return false;
  bind_heads(plan, heads, result, is_few);
  for (u32 begin = first; begin < end; begin += parts) {
    p.first_part = begin;
    p.num_parts = std::min(parts, end - begin);
    p.resumes = (begin - first) / parts;
    p.finishes = begin + p.num_parts == end ? 1 : 0;
    plan.groups.z = p.num_parts;
    plan.set_params(p);
    recorder.record(plan);
    if (p.finishes == 0) recorder.record(merge_op(heads, result).plan);
  }
  return true;
}

}  // namespace

bool record_attention(Recorder& recorder, const AttentionHeads& heads, AttentionResult& result) {
  const Platform& platform = recorder.platform();
  AttentionParams& p = result.params;
  p = attention_params(heads.out, heads.q, heads.kv_heads, heads.kv, heads.options);
  if (heads.are_all_new) p.new_from = 0;
  p.lengths = heads.tables.lengths;
  p.finishes = 1;
  const KvTables& tables = heads.tables;
  const DType type = row_type(heads.kv);
  Plan plan;
  bool is_few = false;
  if (lay_out_tiles(p, type, tables); fits_tiles(p, heads, platform)) {
    p.column_factor = 0x1p-28f;  // weights and values are times 2^14
    if (const ManyKernel* many = choose_many(p, type, platform); many != nullptr) {
      return record_many(recorder, heads, *many, result);
    }
    const auto groups = static_cast<uint32_t>(row_groups(p, kTileFewRows));
    p.walks = p.num_parts == 1 || groups * kv_heads_of(p) >= 2 * platform.cores() ? 1 : 0;
    plan = few_plan(p, type, groups, platform);
    is_few = true;
  } else if (lay_out_wide(p, share_rows(heads), tables); fits_wide(p, heads, platform)) {
    if (heads.may_leave_tiles && fits_wide_tiles(p, tables, platform)) {
      return record_wide_tiles(recorder, heads, result);
    }
    if (fits_wide_many(p, type, platform)) return record_wide_many(recorder, heads, result);
    plan = wide_plan(p, heads, platform);
  } else {
    plan = heads_plan(p, heads);
  }
  if (p.walks == 0) return record_parts(recorder, heads, plan, is_few, result);
  plan.set_params(p);
  if (bind_heads(plan, heads, result, is_few)) {
    result.last = AttentionOp{plan, p, heads.out};
  } else {
    recorder.record(plan);
  }
  return true;
}

AttentionOp merge_op(const AttentionHeads& heads, const AttentionResult& result) {
  const AttentionParams& p = result.params;
  Plan merge = make_plan(KernelId::attention_merge,
                         {groups_for(p.v_head_dim, kMergeColumns), p.heads, p.tokens},
                         kMergeThreads, bytes_of(kMergeWords));
  merge.set_params(p);
  const bool is_of_several = p.resumes != 0 || p.finishes == 0;
  Binding partials = result.partials;
  partials.access = is_of_several ? Access::kReadWrite : Access::kRead;
  merge.bind(partials);
  merge.bind(range_of(heads.options.sinks, Access::kRead));
  if (is_of_several) {
    merge.bind(range_of(heads.out, Access::kReadWrite));
  } else {
    bind_output(merge, heads.out);
  }
  merge.bind({});
  return {merge, p, heads.out};
}

Plan plan_gated(const AttentionOp& attention, const Tensor& gate) {
  AttentionParams p = attention.params;
  p.has_gate = 1;
  p.gate = heads_layout(gate);
  Plan plan = attention.plan;
  plan.set_params(p);
  plan.bindings[plan.num_bindings - 1] = range_of(gate, Access::kRead);
  return plan;
}

}  // namespace moeflux::gpu
