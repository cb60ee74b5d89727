#include "backend/gpu/launch/matmul_plans.h"

#include <algorithm>
#include <optional>

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

// Rows of one token are shared by larger groups where there are so many: each group brings the
// token to its memory, which for four rows of 4 bits is twice what these take.
constexpr uint32_t kManyHeadRows = 512;
constexpr uint32_t kLargeTileGroupRows =
    uint32_t{kLargeTileThreads} / kSimdLanes * uint32_t{kLargeTileRows};
// Fewer tokens than this leave most of a tile idle.
constexpr uint32_t kUnpackedTokens = 32;

/// A head's matrix in memory as the products of many tokens read it: rows of one k.
struct Unpacked {
  uint32_t depth;
  uint32_t cols;
  uint32_t row_stride;

  Unpacked(const LinearParams& p, bool transposed)
      : depth(transposed ? p.rows_per_head : p.weight.cols),
        cols(transposed ? p.weight.cols : p.rows_per_head),
        row_stride(static_cast<uint32_t>(round_up(uint64_t{cols}, 4))) {}

  uint64_t head_bytes() const { return uint64_t{depth} * row_stride * sizeof(float); }
};

uint32_t head_tile_bytes(uint32_t levels) {
  return (kHeadTileStages * kHeadTileStageWords + levels * kHeadTileLevelWords) *
         uint32_t{sizeof(float)};
}

/// Levels of sums in shared memory: as many as leave a multiprocessor all its groups.
uint32_t head_tile_levels(const Platform& platform) {
  uint32_t levels = 0;
  while (levels < kHeadTileLevels &&
         head_tile_bytes(levels + 1) <= platform.shared_bytes_max() / kHeadTileGroups) {
    ++levels;
  }
  return levels;
}

uint32_t product_threads(const LinearParams& p, uint32_t tile) {
  return tile == 1 && p.rows_per_head >= kManyHeadRows ? uint32_t{kLinearThreadsMax}
                                                       : kMatmulThreads;
}

// A group's rows.
uint32_t product_rows(const LinearParams& p, uint32_t tile) {
  return product_threads(p, tile) / kSimdLanes * (tile == 1 ? kRowsOfOneToken : kRowsOfTile);
}

// Tokens that share a row's loads, fewer where half of the multiprocessors would have none: a
// router of 256 rows takes an H200 15 us for 32 tokens in 64 groups, and its one-row gate 14.
uint32_t plain_tile_tokens(const LinearParams& p, uint32_t cores) {
  uint32_t tile = tile_tokens(p.tokens);
  const auto groups = [&] {
    return uint64_t{groups_for(p.rows_per_head, product_rows(p, tile))} *
           groups_for(p.tokens, tile) * p.heads;
  };
  while (tile > 1 && 2 * groups() < cores) tile = tile == 8 ? 4 : 1;
  return tile;
}

}  // namespace

LinearParams head_params(const Tensor& out, const Tensor& x, const Weight& weight,
                         const HeadRows& rows) {
  LinearParams p{};
  p.weight = matrix_layout(weight);
  p.x = heads_layout(x);
  p.out = heads_layout(out);
  p.wide = is_wide(x) ? 1 : 0;
  p.tokens = static_cast<u32>(x.dim(0));
  p.heads = static_cast<u32>(x.dim(1));
  p.head_stride = static_cast<u32>(rows.head_stride);
  p.row_begin = static_cast<u32>(rows.row_begin);
  p.rows_per_head = static_cast<u32>(rows.rows_per_head);
  return p;
}

