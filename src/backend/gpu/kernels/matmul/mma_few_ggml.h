// Sums of a few tokens, mma_few_sums.h, of matrices in GGML's types.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_lanes.h"
#include "backend/gpu/kernels/matmul/mma_few_sums.h"
#include "backend/gpu/kernels/matmul/mma_few_tokens.h"
#include "backend/gpu/kernels/matmul/mma_ggml_part.h"
#include "backend/gpu/kernels/matmul/mma_params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

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

/// Adds the products of a block to the lane's sums.
template <u32 TOKENS, u32 GROUPS, class Block>
MF_FN void add_few_block(MF_T t, MF_LOCAL(const GgmlLane<GROUPS>) lane, MF_LOCAL(const Block) x,
                         MF_LOCAL(f32) sums) {
  enum : u32 { kOwn = MmaFewShape<TOKENS>::kOwn };
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

/// A lane's activations of all blocks of a split, of up to eight tokens. Lanes have the sums of a
/// block each, which the others read.
template <u32 TOKENS, u32 GROUPS>
struct GgmlFewHeld {
  typedef MmaFewShape<TOKENS> Shape;
  typedef GgmlFewBlock<TOKENS, GROUPS> Block;
  enum : u32 { kParts = Shape::kParts, kOwn = Shape::kOwn };
  W4 integers[kMmaSplitBlocks * u32{kParts}];
  W4 sums[kOwn];
  W4 quarters[kOwn];

  template <class Tokens>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(const Tokens) tokens, u32 first, u32 count) {
    const u32 last = count - 1u;
    MF_UNROLL
    for (u32 i = 0u; i < kMmaSplitBlocks * u32{kParts}; ++i) {
      const u32 block = i / kParts;
      integers[i] = tokens->integers_of(t, 0u, i % kParts, first + (block < last ? block : last));
    }
    const u32 own = first + (t.lane / 4u < last ? t.lane / 4u : last);
    MF_UNROLL
    for (u32 j = 0u; j < u32{kOwn}; ++j) {
      sums[j] = tokens->four_sums(t, 0u, j, own, 0u);
      if (GROUPS == 4u) quarters[j] = tokens->four_sums(t, 0u, j, own, kGgmlSumQuarters);
    }
  }
  MF_FN_MEMBER Block block(MF_T t, u32 i) const {
    const u32 from = i * 4u + (t.lane & 3u);
    Block own;
    MF_UNROLL
    for (u32 part = 0u; part < u32{kParts}; ++part)
      own.integers[part] = integers[i * kParts + part];
    MF_UNROLL
    for (u32 k = 0u; k < u32{kOwn} * 4u; ++k) {
      const u32 j = k / 4u;
      const u32 word = k % 4u;
      if (GROUPS == 4u) own.quarters[j].v[word] = simd_shuffle(t, quarters[j].v[word], from);
      if (word == kGgmlSumFactor || (GROUPS == 2u && word < 2u)) {
        own.sums[j].v[word] = simd_shuffle(t, sums[j].v[word], from);
      }
    }
    return own;
  }
};

/// How loops that know a type bring codes and scales of a block. Rows of Q4_0 and Q4_K are wide.
template <u32 TYPE>
struct GgmlFewType;
template <>
struct GgmlFewType<kGgml_q4_0> {
  typedef GgmlNibbleLoad<GgmlWideQ40> Load;
  enum : u32 { kGroups = 2 };
};
template <>
struct GgmlFewType<kGgml_q4_k> {
  typedef GgmlQuadLoad<GgmlHighQ4K> Load;
  enum : u32 { kGroups = 2 };
};
template <>
struct GgmlFewType<kGgml_q6_k> {
  typedef GgmlQ6KLoad Load;
  enum : u32 { kGroups = 4 };
};
template <>
struct GgmlFewType<kGgml_mxfp4_gguf> {
  typedef GgmlNibbleLoad<GgmlCodes<kGgml_mxfp4_gguf>> Load;
  enum : u32 { kGroups = 2 };
};

