#include "backend/ops/embed.h"

#include "base/format.h"

namespace moeflux::ops {

Status Embed::check() const {
  return Conditions(kName)
      .is_float("out", out)
      .equal("columns of out", out.shape.back(), table.cols)
      .has("token_ids", token_ids, row_count(out), DType::kI32)
      .status();
}

Cost Embed::cost() const {
  return {.weight_bytes = weight_bytes(table.format, token_ids.num_elements(), table.cols)};
}

std::string Embed::text() const {
  return formatted("embed {} from {} {}", out.shape.to_string(),
                   Shape{table.rows, table.cols}.to_string(), table.format.to_string());
}

}  // namespace moeflux::ops
