// out = x W^T for few rows of plain numbers and one token, such as a router's: the sums of
// linear_tile(), without its sharing among tokens. All of a group's rows are on their way to shared
// memory before the activations are there: a SIMD group that read its row as it went took an H200
// 12 us for 256 rows of 7168.
#pragma once

#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/norm/normed_row.h"
#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where column c of the staged x is, c a multiple of four: of 32 packs of 8 the first halves, then
/// the second ones, so that lanes read lines.
MF_FN u32 few_at(u32 c) { return c / 256u * 256u + c / 4u % 2u * 128u + c % 256u / 8u * 4u; }

MF_FN u32 few_cols(u32 cols) { return (cols + 255u) / 256u * 256u; }

/// Asks for the group's rows.
template <u32 FORMAT>
MF_FN void copy_few(MF_T t, MF_PARAMS(FewRowsParams) p, MF_GLOBAL(const u8) data) {
  const u32 row_words = p.weight.cols / (FORMAT == kFormatF32 ? 1u : 2u);
  const u32 first = t.group.x * p.group_rows;
  const u32 left = p.weight.rows - first;
  const u32 words = (left < p.group_rows ? left : p.group_rows) * row_words;
  MF_GLOBAL(const u32) from = MF_CAST(const u32, data) + static_cast<u64>(first) * row_words;
  MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (kNormLongSimds + few_cols(p.weight.cols)) * 4u);
  for (u32 i = t.index * 4u; i < words; i += t.threads * 4u) copy_async4(t, to + i, from + i);
  copies_commit(t);
}

/// A pack of 8 columns of a row in shared memory.
template <u32 FORMAT>
MF_FN void load_pack(MF_LOCAL(f32) values, MF_SHARED(u32) row, u32 c) {
  if (FORMAT == kFormatF32) {
    const W4 low = load4(row + c);
    const W4 high = load4(row + (c + 4u));
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) {
      values[k] = as_float(low.v[k]);
      values[k + 4u] = as_float(high.v[k]);
    }
  } else {
    const W4 pairs = load4(row + c / 2u);
    MF_UNROLL
    for (u32 k = 0u; k < 8u; ++k) {
      const u16 bits = static_cast<u16>(pairs.v[k / 2u] >> (16u * (k % 2u)));
      values[k] = FORMAT == kFormatBf16 ? bf16_to_float(bits) : f16_to_float(bits);
    }
  }
}

/// Packs of a lane that are under way together.
enum : u32 { kFewPacks = 4 };

/// A row a SIMD group, once rows and x are in shared memory. A lane adds to one sum from the first
/// column to the last, on which the bits depend.
template <u32 FORMAT>
MF_FN void multiply_few(MF_T t, MF_PARAMS(FewRowsParams) p, MF_GLOBAL(f32) out) {
  const u32 cols = p.weight.cols;
  const u32 row = t.group.x * p.group_rows + t.simd;
  if (t.simd >= p.group_rows || row >= p.weight.rows) return;
  MF_SHARED(f32) x = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);
  MF_SHARED(u32)
  own = MF_SHARED_AT(t, u32, (kNormLongSimds + few_cols(cols)) * 4u) +
        t.simd * (cols / (FORMAT == kFormatF32 ? 1u : 2u));
  f32 acc = 0.0f;
  for (u32 first = t.lane * 8u; first < cols; first += kFewPacks * 256u) {
    f32 values[kFewPacks][8];
    F4 columns[kFewPacks][2];
    MF_UNROLL
    for (u32 i = 0u; i < kFewPacks; ++i) {
      // Past the end, columns that are there.
      const u32 c = first + i * 256u < cols ? first + i * 256u : first;
      load_pack<FORMAT>(values[i], own, c);
      columns[i][0] = load4(x + few_at(c));
      columns[i][1] = load4(x + (few_at(c) + 128u));
    }
    MF_UNROLL
    for (u32 i = 0u; i < kFewPacks; ++i) {
      if (first + i * 256u >= cols) continue;
      MF_UNROLL
      for (u32 k = 0u; k < 8u; ++k) {
        acc = mf_fma(values[i][k], columns[i][k / 4u].v[k % 4u], acc);
      }
    }
  }
  const f32 sum = simd_sum(t, acc);
  if (t.lane == 0u) out[row] = sum;
}

/// A norm on its way to shared memory, held by a group's threads; its weights before there are
/// inputs to wait for.
struct FewNormed {
  F4 held[kFewVectors];
  F4 scales[kFewVectors];

