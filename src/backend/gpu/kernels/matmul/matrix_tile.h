// The one way in which weights meet activations: rows of a matrix times up to eight tokens.
//
// A SIMD group owns a few rows; a lane takes every 32nd pack of a row's columns, packs in order,
// elements in order; the lanes' sums are added by simd_sum. So the bits of one product depend on
// the matrix and the activations alone: not on how many tokens share the tile, nor on how many
// columns are staged at a time. Activations are staged in shared memory, swizzled so that the
// lanes' reads of their packs meet different banks.
#pragma once

#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where column c of a staged row lies: 16-byte pieces of a pack of 32 are permuted by the pack.
MF_FN u32 staged_at(u32 c) {
  const u32 pack = c / 32u;
  return pack * 32u + ((((c / 4u) ^ pack) & 7u) * 4u) + (c & 3u);
}

/// Copies columns [begin, begin + count) of a row, padded with zeros to a multiple of 32. `wide`:
/// the row begins on a 16-byte boundary; begin is a multiple of 32.
MF_FN void stage_row(MF_T t, MF_SHARED(f32) staged, MF_GLOBAL(const f32) row, u32 begin, u32 count,
                     bool is_zero, u32 wide) {
  const u32 padded = (count + 31u) / 32u * 32u;
  u32 done = 0u;
  if (wide != 0u && !is_zero) {
    // Four loads under way before the first is needed: a small product is all latency.
    done = count / 4u * 4u;
    for (u32 base = t.index * 4u; base < done; base += t.threads * 16u) {
      F4 parts[4];
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 c = base + i * t.threads * 4u;
        if (c < done) parts[i] = load4(row + (begin + c));
      }
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 c = base + i * t.threads * 4u;
        if (c < done) store4(staged + staged_at(c), parts[i]);
      }
    }
  }
  for (u32 c = done + t.index; c < padded; c += t.threads) {
    staged[staged_at(c)] = is_zero || c >= count ? 0.0f : row[begin + c];
  }
}

/// Code j of a pack of 32 in `BITS` words; j is known to the compiler after unrolling.
template <u32 BITS>
MF_FN f32 pack_code(MF_LOCAL(const u32) words, u32 j) {
  const u32 bit = j * BITS;
  const u32 shift = bit % 32u;
  u32 window = words[bit / 32u] >> shift;
  if (shift + BITS > 32u) window |= words[bit / 32u + 1u] << (32u - shift);
  return static_cast<f32>(window & ((1u << BITS) - 1u));
}

template <u32 BITS>
MF_FN void load_pack(MF_LOCAL(u32) words, MF_GLOBAL(const u32) from, u32 wide) {
  if (BITS % 4u == 0u && wide != 0u) {
    MF_UNROLL
    for (u32 i = 0u; i < BITS / 4u; ++i) {
      const W4 four = load4(from + i * 4u);
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) words[i * 4u + k] = four.v[k];
    }
  } else {
    MF_UNROLL
    for (u32 i = 0u; i < BITS; ++i) words[i] = from[i];
  }
}

/// acc[r * TOKENS + j] += row r times token j over the staged columns, this lane's packs of 32.
template <u32 BITS, u32 ROWS, u32 TOKENS>
MF_FN void accumulate_affine(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, MF_GLOBAL(const u8) data,
                             MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                             MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                             u32 begin, u32 count) {
  MF_GLOBAL(const u32) codes = MF_CAST(const u32, data);
  const u64 row_words = m.cols / 32u * BITS;
  const u64 row_groups = m.cols >> m.group_shift;
  for (u32 c = t.lane * 32u; c < count; c += 32u * 32u) {
    u32 words[ROWS][BITS];
    f32 dots[ROWS * TOKENS];
    f32 sums[TOKENS];
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      load_pack<BITS>(words[r], codes + (rows[r] * row_words + (begin + c) / 32u * BITS), m.wide);
    }
    f32 group_scales[ROWS];
    f32 group_biases[ROWS];
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      const u64 group = rows[r] * row_groups + ((begin + c) >> m.group_shift);
      group_scales[r] = load_plain(scales, group, m.scales);
      group_biases[r] = load_plain(biases, group, m.scales);
    }
    MF_UNROLL
    for (u32 i = 0u; i < ROWS * TOKENS; ++i) dots[i] = 0.0f;
    MF_UNROLL
    for (u32 j = 0u; j < TOKENS; ++j) sums[j] = 0.0f;
    MF_UNROLL
    for (u32 q = 0u; q < 8u; ++q) {
      MF_UNROLL
      for (u32 j = 0u; j < TOKENS; ++j) {
        const F4 x = load4(staged + (j * stage_cols + staged_at(c + q * 4u)));
        MF_UNROLL
        for (u32 k = 0u; k < 4u; ++k) {
          sums[j] += x.v[k];
          MF_UNROLL
          for (u32 r = 0u; r < ROWS; ++r) {
            const f32 code = pack_code<BITS>(words[r], q * 4u + k);
            dots[r * TOKENS + j] = mf_fma(code, x.v[k], dots[r * TOKENS + j]);
          }
        }
      }
    }
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      MF_UNROLL
      for (u32 j = 0u; j < TOKENS; ++j) {
        const u32 i = r * TOKENS + j;
        acc[i] = mf_fma(group_biases[r], sums[j], mf_fma(group_scales[r], dots[i], acc[i]));
      }
    }
  }
}

