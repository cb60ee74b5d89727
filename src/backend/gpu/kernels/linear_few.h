// out = x W^T for few rows of plain numbers and one token, such as a router's: the sums of
// linear_tile(), without what tokens share. All of a group's rows are on their way to shared memory
// before the activations are there: a SIMD group that read its row as it went took an H200 12 us
// for 256 rows of 7168.
#pragma once

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
/// column to the last: what the bits depend on.
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

// Group x: p.group_rows rows, of up to kMadeColsMax columns, a multiple of 8; kNormThreads.
#define MF_LINEAR_ONE(name, FORMAT)                                                              \
  MF_FITS(kNormThreads, 2)                                                                       \
  MF_KERNEL(name, FewRowsParams, MF_CONST(0, u8, data), MF_READ(1, f32, x),                      \
            MF_WRITE(2, f32, out)) {                                                             \
    MF_THREAD_EARLY;                                                                             \
    copy_few<FORMAT>(t, p, data);                                                                \
    await_inputs(t);                                                                             \
    MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);                           \
    MF_UNROLL                                                                                    \
    for (u32 v = 0u; v < kMadeVectors; ++v) {                                                    \
      const u32 c = made_column(t, v);                                                           \
      if (c < p.weight.cols) store4(staged + few_at(c), load4(x + c));                           \
    }                                                                                            \
    copies_wait<0u>(t);                                                                          \
    barrier(t);                                                                                  \
    multiply_few<FORMAT>(t, p, out);                                                             \
  }                                                                                              \
  MF_FITS(kNormThreads, 2)                                                                       \
  MF_KERNEL(name##_normed, FewRowsParams, MF_CONST(0, u8, data), MF_READ(1, f32, base),          \
            MF_READ(2, f32, addend), MF_CONST(3, f32, weight), MF_WRITE(4, f32, out),            \
            MF_WRITE(5, f32, sum), MF_WRITE(6, f32, normed)) {                                   \
    MF_THREAD_EARLY;                                                                             \
    const NormedRow row = {base, addend, weight, sum, normed, p.weight.cols, p.adds, p.epsilon}; \
    row.prefetch_weight(t);                                                                      \
    copy_few<FORMAT>(t, p, data);                                                                \
    await_inputs(t);                                                                             \
    const f32 factor = row.find_factor(t, MF_SHARED_AT(t, f32, 0u));                             \
    MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kNormLongSimds * 4u);                           \
    MF_UNROLL                                                                                    \
    for (u32 v = 0u; v < kMadeVectors; ++v) {                                                    \
      const u32 c = made_column(t, v);                                                           \
      if (c < p.weight.cols) store4(staged + few_at(c), row.make(t, c, factor));                 \
    }                                                                                            \
    copies_wait<0u>(t);                                                                          \
    barrier(t);                                                                                  \
    multiply_few<FORMAT>(t, p, out);                                                             \
  }
MF_LINEAR_ONE(linear_one_f32, kFormatF32)
MF_LINEAR_ONE(linear_one_f16, kFormatF16)
MF_LINEAR_ONE(linear_one_bf16, kFormatBf16)
#undef MF_LINEAR_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
