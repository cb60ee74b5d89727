// Steps of many sequences, one sequence at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux {

/// Calls visit(s, part) for every KvRows or StateRows, whose rows lie behind one another and are
/// `rows` together: part(x) is the sequence's part of x's rows, or null where x is.
template <typename Sequence, typename Visit>
void for_each_sequence(std::span<const Sequence> sequences, int64_t rows, const Visit& visit) {
  int64_t row = 0;
  for (const Sequence& s : sequences) {
    visit(s, [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, row, s.rows); });
    row += s.rows;
  }
  MF_CHECK(row == rows);
}

}  // namespace moeflux
