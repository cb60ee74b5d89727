// Rows of a quantised matrix times a few tokens, on matrix units: a SIMD group has tiles of 16 rows
// and one split of their columns. So all of a small matrix is on its way at once, on all
// multiprocessors, and before the activations are there.
//
// Units multiply rows by eight columns at a time. These are eight tokens, once by 256s and once by
// ones, or four tokens of which neighbouring columns have 256s and ones.
#pragma once

#include "backend/gpu/kernels/matmul/mma_few_tokens.h"
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

template <u32 BITS, u32 TOKENS, u32 ROWS>
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

/// A lane's activations of a block, of a tile of tokens, with the sums of GROUPS parts.
template <u32 TOKENS, u32 GROUPS>
struct GgmlFewBlock {
  typedef MmaFewShape<TOKENS> Shape;
  W4 integers[Shape::kParts];
  W4 sums[Shape::kOwn];  // of the halves, and the factor
  W4 quarters[Shape::kOwn];

  template <class Tokens>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(const Tokens) tokens, u32 n, u32 block) {
    MF_UNROLL
    for (u32 part = 0u; part < Shape::kParts; ++part) {
      integers[part] = tokens->integers_of(t, n, part, block);
    }
    MF_UNROLL
    for (u32 j = 0u; j < Shape::kOwn; ++j) {
      sums[j] = tokens->four_sums(t, n, j, block, 0u);
      if (GROUPS == 4u) quarters[j] = tokens->four_sums(t, n, j, block, kGgmlSumQuarters);
    }
  }
  MF_FN_MEMBER f32 sum(u32 j, u32 g) const {
    return as_float(GROUPS == 4u ? quarters[j].v[g] : sums[j].v[g]);
  }
  MF_FN_MEMBER f32 factor(u32 j) const { return as_float(sums[j].v[kGgmlSumFactor]); }
};

/// The same of GGML's types whose scales are of 32 or of 16 columns, and that have no grid.
template <u32 TOKENS, u32 ROWS>
struct MmaFewSums<kMmaGgml, TOKENS, ROWS> : MmaFewTotals<TOKENS, ROWS> {
  typedef MmaFewShape<TOKENS> Shape;
  typedef MmaPart<kMmaGgml> Part;
  enum : u32 { kSumWords = kGgmlSumWords, kOwn = Shape::kOwn };

  template <class Tokens>
  MF_FN_MEMBER void begin(MF_T, u32, u32, MF_LOCAL(const Tokens)) {}

