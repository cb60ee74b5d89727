#include "backend/gpu/launch/matmul_plans.h"

#include <optional>

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// Rows of one token are shared by larger groups where there are so many: each group brings the
// token to its memory, which for four rows of 4 bits is twice what these take.
constexpr uint32_t kManyHeadRows = 512;
constexpr uint32_t kLargeTileGroupRows =
    uint32_t{kLargeTileThreads} / kSimdLanes * uint32_t{kLargeTileRows};

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
  const uint32_t tile = tile_tokens(p.tokens);
  p.stage_cols = stage_cols(weight.cols, tile);
  const uint32_t threads =
      tile == 1 && p.rows_per_head >= kManyHeadRows ? uint32_t{kLinearThreadsMax} : kMatmulThreads;
  const uint32_t rows = threads / kSimdLanes * (tile == 1 ? kRowsOfOneToken : kRowsOfTile);
  Plan plan = make_plan(matrix_kernel(KernelId::linear_f32_t1, weight.format, tile),
                        {groups_for(p.rows_per_head, rows), groups_for(p.tokens, tile), p.heads},
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

}  // namespace moeflux::gpu
