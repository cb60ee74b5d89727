#include "backend/ops/route.h"

#include "base/format.h"

namespace moeflux::ops {

Status Route::check() const {
  Conditions c(kName);
  c.is_float("logits", logits).equal("extents of ids", out.ids.shape.rank(), 2);
  if (out.ids.shape.rank() != 2) return c.status();
  const int64_t n = row_count(logits);
  const int64_t experts = logits.shape.back();
  const int64_t top_k = out.ids.dim(1);
  c.is_packed("ids", out.ids, {n, top_k}, DType::kI32)
      .is_packed("weights", out.weights, {n, top_k})
      .holds("ids", out.ids, top_k <= experts, "at most as many columns as logits have")
      .holds("options.num_groups", options.num_groups > 0 && experts % options.num_groups == 0,
             "a number that divides the experts");
  if (!options.correction_bias.is_null())
    c.has("correction_bias", options.correction_bias, experts);
  if (!options.expert_scale.is_null()) c.has("expert_scale", options.expert_scale, experts);
  if (options.table.is_null()) return c.status();
  return c.equal("groups with a table", options.num_groups, 1)
      .holds("correction_bias", options.correction_bias, options.correction_bias.is_null(),
             "none with a table")
      .is_packed("table", options.table, {options.table.dim(0), top_k}, DType::kI32)
      .has("token_ids", options.token_ids, n, DType::kI32)
      .status();
}

std::string Route::text() const {
  return formatted("route {} from {}{}", out.ids.shape.to_string(), logits.shape.to_string(),
                   options.table.is_null() ? "" : " listed");
}

}  // namespace moeflux::ops