/// Eight plain numbers from element `at`; those at `left` and beyond are 0.
template <u32 FORMAT>
MF_FN void load_eight(MF_LOCAL(f32) values, MF_GLOBAL(const u8) data, u64 at, u32 left, u32 wide) {
  if (wide != 0u && left >= 8u) {
    if (FORMAT == kFormatF32) {
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        const F4 four = load4(MF_CAST(const f32, data) + (at + i * 4u));
        MF_UNROLL
        for (u32 k = 0u; k < 4u; ++k) values[i * 4u + k] = four.v[k];
      }
    } else {
      const W4 pairs = load4(MF_CAST(const u32, data) + at / 2u);
      MF_UNROLL
      for (u32 k = 0u; k < 8u; ++k) {
        const u16 bits = static_cast<u16>(pairs.v[k / 2u] >> (16u * (k % 2u)));
        values[k] = FORMAT == kFormatBf16 ? bf16_to_float(bits) : f16_to_float(bits);
      }
    }
  } else {
    MF_UNROLL
    for (u32 k = 0u; k < 8u; ++k) values[k] = k < left ? load_plain(data, at + k, FORMAT) : 0.0f;
  }
}

/// acc[r * TOKENS + j] += eight numbers of row r, from values[r * 8] on, times those of token j
/// from column c of the stage.
template <u32 ROWS, u32 TOKENS>
MF_FN void add_eight(MF_LOCAL(f32) acc, MF_LOCAL(const f32) values, MF_SHARED(f32) staged,
                     u32 stage_cols, u32 c) {
  MF_UNROLL
  for (u32 q = 0u; q < 2u; ++q) {
    MF_UNROLL
    for (u32 j = 0u; j < TOKENS; ++j) {
      const F4 x = load4(staged + (j * stage_cols + staged_at(c + q * 4u)));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) {
        MF_UNROLL
        for (u32 r = 0u; r < ROWS; ++r) {
          const u32 i = r * TOKENS + j;
          acc[i] = mf_fma(values[r * 8u + q * 4u + k], x.v[k], acc[i]);
        }
      }
    }
  }
}

/// Like accumulate_affine() for plain numbers, in packs of 8.
template <u32 FORMAT, u32 ROWS, u32 TOKENS>
MF_FN void accumulate_plain(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, MF_GLOBAL(const u8) data,
                            MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                            u32 begin, u32 count) {
  for (u32 c = t.lane * 8u; c < count; c += 8u * 32u) {
    f32 values[ROWS * 8u];
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      load_eight<FORMAT>(values + r * 8u, data, static_cast<u64>(rows[r]) * m.cols + begin + c,
                         count - c, m.wide);
    }
    add_eight<ROWS, TOKENS>(acc, values, staged, stage_cols, c);
  }
}

/// Like accumulate_plain() for numbers in formats that coded_eight() reads.
template <u32 ROWS, u32 TOKENS>
MF_FN void accumulate_coded(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, CodedParts parts,
                            MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                            u32 begin, u32 count) {
  for (u32 c = t.lane * 8u; c < count; c += 8u * 32u) {
    f32 values[ROWS * 8u];
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      coded_eight(values + r * 8u, m, parts, rows[r], begin + c, count - c);
    }
    add_eight<ROWS, TOKENS>(acc, values, staged, stage_cols, c);
  }
}

/// Like accumulate_plain() for FP8. A single token waits for several packs at once.
template <u32 ROWS, u32 TOKENS>
MF_FN void accumulate_fp8(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, CodedParts parts,
                          MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                          u32 begin, u32 count) {
  constexpr u32 kPacks = TOKENS == 1u ? 4u : 1u;
  for (u32 first = t.lane * 8u; first < count; first += kPacks * 256u) {
    u32 codes[kPacks][ROWS][2];
    f32 scales[kPacks][ROWS];
    MF_UNROLL
    for (u32 i = 0u; i < kPacks; ++i) {
      const u32 c = first + i * 256u;
      if (c >= count) continue;
      MF_UNROLL
      for (u32 r = 0u; r < ROWS; ++r) {
        const u64 at = static_cast<u64>(rows[r]) * m.cols + begin + c;
        const W2 pair = load2(MF_CAST(const u32, parts.codes + at));
        codes[i][r][0] = pair.v[0];
        codes[i][r][1] = pair.v[1];
        scales[i][r] = fp8_scale_at(m, parts.scales, rows[r], begin + c);
      }
    }
    MF_UNROLL
    for (u32 i = 0u; i < kPacks; ++i) {
      const u32 c = first + i * 256u;
      if (c >= count) continue;
      MF_UNROLL
      for (u32 q = 0u; q < 2u; ++q) {
        f32 values[ROWS][4];
        MF_UNROLL
        for (u32 r = 0u; r < ROWS; ++r) fp8_quad(values[r], codes[i][r][q], scales[i][r]);
        MF_UNROLL
        for (u32 j = 0u; j < TOKENS; ++j) {
          const F4 x = load4(staged + (j * stage_cols + staged_at(c + q * 4u)));
          MF_UNROLL
          for (u32 k = 0u; k < 4u; ++k) {
            MF_UNROLL
            for (u32 r = 0u; r < ROWS; ++r) {
              acc[r * TOKENS + j] = mf_fma(values[r][k], x.v[k], acc[r * TOKENS + j]);
            }
          }
        }
      }
    }
  }
}

