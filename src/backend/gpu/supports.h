// Conditions of GPU kernels beyond those of check(): sizes and formats that they do not take.
#pragma once

#include <string_view>
#include <type_traits>

#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/op_table.h"

namespace moeflux::gpu {

/// kUnsupported with the operation's name where no kernel computes it.
Status supports(const Platform& platform, const ops::AnyOp& any);

/// The weights of any operation.
template <typename Op>
Status supports(const Platform& /*platform*/, const Op& op) {
  Status status;
  op.operands([&](Use /*use*/, std::string_view /*name*/, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const Weight&>) {
      if (status.ok()) status = check_weight(Op::kName, x);
    }
  });
  return status;
}
Status supports(const Platform& platform, const ops::Attention& op);
Status supports(const Platform& platform, const ops::ExpertFfn& op);
Status supports(const Platform& platform, const ops::GatedDelta& op);
Status supports(const Platform& platform, const ops::Route& op);
Status supports(const Platform& platform, const ops::SelectKeys& op);
Status supports(const Platform& platform, const ops::SelectiveScan& op);

}  // namespace moeflux::gpu