  /// Types that files have most of have loops of their own.
  template <class Tokens>
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(const Part) part, u32 at, u32 place_words, u32 first,
                             u32 count, MF_LOCAL(const Tokens) tokens) {
    this->clear();
    const u32 type = part->format();
    const bool wide = part->rows.has_wide_rows();
    if (wide && type == kGgml_q4_0) {
      multiply_as<2u>(t, known<GgmlWideQ40>(), at, place_words, first, count, tokens);
    } else if (wide && type == kGgml_q4_k) {
      multiply_as<2u>(t, known<GgmlWideQ4K>(), at, place_words, first, count, tokens);
    } else if (type == kGgml_q6_k) {
      multiply_as<4u>(t, known<GgmlCodes<kGgml_q6_k>>(), at, place_words, first, count, tokens);
    } else if (type == kGgml_mxfp4_gguf) {
      multiply_as<2u>(t, known<GgmlCodes<kGgml_mxfp4_gguf>>(), at, place_words, first, count,
                      tokens);
    } else {
      const GgmlLoad<GgmlAny> any = {type, wide};
      if (ggml_groups(type) == 2u) {
        multiply_as<2u>(t, any, at, place_words, first, count, tokens);
      } else {
        multiply_as<4u>(t, any, at, place_words, first, count, tokens);
      }
    }
  }

 private:
  template <class Type>
  static MF_FN_MEMBER GgmlLoad<Type> known() {
    const GgmlLoad<Type> load = {0u, false};
    return load;
  }

  /// Activations serve all tiles of rows, and are on their way while those before them are
  /// multiplied. Four scales a block leave no registers for either of more than four tokens.
  template <u32 GROUPS, class Load, class Tokens>
  MF_FN_MEMBER void multiply_as(MF_T t, Load load, u32 at, u32 place_words, u32 first, u32 count,
                                MF_LOCAL(const Tokens) tokens) {
    GgmlFewBlock<TOKENS, GROUPS> x;
    GgmlFewBlock<TOKENS, GROUPS> next;
    const bool ahead = GROUPS == 2u || TOKENS < 8u;
    if (ahead) x.load(t, tokens, 0u, first);
    MF_ROLLED
    for (u32 block = 0u; block < count; ++block) {
      GgmlLane<GROUPS> lanes[ROWS];
      MF_UNROLL
      for (u32 r = 0u; r < ROWS; ++r) {
        GgmlLaneRows rows;
        rows.begin(t, at + r * place_words);
        load.load(t, &lanes[r], rows, block, block);
        if (ahead) continue;
        MF_UNROLL
        for (u32 n = 0u; n < Shape::kTiles; ++n) {
          x.load(t, tokens, n, first + block);
          add_block<GROUPS>(t, &lanes[r], &x, this->totals[r] + n * (2u * kOwn));
        }
      }
      if (!ahead) continue;
      MF_UNROLL
      for (u32 n = 0u; n < Shape::kTiles; ++n) {
        const u32 then = n + 1u < Shape::kTiles || block + 1u == count ? block : block + 1u;
        next.load(t, tokens, n + 1u < Shape::kTiles ? n + 1u : 0u, first + then);
        MF_UNROLL
        for (u32 r = 0u; r < ROWS; ++r) {
          add_block<GROUPS>(t, &lanes[r], &x, this->totals[r] + n * (2u * kOwn));
        }
        x = next;
      }
    }
  }
  template <u32 GROUPS, class Block>
  static MF_FN_MEMBER void add_block(MF_T t, MF_LOCAL(const GgmlLane<GROUPS>) lane,
                                     MF_LOCAL(const Block) x, MF_LOCAL(f32) sums) {
    f32 blocks[2u * kOwn];
    MF_UNROLL
    for (u32 i = 0u; i < 2u * kOwn; ++i) blocks[i] = 0.0f;
    MF_UNROLL
    for (u32 g = 0u; g < GROUPS; ++g) {
      MmaFewProducts<TOKENS> products;
      products.clear();
      products.add(t, lane->of_group(t, 0u, g), lane->of_group(t, 1u, g), x->integers,
                   GROUPS == 4u ? g / 2u : g);
      MF_UNROLL
      for (u32 i = 0u; i < 2u * kOwn; ++i) {
        blocks[i] =
            add_ggml_group(blocks[i], products.high(i), products.low(i),
                           i < u32{kOwn} ? lane->above[g] : lane->below[g], x->sum(i % kOwn, g));
      }
    }
    MF_UNROLL
    for (u32 i = 0u; i < 2u * kOwn; ++i) sums[i] = mf_fma(x->factor(i % kOwn), blocks[i], sums[i]);
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
  /// Blocks of a unit: the first one, and how many.
  MF_FN_MEMBER u32 first_block(u32 unit) const { return unit % splits * kMmaSplitBlocks; }
  MF_FN_MEMBER u32 blocks(u32 unit, u32 cols) const {
    const u32 left = cols / kMmaBlock - first_block(unit);
    return left < kMmaSplitBlocks ? left : static_cast<u32>(kMmaSplitBlocks);
  }
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
template <u32 BITS, u32 TOKENS, u32 ROWS, class Tokens>
MF_FN void mma_few_multiply(MF_T t, MmaFewUnits units, MF_LOCAL(const MmaPart<BITS>) part, u32 cols,
                            MF_LOCAL(const Tokens) tokens) {
  MmaFewSums<BITS, TOKENS, ROWS> sums;
  sums.begin(t, units.first_block(t.simd), units.blocks(t.simd, cols), tokens);
  copies_wait<0u>(t);
  simd_barrier(t);
  MF_ROLLED
  for (u32 unit = t.simd; unit < units.count(); unit += t.simds) {
    const u32 at = units.begin + unit * ROWS * units.place_words;
    const u32 first = units.first_block(unit);
    const u32 count = units.blocks(unit, cols);
    if (unit != t.simd) sums.begin(t, first, count, tokens);
    sums.multiply(t, part, at, units.place_words, first, count, tokens);
    simd_barrier(t);
    sums.store(t, at);
  }
  barrier(t);
}

/// The sum of row `row` of the group's for token `token`, over splits in order.
template <u32 TOKENS, u32 ROWS>
MF_FN f32 mma_few_sum(MF_T t, MmaFewUnits units, u32 row, u32 token) {
  const u32 tile = row / kMmaRows;
  const u32 own = tile % ROWS * TOKENS + token;
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
