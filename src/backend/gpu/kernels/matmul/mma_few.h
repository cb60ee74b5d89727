// Rows of a quantised matrix times a few tokens, on matrix units: a SIMD group has tiles of 16 rows
// and one split of their columns. So all of a small matrix is on its way at once, on all
// multiprocessors, and before the activations are there.
#pragma once

#include "backend/gpu/kernels/matmul/mma_ggml_multiply.h"
#include "backend/gpu/kernels/matmul/mma_ggml_part.h"
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
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) {
    u32 words[4];
    if (BITS == 4u) {
      const W2 two = load2(own + r * (Part::kHalf * Part::kRowWords));
      words[0] = two.v[0];
      words[1] = two.v[1];
    } else {
      const W4 four = load4(own + r * (Part::kHalf * Part::kRowWords));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) words[k] = four.v[k];
    }
    MF_UNROLL
    for (u32 h = 0u; h < 2u; ++h) octets[r * 2u + h] = MmaCodes<BITS>::octet(words, h);
  }
}

/// Scales of two blocks and their biases, of the upper row, then of the lower one.
struct MmaFewScales {
  u32 v[4];
};

/// TILES * 8 rows of x as integers in memory, in the order of lanes. `numbers` says which row of x
/// a token is.
template <u32 TILES>
struct MmaFewTokens {
  enum : u32 { kAhead = TILES <= 2u };  // of more, registers do not hold two blocks
  MF_GLOBAL(const u32) integers;
  MF_GLOBAL(const u32) sums;
  u32 at[TILES];            // words of the lane's part of a token
  u32 sums_at[TILES * 2u];  // and of the sums of the two tokens whose products it has

  /// `sum_words`: of a block.
  template <class Numbers>
  MF_FN_MEMBER void begin(MF_T t, u32 cols, u32 sum_words, MF_LOCAL(const Numbers) numbers) {
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      at[n] = numbers->row(n * 8u + t.lane / 4u) * (cols / 2u) + (t.lane & 3u) * 4u;
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        sums_at[n * 2u + j] =
            numbers->row(n * 8u + (t.lane & 3u) * 2u + j) * (cols / kMmaBlock * sum_words);
      }
    }
  }
  /// The lane's 256s or ones of a block, of one of 8 tokens `n`.
  MF_FN_MEMBER W4 high(MF_T, u32 n, u32 block) const {
    return load4(integers + (at[n] + block * kMmaBlockWords));
  }
  MF_FN_MEMBER W4 low(MF_T, u32 n, u32 block) const {
    return load4(integers + (at[n] + block * kMmaBlockWords + kMmaBlockWords / 2u));
  }
  /// Sum and factor of a block of token `j` of the lane's two, or what kGgmlSumWords says.
  MF_FN_MEMBER W2 two_sums(MF_T, u32 n, u32 j, u32 block) const {
    return load2(sums + (sums_at[n * 2u + j] + block * 2u));
  }
  MF_FN_MEMBER W4 four_sums(MF_T, u32 n, u32 j, u32 block, u32 from) const {
    return load4(sums + (sums_at[n * 2u + j] + block * u32{kGgmlSumWords} + from));
  }
};

/// The same in shared memory, where a group makes them of the rows of x in memory.
template <u32 TILES>
struct MmaFewStaged {
  enum : u32 { kAhead = 0u };
  u32 at;      // words of shared memory
  u32 stride;  // from a token to the next
  u32 sums;    // where the sums of a token begin within it
  u32 last;    // token

  MF_FN_MEMBER u32 of(u32 token) const { return at + (token < last ? token : last) * stride; }
  MF_FN_MEMBER W4 high(MF_T t, u32 n, u32 block) const {
    const u32 own = of(n * 8u + t.lane / 4u) + block * kMmaBlockWords + (t.lane & 3u) * 4u;
    return load4(MF_SHARED_AT(t, u32, own * 4u));
  }
  MF_FN_MEMBER W4 low(MF_T t, u32 n, u32 block) const {
    const u32 own = of(n * 8u + t.lane / 4u) + block * kMmaBlockWords + (t.lane & 3u) * 4u;
    return load4(MF_SHARED_AT(t, u32, (own + kMmaBlockWords / 2u) * 4u));
  }
  MF_FN_MEMBER W2 two_sums(MF_T t, u32 n, u32 j, u32 block) const {
    const u32 own = of(n * 8u + (t.lane & 3u) * 2u + j) + sums + block * 2u;
    return load2(MF_SHARED_AT(t, u32, own * 4u));
  }
  MF_FN_MEMBER W4 four_sums(MF_T t, u32 n, u32 j, u32 block, u32 from) const {
    const u32 own = of(n * 8u + (t.lane & 3u) * 2u + j) + sums + block * u32{kGgmlSumWords} + from;
    return load4(MF_SHARED_AT(t, u32, own * 4u));
  }

