// The sum of a token's experts.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/routes.h"

namespace moeflux::ops {

/// out[t] = sum over ranks in order of weights[t, r] * slots[t, r]: arrival order cannot change the
/// bits. out [n, hidden]; slots [n, top_k, hidden], contiguous; weights f32 [n, top_k]. Nobody
/// looks at ids.
struct CombineExperts {
  static constexpr std::string_view kName = "combine_experts";
  Tensor out;
  Tensor slots;
  Routes routes;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "slots", slots);
    visit(Use::kRead, "weights", routes.weights);
  }
};

}  // namespace moeflux::ops
