// Products on matrix units for many tokens: a SIMD group has 32 rows of a matrix times up to 32
// tokens, column block after column block. A thread needs 128 registers at most, so that two groups
// share a multiprocessor: one adds up floats while the other has the matrix units.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kUnitBegun = 0x4b400000u,  // 1.5 * 2^23, from which integers are counted on: n more is that + n
};
/// 256 * high + low, rounded once, of sums that were begun so. No sum reaches 2^22, and all but the
/// last addition is exact; conversions of integers have a fourth of the units or fewer.
MF_FN f32 unit_product(i32 high, i32 low) {
  const f32 less = mf_fma(as_float(static_cast<u32>(high)), 256.0f, -257.0f * 12582912.0f);
  return less + as_float(static_cast<u32>(low));
}

/// Adds block `within_split` of a split, `within` of a stage, to the totals: 32 rows times TILES *
/// 8 tokens.
template <u32 BITS, u32 TILES>
MF_FN void add_unit_blocks(MF_T t, MF_LOCAL(f32) totals, u32 stage, u32 within, u32 within_split) {
  MF_SHARED(u32)
  own = MF_SHARED_AT(t, u32, (stage + within * (kUnitTokens * kUnitTokenWords)) * 4u) +
        (t.lane / 4u * kUnitTokenWords + (t.lane & 3u) * 8u);
  MF_SHARED(f32)
  sums = MF_SHARED_AT(t, f32, (stage + kUnitStageSums + within * (kUnitTokens * 2u)) * 4u) +
         (t.lane & 3u) * 4u;
  MF_SHARED(u32)
  scales = UnitScales::of_simd(t) + (within_split * (kUnitManyRows * 2u) + t.lane / 4u * 2u);
  W2 codes[kUnitManyRows / 4u];
  load_stage_codes<BITS>(t, codes, stage, within);
  f32 scale[kUnitManyRows / 8u];
  f32 bias[kUnitManyRows / 8u];
  MF_UNROLL
  for (u32 r = 0u; r < kUnitManyRows / 8u; ++r) {
    const W2 both = load2(scales + r * 16u);
    scale[r] = as_float(both.v[0]);
    bias[r] = as_float(both.v[1]);
  }
  MF_UNROLL
  for (u32 n = 0u; n < TILES; ++n) {
    const W4 x[2] = {load4(own + n * 8u * kUnitTokenWords),
                     load4(own + (n * 8u * kUnitTokenWords + 4u))};
    const F4 two = load4(sums + n * 16u);  // sum and factor of two tokens
    MF_UNROLL
    for (u32 m = 0u; m < kUnitManyRows / 16u; ++m) {
      i32 c[4];  // of the 256s
      i32 d[4];  // of the ones
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) c[i] = d[i] = static_cast<i32>(kUnitBegun);
      MF_UNROLL
      for (u32 h = 0u; h < 2u; ++h) {
        const W2 low = codes[m * 4u + h];
        const W2 high = codes[m * 4u + 2u + h];
        matrix_multiply_add_bytes(t, c, low.v[0], high.v[0], low.v[1], high.v[1], x[h].v[0],
                                  x[h].v[1]);
        matrix_multiply_add_bytes(t, d, low.v[0], high.v[0], low.v[1], high.v[1], x[h].v[2],
                                  x[h].v[3]);
      }
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 at = (m * TILES + n) * 4u + i;
        const u32 r = m * 2u + i / 2u;
        totals[at] = add_unit_product(totals[at], unit_product(c[i], d[i]), scale[r], bias[r],
                                      two.v[i % 2u * 2u], two.v[i % 2u * 2u + 1u]);
      }
    }
  }
}

/// 32 rows of a matrix times TILES * 8 rows of x: all threads of a group together, each SIMD group
/// with rows of its own, which may be none.
template <u32 BITS, u32 TILES>
struct UnitSums {
  enum : u32 { kOwn = TILES * 8u };
  f32 v[kOwn];  // in fours, as matrix_multiply_add_bytes() has them