  /// Makes them, by all threads. A barrier must follow.
  template <class Numbers>
  MF_FN_MEMBER void stage(MF_T t, MF_GLOBAL(const f32) x, u64 x_stride, u32 cols, u32 wide,
                          bool by_halves, MF_LOCAL(const Numbers) numbers) const {
    const u32 octets = cols / 8u;
    const u32 all = (last + 1u) * octets;
    MF_ROLLED
    for (u32 base = t.simd * 32u; base < all; base += t.threads) {
      const u32 i = base + t.lane;
      const u32 token = i < all ? i / octets : last;
      const u32 o = i - token * octets;
      f32 values[8];
      load_octet(values, x + numbers->row(token) * x_stride, o * 8u, i < all ? cols : 0u, wide);
      const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
      const MmaOctet octet = mma_octet(values, factor.into, by_halves);
      const i32 quarter = add_lane(t, octet.sum, 1u);
      const i32 half = add_lane(t, quarter, 2u);
      const i32 sum = add_lane(t, half, 4u);
      if (i >= all) continue;
      MF_SHARED(u32)
      to = MF_SHARED_AT(t, u32,
                        (of(token) + o / 8u * kMmaBlockWords +
                         (by_halves ? o % 4u * 4u + o % 8u / 4u * 2u : o % 8u * 2u)) *
                            4u);
      store2(to, octet.high);
      store2(to + kMmaBlockWords / 2u, octet.low);
      store_sums(t, token, o, by_halves, static_cast<f32>(quarter), static_cast<f32>(half),
                 static_cast<f32>(sum), factor.out_of);
    }
  }
  MF_FN_MEMBER void store_sums(MF_T t, u32 token, u32 o, bool by_halves, f32 quarter, f32 half,
                               f32 sum, f32 factor) const {
    const u32 words = by_halves ? u32{kGgmlSumWords} : 2u;
    MF_SHARED(f32) to = MF_SHARED_AT(t, f32, (of(token) + sums + o / 8u * words) * 4u);
    if (!by_halves) {
      if (o % 8u == 0u) {
        to[0] = sum;
        to[1] = factor;
      }
      return;
    }
    if (o % 2u == 0u) to[kGgmlSumQuarters + o % 8u / 2u] = quarter;
    if (o % 4u == 0u) to[o % 8u / 4u] = half;
    if (o % 8u == 0u) {
      to[kGgmlSumFactor] = factor;
      to[kGgmlSumFactor + 1u] = 0.0f;  // is read beside it
    }
  }
};

/// Sums of ROWS tiles of 16 rows with TILES * 8 tokens over a split.
template <u32 TILES, u32 ROWS>
struct MmaFewTotals {
  f32 totals[ROWS][TILES * 4u];

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      MF_UNROLL
      for (u32 i = 0u; i < TILES * 4u; ++i) totals[r][i] = 0.0f;
    }
  }
  /// Leaves them where the codes were, which all lanes have read: mma_few_sum() finds them.
  MF_FN_MEMBER void store(MF_T t, u32 at) const {
    MF_SHARED(f32)
    to = MF_SHARED_AT(t, f32, (at + (t.lane & 3u) * (2u * kMmaFewRowWords) + t.lane / 4u) * 4u);
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      MF_UNROLL
      for (u32 i = 0u; i < TILES * 4u; ++i) {
        to[(r * (TILES * 8u) + i / 4u * 8u + i % 2u) * kMmaFewRowWords +
           i % 4u / 2u * kMmaHalfRows] = totals[r][i];
      }
    }
  }
};

/// A lane's activations of a block.
template <u32 TILES>
struct MmaFewBlock {
  W4 high[TILES];
  W4 low[TILES];
  W2 sums[TILES * 2u];

  template <class Tokens>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(const Tokens) tokens, u32 block) {
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      high[n] = tokens->high(t, n, block);
      low[n] = tokens->low(t, n, block);
      sums[n * 2u] = tokens->two_sums(t, n, 0u, block);
      sums[n * 2u + 1u] = tokens->two_sums(t, n, 1u, block);
    }
  }
};

template <u32 BITS, u32 TILES, u32 ROWS>
struct MmaFewSums : MmaFewTotals<TILES, ROWS> {
  typedef MmaPart<BITS> Part;
  enum : u32 { kSumWords = 2 };

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
  typedef MmaFewBlock<TILES> Block;

