#include "backend/ops/top_rows.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux::ops {

Status TopRows::check() const {
  Conditions conditions(kName);
  conditions.is_float("x", x)
      .is_packed("values", values, ids.shape)
      .is_packed("ids", ids, values.shape, DType::kI32)
      .equal("rows of values", row_count(values), row_count(x))
      .holds("values", values, values.shape.back() <= std::min(kTopRowsMax, x.shape.back()),
             "at most 64 columns, and those of x");
  if (!mask.is_null()) {
    conditions.is_packed("mask", mask, {row_count(x), mask_words(x.shape.back())}, DType::kI32);
  }
  return conditions.status();
}

std::string TopRows::text() const {
  return formatted("top_rows {} of {}{}", values.shape.to_string(), x.shape.to_string(),
                   mask.is_null() ? "" : " masked");
}

}  // namespace moeflux::ops
