// Keys and values of a tile in halves of f16, in the order in which lanes of a SIMD group hold them
// for a product on matrix units: mma_attention_halves makes them once for many queries.
//
// A row of queries, keys or values is scaled by a power of two first, so that its largest number
// lies below 2^15. Two halves keep 22 bits of that number and cannot overflow. Rows whose largest
// number is below 2^-60 lose bits at the other end. The smaller halves of pages in f16 would be
// zeros: 11 bits fit the larger one, and what a power of two takes from the smallest numbers is
// half of their last bit at most, and rounds to zero. So they are left out, and no bit changes.
#pragma once

#include "backend/gpu/kernels/attention/cached.h"
#include "backend/gpu/kernels/attention/half_pairs.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/matmul/block_exponent.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Four numbers: the pairs of their larger halves, then of the smaller ones.
MF_FN W4 split_four(F4 x) {
  W4 piece;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    piece.v[i] = pack_f16(x.v[2u * i], x.v[2u * i + 1u]);
    piece.v[i + 2u] = pack_f16(x.v[2u * i] - f16_half(piece.v[i], 0u),
                               x.v[2u * i + 1u] - f16_half(piece.v[i], 1u));
  }
  return piece;
}

MF_FN W2 larger_halves(F4 x) {
  const W2 pairs = {{pack_f16(x.v[0], x.v[1]), pack_f16(x.v[2], x.v[3])}};
  return pairs;
}

/// The largest number of some, as its bits.
MF_FN u32 largest_bits(F4 x, u32 bits) {
  MF_UNROLL
  for (u32 e = 0u; e < 4u; ++e) {
    const u32 own = size_bits(x.v[e]);
    bits = own > bits ? own : bits;
  }
  return bits;
}
MF_FN u32 lanes_max(MF_T t, u32 bits, u32 mask) {
  const u32 other = simd_shuffle_xor(t, bits, mask);
  return other > bits ? other : bits;
}
MF_FN F4 scaled(F4 x, f32 factor) {
  MF_UNROLL
  for (u32 e = 0u; e < 4u; ++e) x.v[e] = x.v[e] * factor;
  return x;
}
MF_FN F4 no_columns() {
  const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
  return nothing;
}

/// The row of a position that exists; rows are read by many lanes in steps of four columns.
template <typename Stored>
MF_FN MF_GLOBAL(const Stored)
    position_row(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) pages,
                 HeadsLayout layout, u32 position, u32 kv_head) {
  const u32 number = position / p.page_tokens;
  return MF_AT(t, const Stored, pages[number % p.num_pages]) +
         ((position - number * p.page_tokens) * layout.token_stride + kv_head * layout.head_stride);
}

/// Eight keys: lane 4 g + i has of key g the columns 16 s + 4 i to 16 s + 4 i + 3 for every s.
template <typename Stored>
struct KeyRows {
  CachedFour<Stored> held[kTileSteps];

  MF_FN_MEMBER void load(MF_T t, MF_GLOBAL(const Stored) row, u32 cols, bool exists) {
    MF_UNROLL
    for (u32 s = 0u; s < kTileSteps; ++s) {
      const u32 c = s * 16u + (t.lane & 3u) * 4u;
      held[s].clear();
      if (exists && c < cols) held[s].load(row, c, cols);
    }
  }
  MF_FN_MEMBER F4 numbers(u32 s) const { return held[s].numbers(); }
};
template <>
struct KeyRows<u8> {
  u32 codes[kTileSteps];
  W4 scales;  // of 16 blocks, as many as a row has at most, or what lies behind them

  MF_FN_MEMBER void load(MF_T t, MF_GLOBAL(const u8) row, u32 cols, bool exists) {
    MF_UNROLL
    for (u32 s = 0u; s < kTileSteps; ++s) {
      const u32 c = s * 16u + (t.lane & 3u) * 4u;
      codes[s] = 0u;
      if (exists && c < cols) codes[s] = MF_CAST(const u32, row + c)[0];
    }
    const W4 nothing = {{0u, 0u, 0u, 0u}};
    scales = nothing;
    if (exists) scales = load4(MF_CAST(const u32, row + cols));
  }
  MF_FN_MEMBER F4 numbers(u32 s) const {
    return code_numbers(codes[s], f16_half(scales.v[s / 4u], s / 2u % 2u));
  }
};
/// The exponent of a key.
template <typename Stored>
MF_FN u32 key_exponent(MF_T t, MF_LOCAL(const KeyRows<Stored>) keys) {
  u32 bits = 0u;
  MF_UNROLL
  for (u32 s = 0u; s < kTileSteps; ++s) bits = largest_bits(keys->numbers(s), bits);
  return block_exponent(lanes_max(t, lanes_max(t, bits, 1u), 2u));
}