/// The same of a type that the kernel knows: registers hold the activations of up to eight tokens.
template <u32 TOKENS, u32 ROWS, u32 TYPE>
struct MmaFewSums<kMmaGgml, TOKENS, ROWS, TYPE> : MmaFewTotals<TOKENS, ROWS> {
  typedef MmaFewShape<TOKENS> Shape;
  typedef MmaPart<kMmaGgml> Part;
  typedef GgmlFewType<TYPE> Type;
  enum : u32 { kSumWords = kGgmlSumWords, kOwn = Shape::kOwn, kGroups = Type::kGroups };
  GgmlFewHeld<TOKENS, kGroups> held;

  template <class Tokens>
  MF_FN_MEMBER void begin(MF_T t, u32 first, u32 count, MF_LOCAL(const Tokens) tokens) {
    held.load(t, tokens, first, count);
  }
  template <class Tokens>
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(const Part), u32 at, u32 place_words, u32, u32 count,
                             MF_LOCAL(const Tokens)) {
    MF_ROLLED
    for (u32 r = 0u; r < ROWS; ++r) {
      const u32 place = at + r * place_words;
      f32 sums[2u * kOwn];
      MF_UNROLL
      for (u32 i = 0u; i < 2u * kOwn; ++i) sums[i] = 0.0f;
      // Without branches blocks share addresses, and one is unpacked while units multiply another.
      if (count == kMmaSplitBlocks) {
        add_blocks<true>(t, sums, place, count);
      } else {
        add_blocks<false>(t, sums, place, count);
      }
      this->keep(r, sums);
    }
  }

 private:
  template <bool ALL>
  MF_FN_MEMBER void add_blocks(MF_T t, MF_LOCAL(f32) sums, u32 place, u32 count) const {
    GgmlLaneRows rows;
    rows.begin(t, place);
    typename Type::Load load;
    MF_UNROLL
    for (u32 block = 0u; block < kMmaSplitBlocks; ++block) {
      if (!ALL && block >= count) continue;
      GgmlLane<kGroups> lane;
      load.load(t, &lane, rows, block, block);
      const GgmlFewBlock<TOKENS, kGroups> x = held.block(t, block);
      add_few_block<TOKENS, kGroups>(t, &lane, &x, sums);
    }
  }
};

/// The same of GGML's types whose scales are of 32 or of 16 columns, and that have no grid.
template <u32 TOKENS, u32 ROWS>
struct MmaFewSums<kMmaGgml, TOKENS, ROWS, kMmaAnyType> : MmaFewTotals<TOKENS, ROWS> {
  typedef MmaFewShape<TOKENS> Shape;
  typedef MmaPart<kMmaGgml> Part;
  enum : u32 { kSumWords = kGgmlSumWords, kOwn = Shape::kOwn };

  template <class Tokens>
  MF_FN_MEMBER void begin(MF_T, u32, u32, MF_LOCAL(const Tokens)) {}

