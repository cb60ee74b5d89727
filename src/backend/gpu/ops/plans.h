// Plans of one operation that launches for several take too. Nothing that waits may be left when
// one is recorded.
#pragma once

#include "backend/gpu/launch/operations.h"
#include "backend/gpu/launch/plan.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/ops/rope.h"
#include "backend/ops/route.h"

namespace moeflux::gpu {

/// A gate may follow where rows are narrow; null: none.
Plan plan_norm(const ops::RmsNorm& op, const Tensor& gate, Activation activation);
Plan plan_rope(const ops::Rope& op);
RouteParams route_params(const ops::Route& op);
Plan plan_route(const ops::Route& op);
/// One token of each sequence; the gate, of SiLU or sigmoid, follows the norm. Null: none.
Plan plan_delta_one(const Recorder& recorder, const DeltaOp& delta, const Tensor& gate,
                    Activation activation);

}  // namespace moeflux::gpu
