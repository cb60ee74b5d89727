// The networks of experts.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "backend/activation.h"
#include "backend/operation.h"
#include "backend/routes.h"
#include "base/ids.h"

namespace moeflux {

/// One expert's matrices in fast memory.
struct ExpertWeights {
  ExpertId expert{};
  Weight gate;  // [moe_intermediate, hidden]
  Weight up;    // [moe_intermediate, hidden]
  Weight down;  // [hidden, moe_intermediate]
  // Biases have a plain float dtype and are added to the products; null when the family has none.
  Tensor gate_bias = {};  // [moe_intermediate]
  Tensor up_bias = {};    // [moe_intermediate]
  Tensor down_bias = {};  // [hidden]
};

namespace ops {

/// For every (token, rank) whose expert is in `ready`: slots[token, rank] = down(glu(gate x, up
/// x)), biases included. x [n, hidden]; slots [n, top_k, hidden]; intermediate [n, top_k,
/// moe_intermediate] is workspace. Touches no other row of slots or intermediate. The experts are
/// of equal extents, and stay where they are until the work has finished.
struct ExpertFfn {
  static constexpr std::string_view kName = "expert_ffn";
  Tensor slots;
  Tensor intermediate;
  Tensor x;
  Routes routes;
  std::span<const ExpertWeights> ready;
  GluOptions glu;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kUpdate, "slots", slots);
    visit(Use::kUpdate, "intermediate", intermediate);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "ids", routes.ids);
    for (const ExpertWeights& e : ready) {
      visit(Use::kRead, "gate", e.gate);
      visit(Use::kRead, "up", e.up);
      visit(Use::kRead, "down", e.down);
    }
  }
};

}  // namespace ops
}  // namespace moeflux