  template <bool BF16, class Tokens>
  MF_FN_MEMBER void multiply_as(MF_T t, u32 scale_format, u32 at, u32 place_words, u32 first,
                                u32 count, MF_LOCAL(const Tokens) tokens) {
    const u32 format = BF16 ? u32{kFormatBf16} : scale_format;
    const u32 last = first + count - 1u;
    // A block of tokens in memory is on its way while the one before it is multiplied.
    Block even;
    Block odd;
    if (Tokens::kAhead) even.load(t, tokens, first);
    MF_ROLLED
    for (u32 block = 0u; block < count; block += 2u) {
      const u32 from = first + block;
      if (Tokens::kAhead) odd.load(t, tokens, from < last ? from + 1u : last);
      MmaFewScales scales[ROWS];
      MF_UNROLL
      for (u32 i = 0u; i < ROWS * 4u; ++i) {
        const u32 row = t.lane / 4u + i % 4u / 2u * Part::kHalf;
        scales[i / 4u].v[i % 4u] =
            MF_SHARED_AT(t, u32,
                         (at + i / 4u * place_words + Part::kScales + row * kMmaScaleWords +
                          i % 2u * (kMmaScaleWords / 2u) + block / 2u) *
                             4u)[0];
      }
      if (!Tokens::kAhead) even.load(t, tokens, from);
      add_block(t, at, place_words, format, scales, block, 0u, &even);
      if (block + 1u >= count) continue;
      if (Tokens::kAhead) even.load(t, tokens, from + 1u < last ? from + 2u : last);
      if (!Tokens::kAhead) odd.load(t, tokens, from + 1u);
      add_block(t, at, place_words, format, scales, block + 1u, 1u, &odd);
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
    for (u32 n = 0u; n < TILES; ++n) {
      MF_UNROLL
      for (u32 r = 0u; r < ROWS; ++r) {
        i32 high[4] = {0, 0, 0, 0};
        i32 low[4] = {0, 0, 0, 0};
        MF_UNROLL
        for (u32 h = 0u; h < 2u; ++h) {
          const W2 above = codes[r][h];
          const W2 below = codes[r][2u + h];
          matrix_multiply_add_bytes(t, high, above.v[0], below.v[0], above.v[1], below.v[1],
                                    x->high[n].v[h * 2u], x->high[n].v[h * 2u + 1u]);
          matrix_multiply_add_bytes(t, low, above.v[0], below.v[0], above.v[1], below.v[1],
                                    x->low[n].v[h * 2u], x->low[n].v[h * 2u + 1u]);
        }
        MF_UNROLL
        for (u32 j = 0u; j < 4u; ++j) {
          const W2 sums = x->sums[n * 2u + j % 2u];
          this->totals[r][n * 4u + j] =
              add_mma_block(this->totals[r][n * 4u + j], high[j], low[j], own_scales[r][j / 2u],
                            own_biases[r][j / 2u], as_float(sums.v[0]), as_float(sums.v[1]));
        }
      }
    }
  }
};

/// The same of GGML's types whose scales are of 32 or of 16 columns, and that have no grid.
template <u32 TILES, u32 ROWS>
struct MmaFewSums<kMmaGgml, TILES, ROWS> : MmaFewTotals<TILES, ROWS> {
  typedef MmaPart<kMmaGgml> Part;
  enum : u32 { kSumWords = kGgmlSumWords };

  template <class Tokens>
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(const Part) part, u32 at, u32 place_words, u32 first,
                             u32 count, MF_LOCAL(const Tokens) tokens) {
    this->clear();
    if (ggml_groups(part->format()) == 2u) {
      multiply_groups<2u>(t, part, at, place_words, first, count, tokens);
    } else {
      multiply_groups<4u>(t, part, at, place_words, first, count, tokens);
    }
  }

