// The part of 16 rows that a lane multiplies where there are several tokens: codes and scales of 64
// columns of two rows, from blocks in shared memory.
#pragma once

#include "backend/gpu/kernels/matmul/affine_codes.h"
#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_grid_codes.h"
#include "backend/gpu/kernels/matmul/ggml_low_codes.h"
#include "backend/gpu/kernels/matmul/ggml_octets.h"
#include "backend/gpu/kernels/matmul/mma_multiply.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_q6_k_part.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where a lane's two rows of a split, 8 apart, lie.
struct GgmlLaneRows {
  u32 place;
  u32 above_at;
  u32 below_at;

  MF_FN_MEMBER void begin(MF_T t, u32 split_place) {
    MF_SHARED(u32) head = MF_SHARED_AT(t, u32, split_place * 4u) + t.lane / 4u;
    place = split_place;
    above_at = head[0];
    below_at = head[kMmaHalfRows];
  }
};

/// A lane's part of a block, of two rows, 8 apart: an octet of each half, and the GROUPS scales of
/// all 64 columns.
template <u32 GROUPS>
struct GgmlLane {
  W2 codes[4];  // of both halves of the upper row, then of the lower one
  GgmlScale above[4];
  GgmlScale below[4];

  template <class Type>
  MF_FN_MEMBER void load_codes(MF_T t, GgmlLaneRows rows, u32 block) {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      codes[i] = ggml_half_octet<Type>(t, i < 2u ? rows.above_at : rows.below_at, block, i % 2u);
    }
  }
  template <class Type>
  MF_FN_MEMBER void load(MF_T t, GgmlLaneRows rows, u32 block) {
    if (Type::kScales == GROUPS) {
      load_codes<Type>(t, rows, block);
      MF_SHARED(f32) outers = MF_SHARED_AT(t, f32, (rows.place + kMmaGgmlOuter) * 4u);
      ggml_scales<Type>(t, rows.above_at, block, outers, above);
      ggml_scales<Type>(t, rows.below_at, block, outers + 1, below);
    }
  }
  /// `wide`: rows begin at multiples of 16 bytes.
  MF_FN_MEMBER void load_any(MF_T t, u32 type, bool wide, GgmlLaneRows rows, u32 block) {
    if (wide && type == kGgml_q4_0) return load<GgmlWideQ40>(t, rows, block);
    if (wide && type == kGgml_q4_k) return load<GgmlWideQ4K>(t, rows, block);
    if (wide && type == kGgml_q5_k) return load<GgmlQ5K<true>>(t, rows, block);
    switch (type) {
#define MF_GGML_CASE(name) \
  case kGgml_##name:       \
    return load<GgmlCodes<kGgml_##name>>(t, rows, block);
      MF_GGML_MMA_TYPES(MF_GGML_CASE)
#undef MF_GGML_CASE
    }
  }
  /// The codes of row `r` that have scale `g`, of half g / 2 if there are four: those of the half's
  /// other scale are zeros.
  MF_FN_MEMBER W2 of_group(MF_T t, u32 r, u32 g) const {
    W2 own = codes[r * 2u + (GROUPS == 4u ? g / 2u : g)];
    if (GROUPS == 4u) {
      const u32 mask = (t.lane & 3u) / 2u == g % 2u ? ~0u : 0u;
      own.v[0] &= mask;
      own.v[1] &= mask;
    }
    return own;
  }

  enum : u32 { kGroups = GROUPS, kHasBias = 1, kHasScales = 0, kPlaceBlocks = kMmaSplitBlocks };
  /// As a place of so many blocks needs it.
  static MF_FN_MEMBER MmaMatrix placed(MmaMatrix m) { return m; }
  MF_FN_MEMBER GgmlScale scale(u32 r, u32 g) const { return r == 0u ? above[g] : below[g]; }
  /// Begins the products of scale `g` with TILES * 8 rows of x.
  template <u32 TILES>
  MF_FN_MEMBER void begin(MF_T t, MF_LOCAL(i32) high, MF_LOCAL(i32) low, u32 g,
                          MF_SHARED(u32) x) const {
    if (GROUPS == 1u) {
      TeamBytes<TILES>::begin(t, high, low, codes, x);
    } else {
      TeamBytes<TILES>::begin_half(t, high, low, of_group(t, 0u, g), of_group(t, 1u, g),
                                   GROUPS == 4u ? g / 2u : g, x);
    }
  }
  static MF_FN_MEMBER f32 add(f32 total, i32 high, i32 low, GgmlScale own, f32 sum) {
    return add_ggml_group(total, high, low, own, sum);
  }
};

/// The same of narrow affine groups.
struct AffineLane : GgmlLane<2u> {
  enum : u32 { kHasScales = 1 };
};

/// How many scales 64 columns of a type have.
MF_FN u32 ggml_groups(u32 type) {
  switch (type) {
#define MF_GGML_CASE(name) \
  case kGgml_##name:       \
    return GgmlCodes<kGgml_##name>::kScales;
    MF_GGML_MMA_TYPES(MF_GGML_CASE)
#undef MF_GGML_CASE
  }
  return 0u;
}

/// A lane's part of a block of a type that is known, or of any: block `within` of the split in
/// shared memory, `block` of the row.
template <class Type>
struct GgmlLoad {
  u32 type;
  bool wide;

  template <u32 GROUPS>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(GgmlLane<GROUPS>) lane, GgmlLaneRows rows, u32 within,
                         u32) const {
    lane->template load<Type>(t, rows, within);
  }
};
/// The same of types whose bytes have two columns 16 apart, for activations in that order.
template <class Type>
struct GgmlNibbleLoad {
  typename Type::Words above;
  typename Type::Words below;

