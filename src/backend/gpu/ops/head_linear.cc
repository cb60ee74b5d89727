#include "backend/ops/head_linear.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/matmul_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::HeadLinear& op) {
  const LinearParams p = head_params(op.out, op.x, op.weight, op.rows);
  if (takes_unpacked(p, /*transposed=*/false, gpu.platform())) {
    gpu.flush();
    return record_unpacked(gpu.recorder(), p, /*transposed=*/false, op.out, op.x, op.weight);
  }
  gpu.record(bound(product_plan(p, op.weight, gpu.platform()), op.out, op.x, op.weight));
}

}  // namespace moeflux::gpu