 private:
  template <u32 GROUPS, class Tokens>
  MF_FN_MEMBER void multiply_groups(MF_T t, MF_LOCAL(const Part) part, u32 at, u32 place_words,
                                    u32 first, u32 count, MF_LOCAL(const Tokens) tokens) {
    const bool wide = part->rows.has_wide_rows();
    MF_ROLLED
    for (u32 i = 0u; i < count * ROWS; ++i) {
      const u32 block = i / ROWS;
      GgmlLaneRows lane_rows;
      lane_rows.begin(t, at + i % ROWS * place_words);
      GgmlLane<GROUPS> lane;
      lane.load_any(t, part->format(), wide, lane_rows, block);
      MF_UNROLL
      for (u32 r = 0u; r < ROWS; ++r) {
        if (i % ROWS == r) add_block<GROUPS>(t, &lane, this->totals[r], first + block, tokens);
      }
    }
  }
  template <u32 GROUPS, class Tokens>
  MF_FN_MEMBER void add_block(MF_T t, MF_LOCAL(const GgmlLane<GROUPS>) lane, MF_LOCAL(f32) sums,
                              u32 block, MF_LOCAL(const Tokens) tokens) {
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      const W4 x_high = tokens->high(t, n, block);
      const W4 x_low = tokens->low(t, n, block);
      W4 own_sums[2];  // of the halves, and the factor
      W4 quarters[2];
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        own_sums[j] = tokens->four_sums(t, n, j, block, 0u);
        quarters[j] = own_sums[j];
        if (GROUPS == 4u) quarters[j] = tokens->four_sums(t, n, j, block, kGgmlSumQuarters);
      }
      f32 products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      MF_UNROLL
      for (u32 g = 0u; g < GROUPS; ++g) {
        const u32 h = GROUPS == 4u ? g / 2u : g;
        const W2 above = lane->of_group(t, 0u, g);
        const W2 below = lane->of_group(t, 1u, g);
        i32 high[4] = {0, 0, 0, 0};
        i32 low[4] = {0, 0, 0, 0};
        matrix_multiply_add_bytes(t, high, above.v[0], below.v[0], above.v[1], below.v[1],
                                  x_high.v[h * 2u], x_high.v[h * 2u + 1u]);
        matrix_multiply_add_bytes(t, low, above.v[0], below.v[0], above.v[1], below.v[1],
                                  x_low.v[h * 2u], x_low.v[h * 2u + 1u]);
        MF_UNROLL
        for (u32 q = 0u; q < 4u; ++q) {
          products[q] =
              add_ggml_group(products[q], high[q], low[q], q < 2u ? lane->above[g] : lane->below[g],
                             as_float(quarters[q % 2u].v[g]));
        }
      }
      MF_UNROLL
      for (u32 q = 0u; q < 4u; ++q) {
        sums[n * 4u + q] =
            mf_fma(as_float(own_sums[q % 2u].v[kGgmlSumFactor]), products[q], sums[n * 4u + q]);
      }
    }
  }
};

/// The units of a group's work: its sets of ROWS tiles, and of each all splits. SIMD groups take
/// them in turn, and each unit has ROWS places of its own.
struct MmaFewUnits {
  u32 splits;
  u32 sets;
  u32 place_words;
  u32 begin;

  static MF_FN_MEMBER MmaFewUnits of_walk(MmaWalk walk) {
    const MmaFewUnits units = {walk.splits, walk.tiles, walk.place_words, walk.begin};
    return units;
  }
  MF_FN_MEMBER u32 count() const { return splits * sets; }
};

/// Brings all rows of a group under way.
template <u32 BITS, u32 ROWS>
MF_FN void mma_few_issue(MF_T t, MmaFewUnits units, MF_LOCAL(const MmaPart<BITS>) part,
                         u32 first_tile) {
  MF_ROLLED
  for (u32 unit = t.simd; unit < units.count(); unit += t.simds) {
    const u32 set = unit / units.splits;
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      part->issue(t, units.begin + (unit * ROWS + r) * units.place_words,
                  first_tile + set * ROWS + r, unit - set * units.splits);
    }
  }
  copies_commit(t);
}

/// Multiplies them. Ends with a barrier.
template <u32 BITS, u32 TILES, u32 ROWS, class Tokens>
MF_FN void mma_few_multiply(MF_T t, MmaFewUnits units, MF_LOCAL(const MmaPart<BITS>) part, u32 cols,
                            MF_LOCAL(const Tokens) tokens) {
  copies_wait<0u>(t);
  simd_barrier(t);
  MF_ROLLED
  for (u32 unit = t.simd; unit < units.count(); unit += t.simds) {
    const u32 first = unit % units.splits * kMmaSplitBlocks;
    const u32 left = cols / kMmaBlock - first;
    const u32 at = units.begin + unit * ROWS * units.place_words;
    MmaFewSums<BITS, TILES, ROWS> sums;
    sums.multiply(t, part, at, units.place_words, first,
                  left < kMmaSplitBlocks ? left : static_cast<u32>(kMmaSplitBlocks), tokens);
    simd_barrier(t);
    sums.store(t, at);
  }
  barrier(t);
}

/// The sum of row `row` of the group's for token `token`, over splits in order.
template <u32 TILES, u32 ROWS>
MF_FN f32 mma_few_sum(MF_T t, MmaFewUnits units, u32 row, u32 token) {
  const u32 tile = row / kMmaRows;
  const u32 own = tile % ROWS * (TILES * 8u) + token;
  MF_SHARED(f32)
  from = MF_SHARED_AT(t, f32,
                      (units.begin + tile / ROWS * units.splits * ROWS * units.place_words +
                       own * kMmaFewRowWords + row % kMmaRows) *
                          4u);
  f32 sum = 0.0f;
  for (u32 split = 0u; split < units.splits; ++split) {
    sum = sum + from[split * ROWS * units.place_words];
  }
  return sum;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
