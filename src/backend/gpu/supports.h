// Conditions of GPU kernels beyond those of check(): sizes and formats that they do not take.
#pragma once

#include <string_view>

#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/op_table.h"
#include "backend/weight_operands.h"

namespace moeflux::gpu {

/// kUnsupported with the operation's name where no kernel computes it.
Status supports(const Platform& platform, const ops::AnyOp& any);

/// The weights of any operation.
template <typename Op>
Status supports(const Platform& /*platform*/, const Op& op) {
  return ops::check_weights(op, [](std::string_view /*name*/, const Weight& weight) {
    return check_weight(Op::kName, weight);
  });
}
Status supports(const Platform& platform, const ops::Attention& op);
Status supports(const Platform& platform, const ops::ExpertFfn& op);
Status supports(const Platform& platform, const ops::GatedDelta& op);
Status supports(const Platform& platform, const ops::Route& op);
Status supports(const Platform& platform, const ops::SelectKeys& op);
Status supports(const Platform& platform, const ops::SelectiveScan& op);

}  // namespace moeflux::gpu
