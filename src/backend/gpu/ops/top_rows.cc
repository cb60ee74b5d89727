// Each launch keeps k of every piece, until one piece is left.
#include "backend/ops/top_rows.h"

#include <array>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

static_assert(kTopRowsMax == int64_t{32} * kTopFound);

void run(GpuContext& gpu, const ops::TopRows& op) {
  gpu.flush();
  const auto k = static_cast<uint32_t>(op.values.shape.back());
  const uint32_t rows = rows_of(op.x);
  if (rows == 0 || k == 0) return;
  // Two places take turns; the first launch leaves most.
  const auto cols = static_cast<uint32_t>(op.x.shape.back());
  const size_t bytes = size_t{rows} * groups_for(cols, kTopPiece) * k * sizeof(float);
  Binding space;
  if (!gpu.recorder().take_workspace(4 * bytes, space)) return;
  TopParams p{};
  p.k = k;
  p.cols = cols;
  p.stride = row_stride(op.x);
  p.mask_words = op.mask.is_null() ? 0 : static_cast<uint32_t>(mask_words(cols));
  std::array<Binding, 2> from = {range_of(op.x, Access::kRead), Binding{}};
  for (size_t step = 0;; ++step) {
    const uint32_t pieces = groups_for(p.cols, kTopPiece);
    p.out_stride = uint64_t{pieces} * k;
    std::array<Binding, 2> to = {range_of(op.values, Access::kOverwrite),
                                 range_of(op.ids, Access::kOverwrite)};
    const size_t used = size_t{rows} * pieces * k * sizeof(float);
    for (size_t i = 0; pieces > 1 && i < to.size(); ++i) {
      to[i] = part_of(space, (step % 2 * 2 + i) * bytes, used, Access::kOverwrite);
    }
    Plan plan = make_plan(KernelId::top_values, {pieces, rows, 1}, kSimdLanes);
    plan.set_params(p);
    for (const Binding& binding : from) plan.bind(binding);
    for (const Binding& binding : to) plan.bind(binding);
    plan.bind(p.mask_words > 0 ? range_of(op.mask, Access::kRead) : Binding{});
    gpu.recorder().record(plan);
    if (pieces == 1) return;
    from = to;
    for (Binding& binding : from) binding.access = Access::kRead;
    p.cols = pieces * k;
    p.stride = p.out_stride;
    p.has_ids = 1;
    p.mask_words = 0;
  }
}

}  // namespace moeflux::gpu
