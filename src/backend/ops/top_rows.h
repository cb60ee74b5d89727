// The greatest numbers of rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux {

/// How many of a row's greatest values top_rows() gives at most.
constexpr int64_t kTopRowsMax = 64;

namespace ops {

/// The k greatest of each row of x f32 [n, cols], best first, and where they stand: values f32 [n,
/// k], ids i32 [n, k], both contiguous, k at most kTopRowsMax and cols. Equal ones go to the lower
/// id. NaN sorts first, before everything, like +infinity.
struct TopRows {
  static constexpr std::string_view kName = "top_rows";
  Tensor values;
  Tensor ids;
  Tensor x;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "values", values);
    visit(Use::kWrite, "ids", ids);
    visit(Use::kRead, "x", x);
  }
};

}  // namespace ops
}  // namespace moeflux