Plan product_plan(LinearParams p, const Weight& weight, const Platform& platform) {
  if (p.tokens >= uint32_t{kLargeTileTokens}) {
    const Extent3 groups = {groups_for(p.rows_per_head, kLargeTileGroupRows),
                            groups_for(p.tokens, kLargeTileTokens), p.heads};
    const std::optional<KernelId> large =
        large_tile_kernel(KernelId::linear_f32_t16, weight, p.wide != 0, platform);
    if (large && uint64_t{groups.x} * groups.y * groups.z >= platform.cores()) {
      Plan plan = make_large_tile_plan(*large, weight, groups);
      plan.set_params(p);
      return plan;
    }
  }
  const uint32_t tile = plain_tile_tokens(p, platform.cores());
  p.stage_cols = stage_cols(weight.cols, tile);
  const uint32_t threads = product_threads(p, tile);
  const uint32_t rows = product_rows(p, tile);
  const bool is_coded = p.weight.format >= kFormatCoded && p.weight.format != kCodedFp8;
  const KernelId kernel = tile == 1 && is_coded
                              ? KernelId::linear_coded_t1
                              : matrix_kernel(KernelId::linear_f32_t1, weight.format, tile);
  Plan plan =
      make_plan(kernel, {groups_for(p.rows_per_head, rows), groups_for(p.tokens, tile), p.heads},
                threads, p.stage_cols * tile * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  return plan;
}

Plan bound(Plan plan, const Tensor& out, const Tensor& x, const Weight& weight) {
  bind_weight(plan, weight);
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  return plan;
}

bool takes_unpacked(const LinearParams& p, bool transposed, const Platform& platform) {
  const Unpacked matrix(p, transposed);
  if (p.tokens < kUnpackedTokens || p.weight.cols % 8 != 0 ||
      matrix.depth % uint32_t{kHeadPartRows} != 0 ||
      matrix.head_bytes() > platform.workspace_bytes_max() ||
      p.x.token_stride > ~uint32_t{0} / sizeof(float)) {
    return false;
  }
  // Plain numbers have large tiles, which are faster where there are few of either.
  const uint64_t groups = uint64_t{p.heads} * groups_for(matrix.cols, kHeadTileCols) *
                          groups_for(p.tokens, kHeadTileTokens);
  const bool is_plain = p.weight.format >= kFormatF16 && p.weight.format <= kFormatF32;
  return transposed || (p.weight.format >= kFormatCoded && p.weight.format != kCodedFp8) ||
         (is_plain && groups >= uint64_t{kHeadTileGroups} * platform.cores());
}

void record_unpacked(Recorder& recorder, const LinearParams& p, bool transposed, const Tensor& out,
                     const Tensor& x, const Weight& weight) {
  const Unpacked matrix(p, transposed);
  const uint64_t at_once =
      std::min<uint64_t>(p.heads, recorder.platform().workspace_bytes_max() / matrix.head_bytes());
  Binding space;
  if (!recorder.take_workspace(at_once * matrix.head_bytes(), space)) return;
  UnpackParams unpack{};
  unpack.weight = p.weight;
  unpack.head_stride = p.head_stride;
  unpack.rows_per_head = p.rows_per_head;
  unpack.out_head = matrix.head_bytes() / sizeof(float);
  unpack.row_stride = transposed ? matrix.row_stride : 1;
  unpack.col_stride = transposed ? 1 : matrix.row_stride;
  const uint32_t octets = p.rows_per_head * (p.weight.cols / 8);
  HeadTileParams product{p.x,
                         p.out,
                         unpack.out_head,
                         matrix.row_stride,
                         matrix.depth,
                         matrix.cols,
                         p.tokens,
                         0,
                         transposed ? 0 : head_tile_levels(recorder.platform())};
  product.wide = is_wide(out) && matrix.cols % 4 == 0 ? 1 : 0;
  for (uint32_t head = 0; head < p.heads; head += static_cast<uint32_t>(at_once)) {
    const uint32_t count = std::min(static_cast<uint32_t>(at_once), p.heads - head);
    unpack.row_begin = p.row_begin + head * p.head_stride;
    Plan first = make_plan(KernelId::unpack_heads, {groups_for(octets, kUnpackThreads), 1, count},
                           kUnpackThreads);
    first.set_params(unpack);
    bind_weight(first, weight);
    space.size_bytes = count * matrix.head_bytes();
    space.access = Access::kWrite;
    first.bind(space);
    recorder.record(first);
    Plan plan = make_plan(
        transposed ? KernelId::head_tile_parts : KernelId::head_tile_lanes,
        {groups_for(matrix.cols, kHeadTileCols), groups_for(p.tokens, kHeadTileTokens), count},
        kHeadTileThreads);
    plan.shared_bytes = head_tile_bytes(product.shared_levels);
    plan.set_params(product);
    space.access = Access::kRead;
    plan.bind(space);
    plan.bind(range_of(x.slice(1, head, count), Access::kRead));
    bind_output(plan, out.slice(1, head, count));
    recorder.record(plan);
  }
}

}  // namespace moeflux::gpu
