#include "backend/ops/top_rows.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux::ops {

Status TopRows::check() const {
  return Conditions(kName)
      .is_float("x", x)
      .is_packed("values", values, ids.shape)
      .is_packed("ids", ids, values.shape, DType::kI32)
      .equal("rows of values", row_count(values), row_count(x))
      .holds("values", values, values.shape.back() <= std::min(kTopRowsMax, x.shape.back()),
             "at most 64 columns, and those of x")
      .status();
}

std::string TopRows::text() const {
  return formatted("top_rows {} of {}", values.shape.to_string(), x.shape.to_string());
}

}  // namespace moeflux::ops