  MF_FN_MEMBER void begin(MF_T t, MF_LOCAL(const NormedRow) row) {
    MF_UNROLL
    for (u32 v = 0u; v < kFewVectors; ++v) {
      const u32 c = made_column(t, v);
      if (c < row->cols) scales[v] = load4(row->weight + c);
    }
  }
  /// Shared: kNormLongSimds floats.
  MF_FN_MEMBER f32 squares(MF_T t, MF_LOCAL(const NormedRow) row, MF_SHARED(f32) sums) const {
    if (row->cols <= kNormNarrowCols) return row->narrow_squares(t);
    f32 own[kNormShares];
    MF_UNROLL
    for (u32 q = 0u; q < kNormShares; ++q) own[q] = 0.0f;
    if (row->cols <= kNormMiddleCols) {
      MF_UNROLL
      for (u32 v = 0u; v < kFewVectors / 2u; ++v) own[0] = add_squares(own[0], held[v]);
      return group_sum(t, own[0], sums);
    }
    MF_UNROLL
    for (u32 v = 0u; v < kFewVectors; ++v) {
      own[v % kNormShares] = add_squares(own[v % kNormShares], held[v]);
    }
    MF_UNROLL
    for (u32 q = 0u; q < kNormShares; ++q) {
      const f32 all = simd_sum(t, own[q]);
      if (t.lane == 0u) sums[q * (kNormThreads / 32u) + t.simd] = all;
    }
    barrier(t);
    f32 sum = 0.0f;
    MF_UNROLL
    for (u32 s = 0u; s < kNormLongSimds; ++s) sum = sum + sums[s];
    return sum;
  }
  MF_FN_MEMBER void stage(MF_T t, MF_LOCAL(const NormedRow) row) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_UNROLL
    for (u32 v = 0u; v < kFewVectors; ++v) {
      const u32 c = made_column(t, v);
      held[v] = c < row->cols ? row->load(c) : nothing;
    }
    const f32 all = squares(t, row, MF_SHARED_AT(t, f32, 0u));
    const f32 factor = norm_factor(all, row->cols, row->epsilon);
    MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);
    MF_UNROLL
    for (u32 v = 0u; v < kFewVectors; ++v) {
      const u32 c = made_column(t, v);
      if (c < row->cols) store4(staged + few_at(c), row->make(t, c, held[v], factor, scales[v]));
    }
  }
};

/// A row that is there.
MF_FN void stage_few(MF_T t, MF_GLOBAL(const f32) x, u32 cols) {
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);
  MF_UNROLL
  for (u32 v = 0u; v < kFewVectors; ++v) {
    const u32 c = made_column(t, v);
    if (c < cols) store4(staged + few_at(c), load4(x + c));
  }
}

// Group x: p.group_rows rows, of up to kFewColsMax columns, a multiple of 8; kNormThreads.
#define MF_LINEAR_FEW_ROWS(type, FORMAT)                                                           \
  MF_FITS(kNormThreads, 2)                                                                         \
  MF_KERNEL(linear_few_rows_##type##_t1, FewRowsParams, MF_CONST(0, u8, data), MF_READ(1, f32, x), \
            MF_WRITE(2, f32, out)) {                                                               \
    MF_THREAD_EARLY;                                                                               \
    copy_few<FORMAT>(t, p, data);                                                                  \
    await_inputs(t);                                                                               \
    stage_few(t, x, p.weight.cols);                                                                \
    copies_wait<0u>(t);                                                                            \
    barrier(t);                                                                                    \
    multiply_few<FORMAT>(t, p, out);                                                               \
  }                                                                                                \
  MF_FITS(kNormThreads, 2)                                                                         \
  MF_KERNEL(linear_few_rows_normed_##type##_t1, FewRowsParams, MF_CONST(0, u8, data),              \
            MF_READ(1, f32, base), MF_READ(2, f32, addend), MF_CONST(3, f32, weight),              \
            MF_WRITE(4, f32, out), MF_WRITE(5, f32, sum), MF_WRITE(6, f32, normed)) {              \
    MF_THREAD_EARLY;                                                                               \
    const NormedRow row = {base, addend, weight, sum, normed, p.weight.cols, p.adds, p.epsilon};   \
    copy_few<FORMAT>(t, p, data);                                                                  \
    FewNormed made;                                                                                \
    made.begin(t, &row);                                                                           \
    await_inputs(t);                                                                               \
    made.stage(t, &row);                                                                           \
    copies_wait<0u>(t);                                                                            \
    barrier(t);                                                                                    \
    multiply_few<FORMAT>(t, p, out);                                                               \
  }
MF_LINEAR_FEW_ROWS(f32, kFormatF32)
MF_LINEAR_FEW_ROWS(f16, kFormatF16)
MF_LINEAR_FEW_ROWS(bf16, kFormatBf16)
#undef MF_LINEAR_FEW_ROWS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