  /// Types that files have most of have loops of their own, or kernels for four tokens.
  template <class Tokens>
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(const Part) part, u32 at, u32 place_words, u32 first,
                             u32 count, MF_LOCAL(const Tokens) tokens) {
    this->clear();
    const u32 type = part->format();
    const bool wide = part->rows.has_wide_rows();
    if (TOKENS < 8u) {
      multiply_any(t, type, wide, at, place_words, first, count, tokens);
    } else if (wide && type == kGgml_q4_0) {
      multiply_as<2u>(t, GgmlLoad<GgmlWideQ40>(), at, place_words, first, count, tokens);
    } else if (wide && type == kGgml_q4_k) {
      multiply_as<2u>(t, GgmlQuadLoad<GgmlHighQ4K>(), at, place_words, first, count, tokens);
    } else if (type == kGgml_q6_k) {
      multiply_q6_k(t, at, place_words, first, count, tokens);
    } else if (type == kGgml_mxfp4_gguf) {
      multiply_as<2u>(t, GgmlLoad<GgmlCodes<kGgml_mxfp4_gguf>>(), at, place_words, first, count,
                      tokens);
    } else {
      multiply_any(t, type, wide, at, place_words, first, count, tokens);
    }
  }

 private:
  template <class Tokens>
  MF_FN_MEMBER void multiply_any(MF_T t, u32 type, bool wide, u32 at, u32 place_words, u32 first,
                                 u32 count, MF_LOCAL(const Tokens) tokens) {
    const GgmlLoad<GgmlAny> any = {type, wide};
    if (type > kMmaFp8) {
      const GgmlLoad<AnyAffine> affine = {type, wide};
      multiply_as<2u>(t, affine, at, place_words, first, count, tokens);
    } else if (ggml_groups(type) == 2u) {
      multiply_as<2u>(t, any, at, place_words, first, count, tokens);
    } else {
      multiply_as<4u>(t, any, at, place_words, first, count, tokens);
    }
  }
  /// Activations serve all tiles of rows, and are on their way while those before them are
  /// multiplied. Four scales a block leave no registers for either of more than four tokens.
  template <u32 GROUPS, class Load, class Tokens>
  MF_FN_MEMBER void multiply_as(MF_T t, Load load, u32 at, u32 place_words, u32 first, u32 count,
                                MF_LOCAL(const Tokens) tokens) {
    GgmlLaneRows rows[ROWS];
    Load loads[ROWS];
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      rows[r].begin(t, at + r * place_words);
      loads[r] = load;
    }
    GgmlFewBlock<TOKENS, GROUPS> x;
    GgmlFewBlock<TOKENS, GROUPS> next;
    const bool ahead = GROUPS == 2u || TOKENS < 8u;
    if (ahead) x.load(t, tokens, 0u, first);
    MF_ROLLED
    for (u32 block = 0u; block < count; ++block) {
      GgmlLane<GROUPS> lanes[ROWS];
      MF_UNROLL
      for (u32 r = 0u; r < ROWS; ++r) {
        loads[r].load(t, &lanes[r], rows[r], block, block);
        if (ahead) continue;
        MF_UNROLL
        for (u32 n = 0u; n < Shape::kTiles; ++n) {
          x.load(t, tokens, n, first + block);
          add_few_block<TOKENS, GROUPS>(t, &lanes[r], &x, this->totals[r] + n * (2u * kOwn));
        }
      }
      if (!ahead) continue;
      MF_UNROLL
      for (u32 n = 0u; n < Shape::kTiles; ++n) {
        const u32 then = n + 1u < Shape::kTiles || block + 1u == count ? block : block + 1u;
        next.load(t, tokens, n + 1u < Shape::kTiles ? n + 1u : 0u, first + then);
        MF_UNROLL
        for (u32 r = 0u; r < ROWS; ++r) {
          add_few_block<TOKENS, GROUPS>(t, &lanes[r], &x, this->totals[r] + n * (2u * kOwn));
        }
        x = next;
      }
    }
  }
  /// Two blocks at a time, of tiles of rows one after the other: registers hold those of one.
  template <class Tokens>
  MF_FN_MEMBER void multiply_q6_k(MF_T t, u32 at, u32 place_words, u32 first, u32 count,
                                  MF_LOCAL(const Tokens) tokens) {
    MF_ROLLED
    for (u32 r = 0u; r < ROWS; ++r) {
      GgmlLaneRows rows;
      rows.begin(t, at + r * place_words);
      f32 sums[Shape::kAll * 2u];
      MF_UNROLL
      for (u32 i = 0u; i < Shape::kAll * 2u; ++i) sums[i] = 0.0f;
      GgmlQ6KLoad load;
      MF_ROLLED
      for (u32 pair = 0u; pair < count; pair += 2u) {
        load.bring(t, rows, pair);
        MF_UNROLL
        for (u32 j = 0u; j < 2u; ++j) {
          GgmlLane<4u> lane;
          load.give(t, &lane, pair, j);
          MF_UNROLL
          for (u32 n = 0u; n < Shape::kTiles; ++n) {
            GgmlFewBlock<TOKENS, 4u> x;
            x.load(t, tokens, n, first + pair + j);
            add_few_block<TOKENS, 4u>(t, &lane, &x, sums + n * (2u * kOwn));
          }
        }
      }
      this->keep(r, sums);
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