/// Either of them. FORMAT 0 looks at the layout instead: one kernel for matrices of any format.
template <u32 FORMAT, u32 ROWS, u32 TOKENS>
struct Accumulate {
  static MF_FN_MEMBER void run(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, MF_GLOBAL(const u8) data,
                               MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                               MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                               u32 begin, u32 count) {
    accumulate_affine<FORMAT, ROWS, TOKENS>(t, acc, m, data, scales, biases, rows, staged,
                                            stage_cols, begin, count);
  }
};

#define MF_PLAIN_ACCUMULATE(FORMAT)                                                             \
  template <u32 ROWS, u32 TOKENS>                                                               \
  struct Accumulate<FORMAT, ROWS, TOKENS> {                                                     \
    static MF_FN_MEMBER void run(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m,                     \
                                 MF_GLOBAL(const u8) data, MF_GLOBAL(const u8),                 \
                                 MF_GLOBAL(const u8), MF_LOCAL(const u32) rows,                 \
                                 MF_SHARED(f32) staged, u32 stage_cols, u32 begin, u32 count) { \
      accumulate_plain<FORMAT, ROWS, TOKENS>(t, acc, m, data, rows, staged, stage_cols, begin,  \
                                             count);                                            \
    }                                                                                           \
  };
MF_PLAIN_ACCUMULATE(kFormatF32)
MF_PLAIN_ACCUMULATE(kFormatF16)
MF_PLAIN_ACCUMULATE(kFormatBf16)
#undef MF_PLAIN_ACCUMULATE

/// Formats that coded_eight() reads: few registers, so that many groups wait for their rows.
template <u32 ROWS, u32 TOKENS>
struct Accumulate<kFormatCoded, ROWS, TOKENS> {
  static MF_FN_MEMBER void run(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, MF_GLOBAL(const u8) data,
                               MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                               MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                               u32 begin, u32 count) {
    accumulate_coded<ROWS, TOKENS>(t, acc, m, CodedParts{data, scales, biases}, rows, staged,
                                   stage_cols, begin, count);
  }
};

/// Rows that do not begin on 16-byte boundaries are read number by number.
template <u32 ROWS, u32 TOKENS>
struct Accumulate<kCoded_fp8, ROWS, TOKENS> {
  static MF_FN_MEMBER void run(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, MF_GLOBAL(const u8) data,
                               MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                               MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                               u32 begin, u32 count) {
    const CodedParts parts = {data, scales, biases};
    if (m.wide != 0u) {
      accumulate_fp8<ROWS, TOKENS>(t, acc, m, parts, rows, staged, stage_cols, begin, count);
    } else {
      accumulate_coded<ROWS, TOKENS>(t, acc, m, parts, rows, staged, stage_cols, begin, count);
    }
  }
};

#define MF_ANY_CASE(FORMAT)                                                              \
  if (m.format == FORMAT) {                                                              \
    Accumulate<FORMAT, ROWS, TOKENS>::run(t, acc, m, data, scales, biases, rows, staged, \
                                          stage_cols, begin, count);                     \
  }
template <u32 ROWS, u32 TOKENS>
struct Accumulate<0u, ROWS, TOKENS> {
  static MF_FN_MEMBER void run(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, MF_GLOBAL(const u8) data,
                               MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                               MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                               u32 begin, u32 count) {
    MF_ANY_CASE(kFormatF32)
    MF_ANY_CASE(kFormatF16)
    MF_ANY_CASE(kFormatBf16)
    MF_ANY_CASE(2u)
    MF_ANY_CASE(3u)
    MF_ANY_CASE(4u)
    MF_ANY_CASE(5u)
    MF_ANY_CASE(6u)
    MF_ANY_CASE(8u)
    MF_ANY_CASE(kCoded_fp8)
    if (m.format >= kFormatCoded && m.format != kCoded_fp8) {
      accumulate_coded<ROWS, TOKENS>(t, acc, m, CodedParts{data, scales, biases}, rows, staged,
                                     stage_cols, begin, count);
    }
  }
};
#undef MF_ANY_CASE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
