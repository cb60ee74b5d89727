// A network for few tokens on matrix units waits for the experts beside it.
#include "backend/ops/gated_ffn.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::GatedFfn& op) {
  const auto has_kernels = [&](const Weight& weight) { return uses_mma(gpu.platform(), weight); };
  const GluWeights& weights = op.weights;
  const uint32_t rows = rows_of(op.x);
  const bool tiles = rows <= kMmaFewTokensMost && knows_few(mma_matrix(weights.gate).bits) &&
                     knows_few(mma_matrix(weights.down).bits);
  const bool fits = rows > 0 && (rows <= kFewFfnTokensMax || tiles) && has_kernels(weights.gate) &&
                    has_kernels(weights.up) && has_kernels(weights.down) &&
                    weights.gate.format == weights.up.format && !have_overlap(op.out, op.x);
  Encoder& encoder = gpu.encoder();
  if (!fits) return op.compose(encoder);
  ScratchScope scope(encoder);  // whatever takes its place runs after what waits
  const Shape shape{op.x.dim(0), weights.gate.rows};
  (void)gpu.fuse(FfnOp{op, encoder.scratch(shape, DType::kF32)});
}

}  // namespace moeflux::gpu
