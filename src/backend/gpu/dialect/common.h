// Functions that every dialect derives from its primitives in the same way: reductions over a SIMD
// group in a fixed order, and small numeric helpers. Kernel text: compiled by all dialects.
#pragma once

namespace moeflux {
namespace gpu {

#if !defined(MF_HAS_REDUCTIONS)
/// The sum over the SIMD group, the same bits in every lane and on every vendor.
MF_FN f32 simd_sum(MF_T t, f32 value) {
  value += simd_shuffle_xor(t, value, 16u);
  value += simd_shuffle_xor(t, value, 8u);
  value += simd_shuffle_xor(t, value, 4u);
  value += simd_shuffle_xor(t, value, 2u);
  value += simd_shuffle_xor(t, value, 1u);
  return value;
}

/// The sums of N numbers, which take their places: one exchange on the emulator.
template <u32 N>
MF_FN void simd_sums(MF_T t, MF_LOCAL(f32) values) {
  MF_UNROLL
  for (u32 i = 0u; i < N; ++i) values[i] = simd_sum(t, values[i]);
}

/// N numbers of lane ^ mask take the places of the lane's own.
template <u32 N>
MF_FN void simd_shuffles_xor(MF_T t, MF_LOCAL(f32) values, u32 mask) {
  MF_UNROLL
  for (u32 i = 0u; i < N; ++i) values[i] = simd_shuffle_xor(t, values[i], mask);
}

MF_FN f32 simd_max(MF_T t, f32 value) {
  value = mf_max(value, simd_shuffle_xor(t, value, 16u));
  value = mf_max(value, simd_shuffle_xor(t, value, 8u));
  value = mf_max(value, simd_shuffle_xor(t, value, 4u));
  value = mf_max(value, simd_shuffle_xor(t, value, 2u));
  value = mf_max(value, simd_shuffle_xor(t, value, 1u));
  return value;
}
#endif

#if !defined(MF_HAS_ASYNC_COPIES)
MF_FN void copy_async4(MF_T, MF_SHARED(u32) to, MF_GLOBAL(const u32) from) {
  store4(to, load4(from));
}
MF_FN void copy_async4_if(MF_T, MF_SHARED(u32) to, MF_GLOBAL(const u32) from, bool exists) {
  const W4 nothing = {{0u, 0u, 0u, 0u}};
  store4(to, nothing);
  if (exists) store4(to, load4(from));
}
MF_FN void copy_async1(MF_T, MF_SHARED(u32) to, MF_GLOBAL(const u32) from) { to[0] = from[0]; }
MF_FN void copies_commit(MF_T) {}
template <u32 PENDING>
MF_FN void copies_wait(MF_T) {}
MF_FN void copies_publish(MF_T) {}
#endif

MF_FN f32 bf16_to_float(u16 bits) { return as_float(static_cast<u32>(bits) << 16); }
MF_FN f32 f16_half(u32 pair, u32 half) {
  return f16_to_float(static_cast<u16>(half == 0u ? pair & 0xffffu : pair >> 16u));
}

/// A number of e4m3. All but NaN are halves that are 256 times too small.
MF_FN f32 e4m3_of(u32 code) {
  const u32 magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return f16_to_float(static_cast<u16>(0x7e00u));
  return f16_to_float(static_cast<u16>((code & 0x80u) << 8 | magnitude << 7)) * 256.0f;
}

#if !defined(MF_HAS_E4M3)
/// Four of a word, in order: two at a time become halves.
MF_FN void e4m3_quad(MF_LOCAL(f32) values, u32 codes) {
  const u32 even = (codes << 8u & 0x80008000u) | (codes << 7u & 0x3f803f80u);
  const u32 odd = (codes & 0x80008000u) | (codes >> 1u & 0x3f803f80u);
  values[0] = f16_half(even, 0u) * 256.0f;
  values[1] = f16_half(odd, 0u) * 256.0f;
  values[2] = f16_half(even, 1u) * 256.0f;
  values[3] = f16_half(odd, 1u) * 256.0f;
  // A code of all bits is NaN; few matrices have one.
  if ((((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) == 0u) return;
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) values[k] = e4m3_of(codes >> (8u * k) & 0xffu);
}
#endif

#if !defined(MF_HAS_MATRIX_UNITS)
// Functions for which CUDA's dialect has instructions; slow here, for tests and for GPUs without
// them.
MF_FN u32 even_bytes(u32 low, u32 high) {
  return (low & 0xffu) | (low >> 8u & 0xff00u) | (high & 0xffu) << 16u | (high << 8u & 0xff000000u);
}
MF_FN u32 odd_bytes(u32 low, u32 high) { return even_bytes(low >> 8u, high >> 8u); }
MF_FN u32 settled(u32 value) { return value; }
MF_FN W2 look_up_halves(W4 table, u32 bytes) {
  W2 looked_up = {{0u, 0u}};
  for (u32 i = 0u; i < 8u; ++i) {
    const u32 number = bytes >> (4u * i) & 15u;
    const u32 byte = table.v[number / 4u] >> (number % 4u * 8u) & 0xffu;
    looked_up.v[i % 2u] |= byte << (i / 2u * 8u);
  }
  return looked_up;
}
MF_FN u32 look_up_eight(W2 table, u32 numbers) {
  u32 bytes = 0u;
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 number = numbers >> (4u * i) & 7u;
    bytes |= (table.v[number / 4u] >> (number % 4u * 8u) & 0xffu) << (8u * i);
  }
  return bytes;
}
MF_FN u32 look_up_positive(W2 table, u32 numbers) {
  u32 negative = 0u;
  for (u32 i = 0u; i < 4u; ++i) {
    if ((numbers >> (4u * i) & 8u) != 0u) negative |= 0xffu << (8u * i);
  }
  return look_up_eight(table, numbers) & ~negative;
}
MF_FN u32 signs_of_bytes(u32 word) { return (word >> 7u & 0x01010101u) * 255u; }
/// To nearest even, through the exponent's place in f32; 0x7c00 is infinity.
MF_FN u32 f16_bits(f32 value) {
  const u32 bits = as_bits(value);
  const u32 sign = bits >> 16u & 0x8000u;
  const u32 size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7fffu;
  if (size >= 0x477ff000u) return sign | 0x7c00u;
  if (size < 0x38800000u) {
    // Below 2^-14 all numbers are multiples of 2^-24, as f32 of 0.5 to 1 are: let it round.
    return sign | (as_bits(as_float(size) + 0.5f) - 0x3f000000u);
  }
  return sign | ((size + 0xfffu + (size >> 13u & 1u) - 0x38000000u) >> 13u);
}
MF_FN u32 pack_f16(f32 low, f32 high) { return f16_bits(low) | f16_bits(high) << 16u; }
#endif

#if !defined(MF_HAS_F16_PAIRS)
MF_FN u32 multiply_f16(u32 a, u32 b) {
  return pack_f16(f16_half(a, 0u) * f16_half(b, 0u), f16_half(a, 1u) * f16_half(b, 1u));
}
MF_FN u32 larger_pairs(u32 a, u32 b) {
  const u32 low = (a & 0xffffu) > (b & 0xffffu) ? a & 0xffffu : b & 0xffffu;
  const u32 high = a >> 16u > b >> 16u ? a >> 16u : b >> 16u;
  return low | high << 16u;
}
#endif

#if !defined(MF_HAS_MATRIX_MULTIPLY)
/// c + a b for pairs of f16.
struct HalfWords {
  static MF_FN_MEMBER f32 add(f32 c, u32 a, u32 b) {
    return c + f16_half(a, 0u) * f16_half(b, 0u) + f16_half(a, 1u) * f16_half(b, 1u);
  }
};
/// c + a b for four unsigned bytes and four signed ones.
struct ByteWords {
  static MF_FN_MEMBER i32 add(i32 c, u32 a, u32 b) {
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 own = b >> (8u * i) & 0xffu;
      c += static_cast<i32>(a >> (8u * i) & 0xffu) *
           (static_cast<i32>(own) - (own >= 128u ? 256 : 0));
    }
    return c;
  }
};
/// The same of eight signed bytes.
struct SignedByteWords {
  static MF_FN_MEMBER i32 add(i32 c, u32 a, u32 b) {
    c = ByteWords::add(c, a, b);
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 own = b >> (8u * i) & 0xffu;
      if ((a >> (8u * i) & 0x80u) == 0u) continue;
      c -= 256 * (static_cast<i32>(own) - (own >= 128u ? 256 : 0));
    }
    return c;
  }
};
template <typename Words, typename Sum>
MF_FN void matrix_multiply_words(MF_T t, MF_LOCAL(Sum) c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                 u32 b1) {
  const u32 row_lane = t.lane & 28u;
  const u32 col_lane = (t.lane & 3u) * 8u;
  for (u32 s = 0u; s < 4u; ++s) {
    const u32 rows[4] = {simd_shuffle(t, a0, row_lane + s), simd_shuffle(t, a2, row_lane + s),
                         simd_shuffle(t, a1, row_lane + s), simd_shuffle(t, a3, row_lane + s)};
    for (u32 j = 0u; j < 2u; ++j) {
      const u32 low = simd_shuffle(t, b0, col_lane + j * 4u + s);
      const u32 high = simd_shuffle(t, b1, col_lane + j * 4u + s);
      for (u32 r = 0u; r < 2u; ++r) {
        c[r * 2u + j] = Words::add(c[r * 2u + j], rows[r * 2u], low);
        c[r * 2u + j] = Words::add(c[r * 2u + j], rows[r * 2u + 1u], high);
      }
    }
  }
}
MF_FN void matrix_multiply_add_f16(MF_T t, MF_LOCAL(f32) c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                   u32 b1) {
  matrix_multiply_words<HalfWords>(t, c, a0, a1, a2, a3, b0, b1);
}
MF_FN void matrix_multiply_add_bytes(MF_T t, MF_LOCAL(i32) c, u32 a0, u32 a1, u32 a2, u32 a3,
                                     u32 b0, u32 b1) {
  matrix_multiply_words<ByteWords>(t, c, a0, a1, a2, a3, b0, b1);
}
MF_FN void matrix_multiply_add_signed_bytes(MF_T t, MF_LOCAL(i32) c, u32 a0, u32 a1, u32 a2, u32 a3,
                                            u32 b0, u32 b1) {
  matrix_multiply_words<SignedByteWords>(t, c, a0, a1, a2, a3, b0, b1);
}
#endif

