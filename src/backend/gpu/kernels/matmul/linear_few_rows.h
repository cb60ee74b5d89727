// out = x W^T for few rows of plain numbers and one token, such as a router's: the sums of
// linear_tile(), without its sharing among tokens. All of a group's rows are on their way to shared
// memory before the activations are there, or to the cache where shared memory has no room. A SIMD
// group that read its row as it went took an H200 12 us for 256 rows of 7168.
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

/// Words of a row of the matrix.
template <u32 FORMAT>
MF_FN u32 few_words(MF_PARAMS(FewRowsParams) p) {
  return p.weight.cols / (FORMAT == kFormatF32 ? 1u : 2u);
}

/// A row of the matrix where it lies.
template <u32 FORMAT>
MF_FN MF_GLOBAL(const u32) few_row(MF_PARAMS(FewRowsParams) p, MF_GLOBAL(const u8) data, u32 row) {
  return MF_CAST(const u32, data) + static_cast<u64>(row) * few_words<FORMAT>(p);
}

/// Asks for the group's rows.
template <u32 FORMAT>
MF_FN void copy_few(MF_T t, MF_PARAMS(FewRowsParams) p, MF_GLOBAL(const u8) data) {
  const u32 first = t.group.x * p.group_rows;
  const u32 left = p.weight.rows - first;
  const u32 words = (left < p.group_rows ? left : p.group_rows) * few_words<FORMAT>(p);
  MF_GLOBAL(const u32) from = few_row<FORMAT>(p, data, first);
  if (p.staged == 0u) {
    for (u32 i = t.index * 32u; i < words; i += t.threads * 32u) {
      prefetch(t, MF_CAST(const f32, from + i));
    }
    return;
  }
  MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (kNormLongSimds + few_cols(p.weight.cols)) * 4u);
  for (u32 i = t.index * 4u; i < words; i += t.threads * 4u) copy_async4(t, to + i, from + i);
  copies_commit(t);
}

/// A pack of 8 columns of a row in shared or device memory.
template <u32 FORMAT, typename ROW>
MF_FN void load_pack(MF_LOCAL(f32) values, ROW row, u32 c) {
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

/// The product of a row with x in shared memory, a lane's part of it. A lane adds to one sum from
/// the first column to the last, on which the bits depend.
template <u32 FORMAT, typename ROW>
MF_FN f32 multiply_row(MF_T t, ROW own, u32 cols) {
  MF_SHARED(f32) x = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);
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
  return acc;
}

/// A row a SIMD group, once x and, where they go there, the rows are in shared memory.
template <u32 FORMAT>
MF_FN void multiply_few(MF_T t, MF_PARAMS(FewRowsParams) p, MF_GLOBAL(const u8) data,
                        MF_GLOBAL(const f32) bias, MF_GLOBAL(f32) out) {
  const u32 cols = p.weight.cols;
  const u32 row = t.group.x * p.group_rows + t.simd;
  if (t.simd >= p.group_rows || row >= p.weight.rows) return;
  const f32 more = p.has_bias != 0u ? bias[row] : 0.0f;
  f32 acc;
  if (p.staged != 0u) {
    MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, (kNormLongSimds + few_cols(cols)) * 4u);
    acc = multiply_row<FORMAT>(t, rows + t.simd * few_words<FORMAT>(p), cols);
  } else {
    acc = multiply_row<FORMAT>(t, few_row<FORMAT>(p, data, row), cols);
  }
  const f32 sum = simd_sum(t, acc);
  if (t.lane == 0u) out[row] = p.has_bias != 0u ? sum + more : sum;
}

/// A norm on its way to shared memory. A row of up to kFewColsMax columns is held by a group's
/// threads, and its weights before there are inputs to wait for.
struct FewNormed {
  F4 held[kFewVectors];
  F4 scales[kFewVectors];
  u32 weights;  // 0: it has none

