// Element-wise kernels over rows of any strides: one thread an element.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

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
