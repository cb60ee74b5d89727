// Element-wise kernels over rows of any strides: one thread an element.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where row `row` begins. Most tensors have few dimensions: what divides by others is left out, as
/// it would take longer than a row's work.
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
  return activation == 0u ? silu(x) : activation == 1u ? sigmoid(x) : gelu_tanh(x);
}

/// The gated unit of GluOptions.
MF_FN f32 gated_unit(f32 gate, f32 up, u32 activation, f32 alpha, f32 limit, f32 up_offset) {
  if (activation != 0u) return activate(gate, activation) * up;
  gate = mf_min(gate, limit);
  up = mf_min(mf_max(up, -limit), limit) + up_offset;
  return up * (gate / (1.0f + mf_exp(-alpha * gate)));
}

/// out = a
MF_KERNEL(copy_rows, RowsParams, MF_READ(0, f32, a), MF_WRITE(1, f32, out)) {
  MF_THREAD;
  const Element e = element_of(t, p.rows, p.cols);
  if (!e.inside) return;
  out[row_at(p.out, e.row) + e.col] = a[row_at(p.a, e.row) + e.col];
}

/// out = a + b
MF_KERNEL(add_rows, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, b), MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const Element e = element_of(t, p.rows, p.cols);
  if (!e.inside) return;
  out[row_at(p.out, e.row) + e.col] = a[row_at(p.a, e.row) + e.col] + b[row_at(p.b, e.row) + e.col];
}

/// out = a * factor
MF_KERNEL(scale_rows, RowsParams, MF_READ(0, f32, a), MF_WRITE(1, f32, out)) {
  MF_THREAD;
  const Element e = element_of(t, p.rows, p.cols);
  if (!e.inside) return;
  out[row_at(p.out, e.row) + e.col] = a[row_at(p.a, e.row) + e.col] * p.factor;
}

/// x = cap * tanh(x / cap)
MF_KERNEL(soft_cap_rows, RowsParams, MF_WRITE(0, f32, x)) {
  MF_THREAD;
  const Element e = element_of(t, p.rows, p.cols);
  if (!e.inside) return;
  const u64 at = row_at(p.out, e.row) + e.col;
  x[at] = p.factor * mf_tanh(x[at] / p.factor);
}

/// x += bias, the same for every row
MF_KERNEL(add_bias_rows, RowsParams, MF_READ(0, f32, bias), MF_WRITE(1, f32, x)) {
  MF_THREAD;
  const Element e = element_of(t, p.rows, p.cols);
  if (!e.inside) return;
  const u64 at = row_at(p.out, e.row) + e.col;
  x[at] = x[at] + bias[e.col];
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
/// The columns of a thread of a one-dimensional grid: four where rows are wide, one where not.
MF_FN Element columns_of(MF_T t, MF_PARAMS(RowsParams) p) {
  Element e = element_of(t, p.rows, p.wide != 0u ? p.cols / 4u : p.cols);
  if (p.wide != 0u) e.col *= 4u;
  return e;
}

/// out = a * activation(b)
MF_KERNEL(mul_activated_rows, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, b),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const Element e = columns_of(t, p);
  if (!e.inside) return;
  F4 four = load_some(a + row_at(p.a, e.row), e.col, p.wide);
  MF_GLOBAL(const f32) gates = b + row_at(p.b, e.row);
  F4 gate;
  if (p.b.cols == 1u) {
    const F4 same = {{gates[0], gates[0], gates[0], gates[0]}};
    gate = same;
  } else {
    gate = load_some(gates, e.col, p.wide);
  }
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) four.v[k] = four.v[k] * activate(gate.v[k], p.activation);
  store_some(out + row_at(p.out, e.row), e.col, p.wide, four);
}

/// out = gated_unit(a, b)
MF_KERNEL(glu_rows, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, b), MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const Element e = columns_of(t, p);
  if (!e.inside) return;
  F4 gate = load_some(a + row_at(p.a, e.row), e.col, p.wide);
  const F4 up = load_some(b + row_at(p.b, e.row), e.col, p.wide);
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    gate.v[k] = gated_unit(gate.v[k], up.v[k], p.activation, p.factor, p.limit, p.up_offset);
  }
  store_some(out + row_at(p.out, e.row), e.col, p.wide, gate);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
