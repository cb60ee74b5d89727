// Sums of a few tokens that a SIMD group makes of its tiles of 16 rows and one split of their
// columns.
//
// Units multiply rows by eight columns at a time. These are eight tokens, once by 256s and once by
// ones, or four tokens of which neighbouring columns have 256s and ones.
#pragma once

#include "backend/gpu/kernels/matmul/mma_few_tokens.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A lane's codes of block `block` of a split of 16 rows: of two rows, 8 apart, two octets each.
template <u32 BITS>
MF_FN void load_few_codes(MF_T t, MF_LOCAL(W2) octets, u32 at, u32 block) {
  typedef MmaPart<BITS> Part;
  MF_SHARED(u32)
  own = MF_SHARED_AT(
      t, u32,
      (at + t.lane / 4u * Part::kRowWords + block * (2u * BITS) + (t.lane & 3u) * (BITS / 2u)) *
          4u);
  load_octets<BITS>(octets, own, Part::kHalf * Part::kRowWords);
}

/// Scales of two blocks and their biases, of the upper row, then of the lower one.
struct MmaFewScales {
  u32 v[4];
};

/// Sums of ROWS tiles of 16 rows with TOKENS tokens over a split: of the lane's tokens the upper
/// row's, then the lower one's.
template <u32 TOKENS, u32 ROWS>
struct MmaFewTotals {
  typedef MmaFewShape<TOKENS> Shape;
  f32 totals[ROWS][Shape::kAll * 2u];

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      MF_UNROLL
      for (u32 i = 0u; i < Shape::kAll * 2u; ++i) totals[r][i] = 0.0f;
    }
  }
  /// Takes the sums of tile `r` of the rows, where a loop has one tile at a time.
  MF_FN_MEMBER void keep(u32 r, MF_LOCAL(const f32) sums) {
    MF_UNROLL
    for (u32 i = 0u; i < ROWS * Shape::kAll * 2u; ++i) {
      if (i / (Shape::kAll * 2u) == r) {
        totals[i / (Shape::kAll * 2u)][i % (Shape::kAll * 2u)] = sums[i % (Shape::kAll * 2u)];
      }
    }
  }
  /// Leaves them where the codes were, which all lanes have read: mma_few_sum() finds them.
  MF_FN_MEMBER void store(MF_T t, u32 at) const {
    MF_SHARED(f32)
    to = MF_SHARED_AT(t, f32, (at + Shape::own(t, 0u, 0u) * kMmaFewRowWords + t.lane / 4u) * 4u);
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      MF_UNROLL
      for (u32 i = 0u; i < Shape::kAll * 2u; ++i) {
        const u32 n = i / (Shape::kOwn * 2u);
        to[(r * TOKENS + n * 8u + i % Shape::kOwn) * kMmaFewRowWords +
           i / Shape::kOwn % 2u * kMmaHalfRows] = totals[r][i];
      }
    }
  }
};

/// A lane's activations of a block.
template <u32 TOKENS>
struct MmaFewBlock {
  typedef MmaFewShape<TOKENS> Shape;
  W4 integers[Shape::kTiles * Shape::kParts];
  W2 sums[Shape::kAll];

  template <class Tokens>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(const Tokens) tokens, u32 block) {
    MF_UNROLL
    for (u32 n = 0u; n < Shape::kTiles; ++n) {
      MF_UNROLL
      for (u32 part = 0u; part < Shape::kParts; ++part) {
        integers[n * Shape::kParts + part] = tokens->integers_of(t, n, part, block);
      }
      MF_UNROLL
      for (u32 j = 0u; j < Shape::kOwn; ++j) {
        sums[n * Shape::kOwn + j] = tokens->two_sums(t, n, j, block);
      }
    }
  }
};

/// Products of 16 rows and a tile's columns: of each part those of the upper row and two columns,
/// then of the lower one.
template <u32 TOKENS>
struct MmaFewProducts {
  typedef MmaFewShape<TOKENS> Shape;
  i32 v[Shape::kParts * 4u];

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 i = 0u; i < Shape::kParts * 4u; ++i) v[i] = 0;
  }
  /// Adds those of octet `h` of the lane's columns.
  MF_FN_MEMBER void add(MF_T t, W2 above, W2 below, MF_LOCAL(const W4) integers, u32 h) {
    MF_UNROLL
    for (u32 part = 0u; part < Shape::kParts; ++part) {
      matrix_multiply_add_bytes(t, v + part * 4u, above.v[0], below.v[0], above.v[1], below.v[1],
                                integers[part].v[h * 2u], integers[part].v[h * 2u + 1u]);
    }
  }
  /// Halves of the lane's sum `i`: the upper row's tokens come first, then the lower one's.
  MF_FN_MEMBER i32 high(u32 i) const { return v[TOKENS < 8u ? i * 2u : i]; }
  MF_FN_MEMBER i32 low(u32 i) const { return v[TOKENS < 8u ? i * 2u + 1u : 4u + i]; }
};

/// TYPE: of GGML's types the one that a kernel is for, or kMmaAnyType.
template <u32 BITS, u32 TOKENS, u32 ROWS, u32 TYPE>
struct MmaFewSums : MmaFewTotals<TOKENS, ROWS> {
  typedef MmaFewShape<TOKENS> Shape;
  typedef MmaPart<BITS> Part;
  enum : u32 { kSumWords = 2 };