  MF_FN_MEMBER void multiply(MF_T t, UnitMatrix m, u32 cols, MF_GLOBAL(const u8) data,
                             MF_GLOBAL(const u8) scale_data, MF_GLOBAL(const u8) bias_data, u32 row,
                             MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums) {
    const bool is_mine = row < m.rows;
    const u32 first_row = is_mine ? row : m.rows - 1u;
    const u32 blocks = cols / kUnitBlock;
    MF_GLOBAL(const u32) codes = MF_CAST(const u32, data);
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) v[i] = 0.0f;
    UnitStages<BITS, TILES> stages;
    stages.begin(t, cols, first_row, m.rows);
    MF_UNROLL
    for (u32 s = 0u; s + 1u < kUnitStages; ++s) stages.issue(t, codes, m.wide, split, split_sums);
    UnitScales scales;
    scales.load(t, m, scale_data, bias_data, cols, first_row, 0u);
    u32 stage = kUnitTokens;
    for (u32 first = 0u; first < blocks; first += kUnitSplitBlocks) {
      f32 totals[kOwn];
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) totals[i] = 0.0f;
      scales.place(t, m.scales);
      const bool is_last = blocks - first <= kUnitSplitBlocks;
      if (!is_last) {
        scales.load(t, m, scale_data, bias_data, cols, first_row, first + kUnitSplitBlocks);
      }
      const u32 count = is_last ? blocks - first : static_cast<u32>(kUnitSplitBlocks);
      MF_ROLLED
      for (u32 block = 0u; block < count; block += UnitStages<BITS, TILES>::kBlocks) {
        copies_wait<kUnitStages - 2u>(t);
        barrier(t);
        stages.issue(t, codes, m.wide, split, split_sums);
        if (is_mine) {
          add_unit_blocks<BITS, TILES>(t, totals, stage, 0u, block);
          if (BITS == 4u && block + 1u < count) {
            add_unit_blocks<BITS, TILES>(t, totals, stage, 1u, block + 1u);
          }
        }
        stage = stage + kUnitStageWords < kUnitStagesEnd ? stage + kUnitStageWords
                                                         : static_cast<u32>(kUnitTokens);
      }
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) v[i] = v[i] + totals[i];
    }
  }

  /// Leaves them in shared memory, all rows of the group of a token one behind another.
  MF_FN_MEMBER void place(MF_T t) const {
    MF_SHARED(f32)
    to = MF_SHARED_AT(t, f32, 0u) +
         ((t.lane & 3u) * 2u * kUnitPlaceWords + t.simd * kUnitManyRows + t.lane / 4u);
    barrier(t);
    MF_UNROLL
    for (u32 at = 0u; at < kOwn; ++at) {
      const u32 row = at / (TILES * 4u) * 16u + at / 2u % 2u * 8u;
      const u32 token = at / 4u % TILES * 8u + at % 2u;
      to[token * kUnitPlaceWords + row] = v[at];
    }
    barrier(t);
  }
};

/// Products of a group's 256 rows, 32 from `row` on in the calling SIMD group, with up to `tokens`
/// rows of x: leaves those of each token kUnitPlaceWords behind the last one's in shared memory.
template <u32 BITS, u32 TILES>
MF_FN void unit_multiply_tiles(MF_T t, UnitMatrix m, u32 cols, MF_GLOBAL(const u8) data,
                               MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u32 row,
                               MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums) {
  UnitSums<BITS, TILES> sums;
  sums.multiply(t, m, cols, data, scales, biases, row, split, split_sums);
  sums.place(t);
}
MF_FN void unit_multiply(MF_T t, UnitMatrix m, u32 cols, MF_GLOBAL(const u8) data,
                         MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u32 row,
                         u32 tokens, MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums) {
  if (m.bits == 4u && tokens > kUnitTokens / 2u) {
    unit_multiply_tiles<4u, 4u>(t, m, cols, data, scales, biases, row, split, split_sums);
  } else if (m.bits == 4u) {
    unit_multiply_tiles<4u, 2u>(t, m, cols, data, scales, biases, row, split, split_sums);
  } else {
    unit_multiply_tiles<8u, 4u>(t, m, cols, data, scales, biases, row, split, split_sums);
  }
}

/// Group x: 256 rows of one of the matrices; y: 32 tokens. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_linear, UnitLinearParams, MF_CONST(0, u8, data0), MF_CONST(1, u8, scales0),
          MF_CONST(2, u8, biases0), MF_CONST(3, u8, data1), MF_CONST(4, u8, scales1),
          MF_CONST(5, u8, biases1), MF_CONST(6, u8, data2), MF_CONST(7, u8, scales2),
          MF_CONST(8, u8, biases2), MF_CONST(9, u8, data3), MF_CONST(10, u8, scales3),
          MF_CONST(11, u8, biases3), MF_READ(12, u32, split), MF_READ(13, f32, split_sums),
          MF_WRITE(14, f32, out0), MF_WRITE(15, f32, out1), MF_WRITE(16, f32, out2),
          MF_WRITE(17, f32, out3)) {
  MF_THREAD;
  u32 which = 0u;
  MF_UNROLL
  for (u32 i = 1u; i < kUnitMatricesMax; ++i) {
    if (i < p.count && t.group.x >= p.first_group[i]) which = i;
  }
  const UnitMatrix m = p.matrices[which];
  MF_GLOBAL(const u8)
  data = which == 0u ? data0 : which == 1u ? data1 : which == 2u ? data2 : data3;
  MF_GLOBAL(const u8)
  scales = which == 0u ? scales0 : which == 1u ? scales1 : which == 2u ? scales2 : scales3;
  MF_GLOBAL(const u8)
  biases = which == 0u ? biases0 : which == 1u ? biases1 : which == 2u ? biases2 : biases3;
  MF_GLOBAL(f32) out = which == 0u ? out0 : which == 1u ? out1 : which == 2u ? out2 : out3;
  const u64 stride = p.out_strides[which];
  MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
  const u32 token = t.group.y * kUnitTokens;
  const u32 last = p.tokens - 1u;
  // Past the last token its row is multiplied again, and not stored.
  if (t.index < kUnitTokens) rows[t.index] = token + t.index < last ? token + t.index : last;
  barrier(t);
  const u32 first_row = (t.group.x - p.first_group[which]) * kUnitGroupRows;
  const u32 count = p.tokens - token < kUnitTokens ? p.tokens - token : kUnitTokens;
  unit_multiply(t, m, p.cols, data, scales, biases, first_row + t.simd * kUnitManyRows, count,
                split, split_sums);
  const u32 row = first_row + t.index;
  if (row >= m.rows) return;
  MF_SHARED(f32) products = MF_SHARED_AT(t, f32, 0u) + t.index;
  for (u32 i = 0u; i < count; ++i) {
    out[(token + i) * stride + row] = products[i * kUnitPlaceWords];
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
