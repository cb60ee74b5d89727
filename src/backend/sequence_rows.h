// The sequences of a step: their rows, caches and states; and operations along them, one sequence
// at a time or those with a row each together.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux {

/// Keys and values of one layer and one sequence, in pages of page_tokens. The token at position t
/// lies in page (t / page_tokens) % k_pages.size(): a layer with a window keeps a ring of pages
/// that covers the window and the step. Pages are f32, or, where Device::takes_narrow_cache(), f16
/// or I8: whole rows of quant/q8_rows.h, for heads whose keys and values are multiples of 32. Then
/// attention sees its own tokens' keys and values rounded too. Pages of keys and of values have one
/// type, unless Device::takes_mixed_cache(). Pages may be strided views, and values the first
/// elements of the keys: latent attention has the same pages for both.
struct KvView {
  std::span<const Tensor> k_pages;  // each [page_tokens, kv_heads, head_dim, or bytes of a row]
  std::span<const Tensor> v_pages;  // each [page_tokens, kv_heads, v_head_dim or more]
  int64_t page_tokens = 0;
  int64_t length = 0;  // tokens stored before this step; the op stores n more behind them
};

/// Rows of a step that are consecutive tokens of one sequence, with that sequence's keys and
/// values. In a list, rows lie behind those of the sequences before; together they are all of the
/// step's.
struct KvRows {
  int64_t rows = 0;
  KvView kv;
};

/// The same with a state that a recurrent op updates in place.
struct StateRows {
  int64_t rows = 0;
  Tensor state;
};

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

/// Calls visit(part) with an operation along sequences for each of them alone.
template <typename Op, typename Visit>
void for_each_part(const Op& op, const Visit& visit) {
  size_t i = 0;
  for_each_sequence(op.sequences, op.rows(),
                    [&](const auto& /*s*/, const auto& part) { visit(op.part(i++, part)); });
}

}  // namespace moeflux