  /// Asks for all blocks of four tokens in memory, as registers hold them. With one block ahead
  /// they are most of what a group waits for: gate and up of 32 sequences take an H200 81 us,
  /// and 73.
  template <class Tokens>
  MF_FN_MEMBER void begin(MF_T t, u32 first, u32 count, MF_LOCAL(const Tokens) tokens) {
    if (!has_all<Tokens>()) return;
    MF_UNROLL
    for (u32 i = 0u; i < u32{kHeld}; ++i) {
      held[i].load(t, tokens, first + (i < count ? i : count - 1u));
    }
  }
  /// Blocks `first` to `first` + `count` of the columns, whose codes are in places from `at` on.
  template <class Tokens>
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(const Part) part, u32 at, u32 place_words, u32 first,
                             u32 count, MF_LOCAL(const Tokens) tokens) {
    this->clear();
    // A loop of its own for the usual format: down has a sixth more instructions with the choice.
    if (part->m.scales == kFormatBf16) {
      multiply_as<true>(t, kFormatBf16, at, place_words, first, count, tokens);
    } else {
      multiply_as<false>(t, part->m.scales, at, place_words, first, count, tokens);
    }
  }

 private:
  typedef MmaFewBlock<TOKENS> Block;
  enum : u32 { kHeld = TOKENS < 8u ? u32{kMmaSplitBlocks} : 2u };
  Block held[kHeld];

  template <class Tokens>
  static MF_FN_MEMBER bool has_all() {
    return u32{Tokens::kInMemory} != 0u && u32{kHeld} == u32{kMmaSplitBlocks};
  }
  template <bool BF16, class Tokens>
  MF_FN_MEMBER void multiply_as(MF_T t, u32 scale_format, u32 at, u32 place_words, u32 first,
                                u32 count, MF_LOCAL(const Tokens) tokens) {
    const u32 format = BF16 ? u32{kFormatBf16} : scale_format;
    if (has_all<Tokens>()) {
      multiply_held(t, format, at, place_words, count);
      return;
    }
    // A block of tokens in memory is on its way while the one before it is multiplied, unless there
    // are so many that registers do not hold two.
    const bool ahead = u32{Tokens::kInMemory} != 0u && TOKENS <= 16u;
    const u32 last = first + count - 1u;
    Block even;
    Block odd;
    if (ahead) even.load(t, tokens, first);
    MF_ROLLED
    for (u32 block = 0u; block < count; block += 2u) {
      const u32 from = first + block;
      if (ahead) odd.load(t, tokens, from < last ? from + 1u : last);
      MmaFewScales scales[ROWS];
      load_scales(t, scales, at, place_words, block / 2u);
      if (!ahead) even.load(t, tokens, from);
      add_block(t, at, place_words, format, scales, block, 0u, &even);
      if (block + 1u >= count) continue;
      if (ahead) even.load(t, tokens, from + 1u < last ? from + 2u : last);
      if (!ahead) odd.load(t, tokens, from + 1u);
      add_block(t, at, place_words, format, scales, block + 1u, 1u, &odd);
    }
  }
  MF_FN_MEMBER void multiply_held(MF_T t, u32 format, u32 at, u32 place_words, u32 count) {
    MF_UNROLL
    for (u32 block = 0u; block < u32{kHeld}; block += 2u) {
      if (block >= count) continue;
      MmaFewScales scales[ROWS];
      load_scales(t, scales, at, place_words, block / 2u);
      add_block(t, at, place_words, format, scales, block, 0u, &held[block]);
      if (block + 1u < count) {
        add_block(t, at, place_words, format, scales, block + 1u, 1u, &held[block + 1u]);
      }
    }
  }
  MF_FN_MEMBER void load_scales(MF_T t, MF_LOCAL(MmaFewScales) scales, u32 at, u32 place_words,
                                u32 pair) const {
    MF_UNROLL
    for (u32 i = 0u; i < ROWS * 4u; ++i) {
      const u32 row = t.lane / 4u + i % 4u / 2u * Part::kHalf;
      scales[i / 4u].v[i % 4u] =
          MF_SHARED_AT(t, u32,
                       (at + i / 4u * place_words + Part::kScales + row * kMmaScaleWords +
                        i % 2u * (kMmaScaleWords / 2u) + pair) *
                           4u)[0];
    }
  }

  MF_FN_MEMBER void add_block(MF_T t, u32 at, u32 place_words, u32 scale_format,
                              MF_LOCAL(const MmaFewScales) scales, u32 within, u32 half,
                              MF_LOCAL(const Block) x) {
    W2 codes[ROWS][4];
    f32 own_scales[ROWS][2];
    f32 own_biases[ROWS][2];
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      load_few_codes<BITS>(t, codes[r], at + r * place_words, within);
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        own_scales[r][i] = mma_scale(scales[r].v[i * 2u], half, scale_format);
        own_biases[r][i] = mma_scale(scales[r].v[i * 2u + 1u], half, scale_format);
      }
    }
    MF_UNROLL
    for (u32 n = 0u; n < Shape::kTiles; ++n) {
      MF_UNROLL
      for (u32 r = 0u; r < ROWS; ++r) {
        MmaFewProducts<TOKENS> products;
        products.clear();
        MF_UNROLL
        for (u32 h = 0u; h < 2u; ++h) {
          products.add(t, codes[r][h], codes[r][2u + h], x->integers + n * Shape::kParts, h);
        }
        MF_UNROLL
        for (u32 i = 0u; i < Shape::kOwn * 2u; ++i) {
          const W2 sums = x->sums[n * Shape::kOwn + i % Shape::kOwn];
          const u32 row = i / Shape::kOwn;
          MF_LOCAL(f32) total = &this->totals[r][n * (Shape::kOwn * 2u) + i];
          *total = add_mma_block(*total, products.high(i), products.low(i), own_scales[r][row],
                                 own_biases[r][row], as_float(sums.v[0]), as_float(sums.v[1]));
        }
      }
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
