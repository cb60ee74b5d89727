// Steps of many sequences, one sequence at a time or those with a row each together.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux {

/// Calls visit(run, part) for runs of KvRows or StateRows, whose rows lie behind one another and
/// are `rows` together: part(x) is the run's part of x's rows, or null where x is. Sequences behind
/// one another that have a row each are one run if `joins`; every other sequence is one by itself.
template <typename Sequence, typename Visit>
void for_each_run(std::span<const Sequence> sequences, int64_t rows, bool joins,
                  const Visit& visit) {
  int64_t row = 0;
  for (size_t first = 0; first < sequences.size();) {
    size_t end = first + 1;
    const bool is_single = joins && sequences[first].rows == 1;
    while (is_single && end < sequences.size() && sequences[end].rows == 1) ++end;
    const int64_t count = is_single ? static_cast<int64_t>(end - first) : sequences[first].rows;
    visit(sequences.subspan(first, end - first),
          [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, row, count); });
    row += count;
    first = end;
  }
  MF_CHECK(row == rows);
}

/// Calls visit(s, part) for every sequence, as for_each_run does for runs.
template <typename Sequence, typename Visit>
void for_each_sequence(std::span<const Sequence> sequences, int64_t rows, const Visit& visit) {
  for_each_run(sequences, rows, /*joins=*/false,
               [&](std::span<const Sequence> run, const auto& part) { visit(run.front(), part); });
}

}  // namespace moeflux
