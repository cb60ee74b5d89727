// The greatest numbers of rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux {

/// How many of a row's greatest values top_rows() gives at most.
constexpr int64_t kTopRowsMax = 96;

/// Words of a mask with a bit for each of `cols`.
constexpr int64_t mask_words(int64_t cols) { return (cols + 31) / 32; }

namespace ops {

/// The k greatest of each row of x f32 [n, cols], best first, and where they stand: values f32 [n,
/// k], ids i32 [n, k], both contiguous, k at most kTopRowsMax and cols. Equal ones go to the lower
/// id. NaN sorts first, before everything, like +infinity.
/// `mask`, unless it is null, is i32 [n, mask_words(cols)] and has a bit for each number, that of
/// the first lowest. Numbers without their bit are left out, but for NaN and +infinity, by which a
/// row is recognised as broken.
/// Behind the last of fewer than k, ids are -1 and values -infinity.
struct TopRows {
  static constexpr std::string_view kName = "top_rows";
  Tensor values;
  Tensor ids;
  Tensor x;
  Tensor mask = {};

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "values", values);
    visit(Use::kWrite, "ids", ids);
    visit(Use::kRead, "x", x);
    visit_if(visit, Use::kRead, "mask", mask);
  }
};

}  // namespace ops
}  // namespace moeflux