MF_FN u32 key_exponent(MF_T t, MF_LOCAL(const KeyRows<u16>) keys) {
  u32 largest = 0u;
  MF_UNROLL
  for (u32 s = 0u; s < kTileSteps; ++s) {
    largest = largest_pair(keys->held[s].held.v[1], largest_pair(keys->held[s].held.v[0], largest));
  }
  return quad_exponent(t, largest);
}

/// A value's exponent: the term that is added to its score, and the factor that takes it back from
/// its weight.
MF_FN f32 value_shift(u32 exponent) {
  return exponent == kNotFinite ? as_float(0x7fc00000u) : static_cast<f32>(exponent) - 127.0f;
}
MF_FN f32 value_inverse(u32 exponent) {
  return as_float(exponent >= 254u ? 0x400000u : (254u - exponent) << 23u);
}

/// Halves that numbers of a type have.
template <typename Stored>
struct Halves {
  enum : u32 { kCount = 2 };
};
template <>
struct Halves<u16> {
  enum : u32 { kCount = 1 };
};

/// Sixteen keys' values of four tiles of eight columns. Lane 4 g + i has columns 4 g to 4 g + 3 of
/// the keys 2 i, 2 i + 1, 2 i + 8 and 2 i + 9; each of these columns belongs to a tile of its own.
/// Returns the halves of tile j for the second factor of a product.
MF_FN W4 value_halves(MF_LOCAL(const F4) rows, u32 j) {
  const F4 keys = {{rows[0].v[j], rows[1].v[j], rows[2].v[j], rows[3].v[j]}};
  return split_four(keys);
}
MF_FN u32 value_key(u32 quad, u32 i) { return quad * 2u + i % 2u + i / 2u * 8u; }

/// Where a tile lies in halves, in words: keys, values, then three factors of each position. Lanes
/// have four words in a row of both halves of four numbers, or the larger halves of four of one
/// eight of keys and of the next, of values of one tile of columns and of the next.
struct HalvesLayout {
  u32 values;
  u32 factors;
  u32 tile;
};
template <u32 HALVES>
MF_FN HalvesLayout halves_layout(MF_PARAMS(AttentionParams) p) {
  HalvesLayout at;
  at.values = p.key_steps * 8u * HALVES * kTileKeys;
  at.factors = at.values + p.value_blocks * 16u * HALVES * kTileKeys;
  at.tile = at.factors + 3u * kTileKeys;
  return at;
}

/// A tile's keys in halves; `factors` of positions are written too.
template <typename Stored>
MF_FN void bring_keys(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) pages, u32 tile,
                      MF_GLOBAL(u32) to, MF_GLOBAL(f32) factors) {
  const u32 end = p.begin + p.tokens;
  MF_ROLLED
  for (u32 n = t.simd; n < kTileKeys / 8u; n += 4u) {
    const u32 key = n * 8u + t.lane / 4u;
    const bool exists = tile + key >= p.first_key && tile + key < end;
    KeyRows<Stored> keys;
    keys.load(
        t, position_row<Stored>(t, p, pages, p.k_page, exists ? tile + key : end - 1u, t.group.y),
        p.head_dim, exists);
    const u32 exponent = key_exponent(t, &keys);
    if ((t.lane & 3u) == 0u) factors[key] = out_of_halves(exponent);
    MF_UNROLL
    for (u32 s = 0u; s < kTileSteps; ++s) {
      if (s >= p.key_steps) continue;
      const F4 numbers = scaled(keys.numbers(s), into_halves(exponent));
      if (Halves<Stored>::kCount == 1u) {
        store2(to + ((n / 2u * p.key_steps + s) * 32u + t.lane) * 4u + n % 2u * 2u,
               larger_halves(numbers));
      } else {
        store4(to + ((n * p.key_steps + s) * 32u + t.lane) * 4u, split_four(numbers));
      }
    }
  }
}