#if !defined(MF_HAS_TEAM_MULTIPLY)
/// Codes of a SIMD group's 16 rows times TILES * 8 rows of x in shared memory, for four SIMD groups
/// together, which all are here. begin() multiplies all of 64 columns. codes: octets 0 and 1 of a
/// lane's 16 columns of row lane / 4, then of the row 8 further, two words each. A row of x has 8
/// pieces of 16 bytes: of the 256s the first words of the lanes' octets 0, their second ones, and
/// the same of octets 1; then of the ones. Piece u of row r is where u ^ (r & 7) would be, and x
/// begins at a multiple of 1024 bytes. Leaves the sums of the 256s and of the ones, of 8 tokens as
/// matrix_multiply_add_bytes() does, which must not be touched before wait().
template <u32 TILES>
struct TeamBytes {
  /// Octets `half` alone.
  static MF_FN_MEMBER void begin_half(MF_T t, MF_LOCAL(i32) high, MF_LOCAL(i32) low, W2 above,
                                      W2 below, u32 half, MF_SHARED(u32) x) {
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) high[n * 4u + i] = low[n * 4u + i] = 0;
      add_half(t, high + n * 4u, low + n * 4u, above, below, x + n * 256u, half);
    }
  }
  static MF_FN_MEMBER void begin(MF_T t, MF_LOCAL(i32) high, MF_LOCAL(i32) low,
                                 MF_LOCAL(const W2) codes, MF_SHARED(u32) x) {
    begin_half(t, high, low, codes[0], codes[2], 0u, x);
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      add_half(t, high + n * 4u, low + n * 4u, codes[1], codes[3], x + n * 256u, 1u);
    }
  }
  /// Waits for these sums. All but the last PENDING that were begun are there then.
  template <u32 PENDING>
  static MF_FN_MEMBER void wait(MF_T, MF_LOCAL(i32), MF_LOCAL(i32)) {}
  /// Adds half `h` of 8 rows of x, of two of the matrix.
  static MF_FN_MEMBER void add_half(MF_T t, MF_LOCAL(i32) high, MF_LOCAL(i32) low, W2 above,
                                    W2 below, MF_SHARED(u32) x, u32 h) {
    const u32 row = t.lane / 4u;
    MF_SHARED(u32) own = x + (row * 32u + (t.lane & 3u));
    u32 b[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) b[i] = own[((i / 2u * 4u + h * 2u + i % 2u) ^ row) * 4u];
    matrix_multiply_add_bytes(t, high, above.v[0], below.v[0], above.v[1], below.v[1], b[0], b[1]);
    matrix_multiply_add_bytes(t, low, above.v[0], below.v[0], above.v[1], below.v[1], b[2], b[3]);
  }
};

