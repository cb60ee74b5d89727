#include "backend/ops/copy.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::Copy& op) { gpu.record(copy_plan(op.out, op.x)); }

}  // namespace moeflux::gpu
