#include "backend/ops/top_rows.h"

#include "backend/cpu/cpu_context.h"
#include "backend/host_top.h"

namespace moeflux::cpu {

void run(CpuContext& /*context*/, const ops::TopRows& op) { host_top_rows(op); }

}  // namespace moeflux::cpu
