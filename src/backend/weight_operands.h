// The weights among an operation's operands, as backends that may lack a format look at them.
#pragma once

#include <string_view>
#include <type_traits>

#include "backend/operation.h"
#include "base/format.h"

namespace moeflux::ops {

/// The first error of check(operand's name, weight) over the weights of an operation.
template <typename Op, typename Check>
Status check_weights(const Op& op, const Check& check) {
  Status status;
  op.operands([&](Use /*use*/, std::string_view name, const auto& x) {
    if constexpr (std::is_same_v<decltype(x), const Weight&>) {
      if (status.ok()) status = check(name, x);
    }
  });
  return status;
}

/// kUnsupported with operation, operand and format unless `reads(weight)` holds for all of them.
template <typename Op, typename Reads>
Status check_formats(const Op& op, const Reads& reads) {
  return check_weights(op, [&](std::string_view name, const Weight& x) -> Status {
    if (reads(x)) return {};
    return make_error(ErrorCode::kUnsupported, "{}: {} is a [{}, {}] weight in format {} of {}",
                      Op::kName, name, x.rows, x.cols, x.format.to_string(),
                      dtype_name(x.format.dtype));
  });
}

}  // namespace moeflux::ops