/// The same of numbers of several signed bytes ("digits"). Digits `first` meet the 256s and the
/// ones. Digits `second` are 256 times smaller where NEXT is 1, meet the 256s and go to `low`;
/// otherwise they are larger, meet the ones and go to `high`. HALVES is 1 where sums are of 64
/// columns, 2 where they are of octets `half` alone.
template <u32 TILES, u32 NEXT>
struct TeamDigits {
  template <u32 HALVES>
  static MF_FN_MEMBER void begin(MF_T t, MF_LOCAL(i32) high, MF_LOCAL(i32) low,
                                 MF_LOCAL(const W2) first, MF_LOCAL(const W2) second, u32 half,
                                 MF_SHARED(u32) x) {
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) high[n * 4u + i] = low[n * 4u + i] = 0;
      MF_UNROLL
      for (u32 h = 0u; h < 2u; ++h) {
        if (HALVES == 2u && h != half) continue;
        const u32 row = t.lane / 4u;
        MF_SHARED(u32) own = x + (n * 256u + row * 32u + (t.lane & 3u));
        u32 b[4];
        MF_UNROLL
        for (u32 i = 0u; i < 4u; ++i) b[i] = own[((i / 2u * 4u + h * 2u + i % 2u) ^ row) * 4u];
        add(t, high + n * 4u, first[h], first[h + 2u], b[0], b[1]);
        add(t, low + n * 4u, first[h], first[h + 2u], b[2], b[3]);
        if (NEXT == 1u) {
          add(t, low + n * 4u, second[h], second[h + 2u], b[0], b[1]);
        } else {
          add(t, high + n * 4u, second[h], second[h + 2u], b[2], b[3]);
        }
      }
    }
  }

 private:
  static MF_FN_MEMBER void add(MF_T t, MF_LOCAL(i32) sums, W2 above, W2 below, u32 b0, u32 b1) {
    matrix_multiply_add_signed_bytes(t, sums, above.v[0], below.v[0], above.v[1], below.v[1], b0,
                                     b1);
  }
};
#endif

// Activations, whose bits the CPU has too.
typedef f32 Real;
MF_FN f32 real(f32 number) { return number; }
MF_FN f32 real_fma(f32 a, f32 b, f32 c) { return mf_fma(a, b, c); }
MF_FN f32 real_at_most(f32 x, f32 limit) { return x > limit ? limit : x; }
MF_FN f32 real_at_least(f32 x, f32 limit) { return x < limit ? limit : x; }
/// The sum with 1.5 * 2^23 has no fraction left.
MF_FN f32 real_round(f32 x) { return (x + 12582912.0f) - 12582912.0f; }
/// Two factors, so that results may be subnormal.
MF_FN f32 real_scale(f32 x, f32 n) {
  const i32 whole = static_cast<i32>(as_bits(n + 12582912.0f) - 0x4b400000u);
  const i32 half = whole >> 1;
  return x * as_float(static_cast<u32>(half + 127) << 23u) *
         as_float(static_cast<u32>(whole - half + 127) << 23u);
}
#include "backend/activation_text.h"

MF_FN f32 sigmoid(f32 x) { return times_sigmoid(1.0f, x); }
MF_FN f32 silu(f32 x) { return times_sigmoid(x, x); }

}  // namespace gpu
}  // namespace moeflux