  MF_FN_MEMBER F4 scale(MF_LOCAL(const NormedRow) row, u32 c) const {
    const F4 ones = {{1.0f, 1.0f, 1.0f, 1.0f}};
    return weights != 0u ? load4(row->weight + c) : ones;
  }
  MF_FN_MEMBER void begin(MF_T t, MF_LOCAL(const NormedRow) row) {
    if (row->cols > kFewColsMax) return;
    MF_UNROLL
    for (u32 v = 0u; v < kFewVectors; ++v) {
      const u32 c = made_column(t, v);
      if (c < row->cols) scales[v] = scale(row, c);
    }
  }
  /// The sum over a long row of what threads have of each share of it. Shared: kNormLongSimds
  /// floats.
  MF_FN_MEMBER f32 sum_shares(MF_T t, MF_LOCAL(const f32) own, MF_SHARED(f32) sums) const {
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
    return sum_shares(t, own, sums);
  }
  /// A row that is too long to be held waits in shared memory for its factor.
  MF_FN_MEMBER void stage_long(MF_T t, MF_LOCAL(const NormedRow) row) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);
    f32 own[kNormShares];
    MF_UNROLL
    for (u32 q = 0u; q < kNormShares; ++q) own[q] = 0.0f;
    for (u32 first = 0u; first < row->cols; first += kFewColsMax) {
      MF_UNROLL
      for (u32 v = 0u; v < kFewVectors; ++v) {
        const u32 c = first + made_column(t, v);
        held[v] = c < row->cols ? row->load(c) : nothing;
      }
      MF_UNROLL
      for (u32 v = 0u; v < kFewVectors; ++v) {
        const u32 c = first + made_column(t, v);
        own[v % kNormShares] = add_squares(own[v % kNormShares], held[v]);
        if (c < row->cols) store4(staged + few_at(c), held[v]);
      }
    }
    const f32 all = sum_shares(t, own, MF_SHARED_AT(t, f32, 0u));
    const f32 factor = norm_factor(all, row->cols, row->epsilon);
    // A thread's own columns again.
    for (u32 c = made_column(t, 0u); c < row->cols; c += kNormThreads * 4u) {
      MF_SHARED(f32) at = staged + few_at(c);
      store4(at, row->make(t, c, load4(at), factor, scale(row, c)));
    }
  }
  MF_FN_MEMBER void stage(MF_T t, MF_LOCAL(const NormedRow) row) {
    if (row->cols > kFewColsMax) return stage_long(t, row);
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
  for (u32 first = 0u; first < cols; first += kFewColsMax) {
    MF_UNROLL
    for (u32 v = 0u; v < kFewVectors; ++v) {
      const u32 c = first + made_column(t, v);
      if (c < cols) store4(staged + few_at(c), load4(x + c));
    }
  }
}

// Group x: p.group_rows rows of a multiple of 8 columns; kNormThreads.
#define MF_LINEAR_FEW_ROWS(type, FORMAT)                                                           \
  MF_FITS(kNormThreads, 2)                                                                         \
  MF_KERNEL(linear_few_rows_##type##_t1, FewRowsParams, MF_CONST(0, u8, data), MF_READ(1, f32, x), \
            MF_WRITE(2, f32, out), MF_CONST(3, f32, bias)) {                                       \
    MF_THREAD_EARLY;                                                                               \
    copy_few<FORMAT>(t, p, data);                                                                  \
    await_inputs(t);                                                                               \
    stage_few(t, x, p.weight.cols);                                                                \
    copies_wait<0u>(t);                                                                            \
    barrier(t);                                                                                    \
    multiply_few<FORMAT>(t, p, data, bias, out);                                                   \
  }                                                                                                \
  MF_FITS(kNormThreads, 2)                                                                         \
  MF_KERNEL(linear_few_rows_normed_##type##_t1, FewRowsParams, MF_CONST(0, u8, data),              \
            MF_READ(1, f32, base), MF_READ(2, f32, addend), MF_CONST(3, f32, weight),              \
            MF_WRITE(4, f32, out), MF_WRITE(5, f32, sum), MF_WRITE(6, f32, normed),                \
            MF_CONST(7, f32, bias)) {                                                              \
    MF_THREAD_EARLY;                                                                               \
    const NormedRow row = {base, addend, weight, sum, normed, p.weight.cols, p.adds, p.epsilon};   \
    copy_few<FORMAT>(t, p, data);                                                                  \
    FewNormed made;                                                                                \
    made.weights = p.weights;                                                                      \
    made.begin(t, &row);                                                                           \
    await_inputs(t);                                                                               \
    made.stage(t, &row);                                                                           \
    copies_wait<0u>(t);                                                                            \
    barrier(t);                                                                                    \
    multiply_few<FORMAT>(t, p, data, bias, out);                                                   \
  }
MF_LINEAR_FEW_ROWS(f32, kFormatF32)
MF_LINEAR_FEW_ROWS(f16, kFormatF16)
MF_LINEAR_FEW_ROWS(bf16, kFormatBf16)
#undef MF_LINEAR_FEW_ROWS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