/// A tile's values in halves, 16 of them a SIMD group's. A row with NaN or infinity becomes zeros
/// with a factor that is not finite, so that queries that do not see it stay clean.
template <typename Stored>
MF_FN void bring_values(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) pages, u32 tile,
                        MF_GLOBAL(u32) to, MF_GLOBAL(f32) factors) {
  const u32 end = p.begin + p.tokens;
  const u32 g = t.lane / 4u;
  F4 rows[kTileBlocks][4];
  f32 scales[4];
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 key = t.simd * 16u + value_key(t.lane & 3u, i);
    const bool exists = tile + key >= p.first_key && tile + key < end;
    MF_GLOBAL(const Stored)
    row = position_row<Stored>(t, p, pages, p.v_page, exists ? tile + key : end - 1u, t.group.y);
    u32 bits = 0u;
    MF_UNROLL
    for (u32 b = 0u; b < kTileBlocks; ++b) {
      const u32 c = b * 32u + g * 4u;
      CachedFour<Stored> four;
      four.clear();
      if (exists && c < p.v_head_dim) four.load(row, c, p.v_scales);
      rows[b][i] = four.numbers();
      bits = largest_bits(rows[b][i], bits);
    }
    const u32 exponent =
        block_exponent(lanes_max(t, lanes_max(t, lanes_max(t, bits, 4u), 8u), 16u));
    scales[i] = into_halves(exponent);
    if (exponent == kNotFinite) {
      MF_UNROLL
      for (u32 b = 0u; b < kTileBlocks; ++b) rows[b][i] = no_columns();
    }
    if (g != 0u) continue;
    factors[kTileKeys + key] = value_shift(exponent);
    factors[2u * kTileKeys + key] = value_inverse(exponent);
  }
  MF_UNROLL
  for (u32 b = 0u; b < kTileBlocks; ++b) {
    if (b >= p.value_blocks) continue;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) rows[b][i] = scaled(rows[b][i], scales[i]);
    MF_UNROLL
    for (u32 j = 0u; j < 4u; j += 3u - Halves<Stored>::kCount) {
      const u32 piece = (t.simd * p.value_blocks + b) * 2u * Halves<Stored>::kCount +
                        j * Halves<Stored>::kCount / 2u;
      W4 halves = value_halves(rows[b], j);
      if (Halves<Stored>::kCount == 1u) {
        const W4 next = value_halves(rows[b], j + 1u);
        halves.v[2] = next.v[0];
        halves.v[3] = next.v[1];
      }
      store4(to + (piece * 32u + t.lane) * 4u, halves);
    }
  }
}

/// Group x: a tile, from the first of p; y: a kv head; z: its keys or its values. 128 threads.
template <typename Stored>
MF_FN void bring_halves(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) k_pages,
                        MF_GLOBAL(const u64) v_pages, MF_GLOBAL(u32) halves) {
  const HalvesLayout at = halves_layout<Halves<Stored>::kCount>(p);
  MF_GLOBAL(u32)
  own = halves + (static_cast<u64>(t.group.y) * p.num_parts + t.group.x) * at.tile;
  MF_GLOBAL(f32) factors = MF_CAST(f32, own + at.factors);
  const u32 tile = (p.first_part + t.group.x) * kTileKeys;
  if (t.group.z == 0u) {
    bring_keys<Stored>(t, p, k_pages, tile, own, factors);
  } else {
    bring_values<Stored>(t, p, v_pages, tile, own + at.values, factors);
  }
}

#define MF_ATTENTION_HALVES(name, STORED)                                              \
  MF_FITS(128, 2)                                                                      \
  MF_KERNEL(name, AttentionParams, MF_READ(0, u64, k_pages), MF_READ(1, u64, v_pages), \
            MF_WRITE(2, u32, halves)) {                                                \
    MF_THREAD;                                                                         \
    bring_halves<STORED>(t, p, k_pages, v_pages, halves);                              \
  }
MF_ATTENTION_HALVES(mma_attention_halves, f32)
MF_ATTENTION_HALVES(mma_attention_halves_f16, u16)
MF_ATTENTION_HALVES(mma_attention_halves_q8, u8)
#undef MF_ATTENTION_HALVES

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
