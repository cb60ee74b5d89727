#include "backend/ops/add_bias.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::AddBias& op) {
  switch (gpu.fuse(op)) {
    case Action::kJoin:
      return;
    case Action::kFinish:
      return gpu.flush();
    default:
      return gpu.record(bias_plan(op.x, op.bias));
  }
}

}  // namespace moeflux::gpu
