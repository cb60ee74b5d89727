// The choice of experts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/routes.h"

namespace moeflux {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSqrtSoftplus };
/// How a group of experts is judged in group-limited selection.
enum class GroupScore : uint8_t { kMax, kTopTwoSum };

/// From logits to routes: p = score(logits); c = p + correction_bias; the topk_group best groups
/// keep their c, the others get 0; top_k of c; weights are p of the chosen, normalised, scaled.
struct RouterOptions {
  RouterScore score = RouterScore::kSoftmax;
  Tensor correction_bias = {};  // f32 [experts] or null: selects, never weighs
  int64_t num_groups = 1;       // divides experts
  int64_t groups_kept = 1;
  GroupScore group_score = GroupScore::kMax;
  /// Divide the chosen weights by max(their sum + normalize_epsilon, normalize_least).
  bool normalize = true;
  float normalize_epsilon = 0.0f;
  float normalize_least = 0.0f;
  float scale = 1.0f;        // multiplies the chosen weights
  Tensor expert_scale = {};  // f32 [experts] or null: multiplies each chosen weight
  /// i32 [vocab, top_k] or null: the experts of each token, whatever their scores; in one group and
  /// without a correction.
  Tensor table = {};
  Tensor token_ids = {};  // i32 [n], with a table: its rows
};

namespace ops {

/// Chooses top_k experts per token from logits f32 [n, experts]. out.ids i32 and out.weights f32
/// [n, top_k], contiguous.
struct Route {
  static constexpr std::string_view kName = "route";
  Routes out;
  Tensor logits;
  RouterOptions options;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "ids", out.ids);
    visit(Use::kWrite, "weights", out.weights);
    visit(Use::kRead, "logits", logits);
    visit_if(visit, Use::kRead, "correction_bias", options.correction_bias);
    visit_if(visit, Use::kRead, "expert_scale", options.expert_scale);
    visit_if(visit, Use::kRead, "table", options.table);
    visit_if(visit, Use::kRead, "token_ids", options.token_ids);
  }
};

}  // namespace ops
}  // namespace moeflux
