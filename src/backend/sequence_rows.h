// Steps of many sequences, one sequence at a time or those with a row each together.
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

/// Calls visit(run, part) as for_each_sequence does, for runs of sequences: those behind one
/// another that have a row each are one run if `joins`, and every other sequence is one by itself.
template <typename Sequence, typename Visit>
void for_each_run(std::span<const Sequence> sequences, int64_t rows, bool joins,
                  const Visit& visit) {
  int64_t row = 0;
  for (size_t first = 0; first < sequences.size();) {
    size_t end = first + 1;
    int64_t count = sequences[first].rows;
    for (; joins && count == static_cast<int64_t>(end - first) && end < sequences.size() &&
           sequences[end].rows == 1;
         ++end) {
      ++count;
    }
    visit(sequences.subspan(first, end - first),
          [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, row, count); });
    row += count;
    first = end;
  }
  MF_CHECK(row == rows);
}

}  // namespace moeflux
