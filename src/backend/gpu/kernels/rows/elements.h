// Where rows and their elements lie, and what becomes of one element.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where row `row` begins. Most tensors have few dimensions: divisions by the others are left out,
/// as they would take longer than a row's work.
MF_FN u64 row_at(RowsLayout layout, u32 row) {
  if (row < layout.extents[2]) return row * layout.strides[2];
  const u32 rest = row / layout.extents[2];
  const u64 inner = (row - rest * layout.extents[2]) * layout.strides[2];
  if (rest < layout.extents[1]) return rest * layout.strides[1] + inner;
  return (rest / layout.extents[1]) * layout.strides[0] +
         (rest % layout.extents[1]) * layout.strides[1] + inner;
}

struct Element {
  u32 row;
  u32 col;
  bool inside;
};

/// The element of a thread of a one-dimensional grid.
MF_FN Element element_of(MF_T t, u32 rows, u32 cols) {
  const u64 i = static_cast<u64>(t.group.x) * t.threads + t.index;
  const u32 low = static_cast<u32>(i);
  const u32 row = i == low ? low / cols : static_cast<u32>(i / cols);
  return Element{row, static_cast<u32>(i - static_cast<u64>(row) * cols), row < rows};
}

MF_FN f32 activate(f32 x, u32 activation) {
  return activation == 0u   ? silu(x)
         : activation == 1u ? sigmoid(x)
         : activation == 2u ? gelu_tanh(x)
         : activation == 3u ? x
         : activation == 6u ? soft_plus(x)
         : activation == 8u ? gelu(x)
         : x < 0.0f         ? 0.0f
                            : x;
}

/// The gated unit of GluOptions.
MF_FN f32 gated_unit(f32 gate, f32 up, u32 activation, f32 alpha, f32 limit, f32 up_offset) {
  if (activation == 5u) return capped_silu(gate, up, limit);
  if (activation == 7u) return soft_capped_unit(gate, up, limit, alpha);
  if (activation != 0u) return activate(gate, activation) * up;
  return gated_silu(gate, up, alpha, limit, up_offset);
}

/// Column c of a row and, in `wide` rows, the three after it.
MF_FN F4 load_some(MF_GLOBAL(const f32) row, u32 c, u32 wide) {
  if (wide != 0u) return load4(row + c);
  const F4 one = {{row[c], 0.0f, 0.0f, 0.0f}};
  return one;
}
MF_FN void store_some(MF_GLOBAL(f32) row, u32 c, u32 wide, F4 four) {
  if (wide != 0u) {
    store4(row + c, four);
  } else {
    row[c] = four.v[0];
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