  /// Blocks come in order, from the first of a split.
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(GgmlLane<2u>) lane, GgmlLaneRows rows, u32 within, u32) {
    if (within == 0u) {
      above.begin(rows.above_at + (t.lane & 3u) * 4u);
      below.begin(rows.below_at + (t.lane & 3u) * 4u);
    }
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      const u32 skip = Type::words_begin(within, i);
      lane->codes[i] = GgmlOctet<Type, Type::kLooksUp>::nibbles(above.word(t, skip));
      lane->codes[2u + i] = GgmlOctet<Type, Type::kLooksUp>::nibbles(below.word(t, skip));
    }
    Type::scales(t, rows.above_at, within, lane->above);
    Type::scales(t, rows.below_at, within, lane->below);
  }
};
struct GgmlAny {};
template <>
struct GgmlLoad<GgmlAny> {
  u32 type;
  bool wide;

  template <u32 GROUPS>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(GgmlLane<GROUPS>) lane, GgmlLaneRows rows, u32 within,
                         u32) const {
    lane->load_any(t, type, wide, rows, within);
  }
};

/// The same of any narrow affine groups.
struct AnyAffine {};
template <>
struct GgmlLoad<AnyAffine> {
  u32 type;
  bool wide;

  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(GgmlLane<2u>) lane, GgmlLaneRows rows, u32 within,
                         u32) const {
    switch (type) {
#define MF_AFFINE_CASE(name, bits, scale_bytes) \
  case kGgml_##name:                            \
    return lane->template load<GgmlCodes<kGgml_##name>>(t, rows, within);
      MF_AFFINE_MMA_TYPES(MF_AFFINE_CASE)
#undef MF_AFFINE_CASE
    }
  }
};

/// The same of types whose blocks have 256 columns: the four lanes of a row make the scales of 64
/// of these each. By every lane they are 150 of the 245 instructions that 64 columns of Q4_K take
/// with four tokens.
template <class Type>
struct GgmlQuadLoad {
  enum : u32 { kGroups = Type::kScales, kBlocks = 4 };
  GgmlScale above[kGroups];
  GgmlScale below[kGroups];

  /// Blocks come in order, from the first of a split.
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(GgmlLane<kGroups>) lane, GgmlLaneRows rows, u32 within,
                         u32) {
    if (within % kBlocks == 0u) {
      Type::scales(t, rows.above_at, within + (t.lane & 3u), above);
      Type::scales(t, rows.below_at, within + (t.lane & 3u), below);
    }
    lane->template load_codes<Type>(t, rows, within);
    const u32 from = (t.lane & ~3u) | within % kBlocks;
    MF_UNROLL
    for (u32 g = 0u; g < u32{kGroups}; ++g) {
      lane->above[g] = of_lane(t, above[g], from);
      lane->below[g] = of_lane(t, below[g], from);
    }
  }

 private:
  static MF_FN_MEMBER GgmlScale of_lane(MF_T t, GgmlScale own, u32 from) {
    const GgmlScale scale = {simd_shuffle(t, own.scale, from), simd_shuffle(t, own.bias, from)};
    return scale;
  }
};

/// A lane's part of a row in Q6_K: the bytes of two blocks, which share them, and scales of a block
/// of every four, which the others of the row read.
struct Q6KQuad {
  W2 low[2];
  W2 high;
  f32 scales[4];

  /// Blocks `pair` and the next one. Pairs come in order, from the first of a split.
  MF_FN_MEMBER void load(MF_T t, u32 row_at, u32 pair) {
    const u32 begin = row_at + pair / 4u * 210u;
    const u32 half = pair / 2u & 1u;
    const u32 own = begin + (t.lane & 3u) * 8u;
    low[0] = shared_any_pair(t, own + half * 64u);
    low[1] = shared_any_pair(t, own + (half * 64u + 32u));
    high = shared_any_pair(t, own + (128u + half * 32u));
    if (half != 0u) return;
    MF_SHARED(u32) words = MF_SHARED_AT(t, u32, (begin & ~3u) + (192u + (t.lane & 3u) * 4u));
    const u32 bytes = join_words(words[0], words[1], begin);
    const f32 scale = shared_f16(t, begin + 208u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) scales[i] = scale_of_byte(scale, bytes >> (8u * i), 32.0f).scale;
  }
  /// Codes of both halves of block `pair` + `j`, and its scales.
  MF_FN_MEMBER void give(MF_T t, MF_LOCAL(W2) codes, MF_LOCAL(GgmlScale) to, u32 pair,
                         u32 j) const {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      codes[i / 2u].v[i % 2u] = q6_k_codes(low[i / 2u].v[i % 2u], high.v[i % 2u], j, i / 2u);
    }
    const u32 from = (t.lane & ~3u) | (pair + j) % 4u;
    MF_UNROLL
    for (u32 g = 0u; g < 4u; ++g) to[g] = scale_around(simd_shuffle(t, scales[g], from), 32.0f);
  }
};

/// GgmlLoad of Q6_K, two blocks at a time.
struct GgmlQ6KLoad {
  Q6KQuad above;
  Q6KQuad below;

  /// Blocks `pair` and the next one.
  MF_FN_MEMBER void bring(MF_T t, GgmlLaneRows rows, u32 pair) {
    above.load(t, rows.above_at, pair);
    below.load(t, rows.below_at, pair);
  }
  MF_FN_MEMBER void give(MF_T t, MF_LOCAL(GgmlLane<4u>) lane, u32 pair, u32 j) const {
    above.give(t, lane->codes, lane->above, pair, j);
    below.give(t, lane->codes + 2, lane->below, pair, j);
  }
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(GgmlLane<4u>) lane, GgmlLaneRows rows, u32 within, u32) {
    if (within % 2u == 0u) bring(t, rows, within);
    give(t, lane, within & ~1u, within & 1u);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
