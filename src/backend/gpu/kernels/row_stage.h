// Rows of queries, keys and values on their way to matrix units: read from pages, scaled by a power
// of two, in halves of f16, in shared memory in the order in which lanes read them.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kExponentMin = 67u,  // 2^-60; what is smaller counts as that
  kNotFinite = 255u,
};

/// The exponent of the largest of a SIMD group's rows, from the maxima of the bits of its lanes.
MF_FN u32 row_exponent(MF_T t, u32 bits) {
  MF_UNROLL
  for (u32 mask = 16u; mask > 0u; mask /= 2u) {
    const u32 other = simd_shuffle_xor(t, bits, mask);
    bits = other > bits ? other : bits;
  }
  const u32 exponent = bits >> 23u;
  return exponent < kExponentMin ? static_cast<u32>(kExponentMin) : exponent;
}
/// 2^14 over the power of two.
MF_FN f32 into_halves(u32 exponent) { return as_float((268u - exponent) << 23u); }
MF_FN f32 out_of_halves(u32 exponent) {
  return as_float(exponent == kNotFinite ? 0x7fc00000u : (exponent - 14u) << 23u);
}

MF_FN f32 f16_half(u32 pair, u32 half) {
  return f16_to_float(static_cast<u16>(half == 0u ? pair & 0xffffu : pair >> 16u));
}
/// Four numbers: the pairs of their larger halves, then of what is left.
MF_FN W4 split_four(F4 x) {
  W4 unit;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    unit.v[i] = pack_f16(x.v[2u * i], x.v[2u * i + 1u]);
    unit.v[i + 2u] =
        pack_f16(x.v[2u * i] - f16_half(unit.v[i], 0u), x.v[2u * i + 1u] - f16_half(unit.v[i], 1u));
  }
  return unit;
}

/// COUNT rows of up to UNITS * 128 columns that a SIMD group brings to shared memory; a lane has
/// every 32nd unit of 4 columns.
template <u32 COUNT, u32 UNITS>
struct RowStage {
  enum : u32 { kCount = COUNT };
  F4 held[COUNT * UNITS];

  MF_FN_MEMBER void load_row(MF_T t, u32 i, MF_GLOBAL(const f32) from, u32 cols, u32 wide) {
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      const u32 at = (t.lane + 32u * u) * 4u;
      F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
      if (wide != 0u) {
        if (at < cols) four = load4(from + at);
      } else {
        MF_UNROLL
        for (u32 e = 0u; e < 4u; ++e) {
          if (at + e < cols) four.v[e] = from[at + e];
        }
      }
      held[i * UNITS + u] = four;
    }
  }
  MF_FN_MEMBER void clear_row(u32 i) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) held[i * UNITS + u] = nothing;
  }
  /// Of the largest number of row i. A row that is not finite becomes zeros, and its factor says
  /// what it was: it must not reach those whose weight for it is zero.
  MF_FN_MEMBER u32 exponent(MF_T t, u32 i) {
    u32 bits = 0u;
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        const u32 own = as_bits(held[i * UNITS + u].v[e]) & 0x7fffffffu;
        bits = own > bits ? own : bits;
      }
    }
    const u32 exponent = row_exponent(t, bits);
    if (exponent == kNotFinite) clear_row(i);
    return exponent;
  }
  /// Row i in halves. Of keys and queries a unit has pairs of columns; of values a word has both
  /// halves of one, as pairs are of keys there.
  template <bool PAIRS>
  MF_FN_MEMBER void store_row(MF_T t, u32 i, MF_SHARED(u32) to, u32 cols, u32 exponent) const {
    const f32 factor = into_halves(exponent);
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      const u32 at = (t.lane + 32u * u) * 4u;
      if (at >= cols) continue;
      F4 scaled;
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        scaled.v[e] = held[i * UNITS + u].v[e] * factor;
      }
      const W4 unit = split_four(scaled);
      if (PAIRS) {
        store4(to + at, unit);
      } else {
        const W4 words = {{(unit.v[0] & 0xffffu) | unit.v[2] << 16u,
                           unit.v[0] >> 16u | (unit.v[2] & 0xffff0000u),
                           (unit.v[1] & 0xffffu) | unit.v[3] << 16u,
                           unit.v[1] >> 16u | (unit.v[3] & 0xffff0000u)}};
        store4(to + at, words);
      }
    }
  }
};

/// The pages that tiles are read from: looking them up takes longer than reading a row, so it is
/// done once a page.
struct TilePages {
  u64 keys;
  u64 values;
  u32 begin;
  u32 end;  // 0: none yet
};

MF_FN void turn_pages(MF_PARAMS(AttentionParams) p, MF_LOCAL(TilePages) pages,
                      MF_GLOBAL(const u64) k_pages, MF_GLOBAL(const u64) v_pages, u32 first) {
  if (first < pages->end) return;
  const u32 number = first / p.page_tokens;
  pages->keys = k_pages[number % p.num_pages];
  pages->values = v_pages[number % p.num_pages];
  pages->begin = number * p.page_tokens;
  pages->end = pages->begin + p.page_tokens;
}

/// The positions from `first` on, a stage for every SIMD group, of which [low, high) exist. `page`
/// begins at `page_begin`; where a tile does not lie in one page, rows are looked up one by one.
template <typename Stage>
MF_FN void load_positions(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(Stage) stage,
                          MF_GLOBAL(const u64) all, u64 page, u32 page_begin, HeadsLayout layout,
                          u32 cols, u32 first, u32 low, u32 high) {
  const bool in_one_page = p.page_tokens % kTileKeys == 0u;
  const u32 begin = first + t.simd * Stage::kCount;
  MF_UNROLL
  for (u32 i = 0u; i < Stage::kCount; ++i) {
    const u32 position = begin + i;
    if (position < low || position >= high) {
      stage->clear_row(i);
    } else if (in_one_page) {
      const u64 at = (position - page_begin) * layout.token_stride + t.group.y * layout.head_stride;
      stage->load_row(t, i, MF_AT(t, const f32, page) + at, cols, p.wide);
    } else {
      stage->load_row(t, i, cached_row(t, p, all, layout, position, t.group.y), cols, p.wide);
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
