// Products of matrices in GGML's types for many tokens: mma_multiply.h for blocks as files have
// them. SIMD groups bring the bytes of a split of their rows while they multiply the one before.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_grid_codes.h"
#include "backend/gpu/kernels/matmul/ggml_lanes.h"
#include "backend/gpu/kernels/matmul/mma_ggml_part.h"
#include "backend/gpu/kernels/matmul/mma_ggml_stages.h"
#include "backend/gpu/kernels/matmul/mma_multiply.h"
#include "backend/gpu/kernels/matmul/mma_params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// GgmlLane of FP8, whose block or each half of it has a scale. A group is a pair of the bytes of
/// codes: the upper one, then the lower one.
template <u32 HALVES>
struct Fp8Lane {
  enum : u32 {
    kGroups = 2u * HALVES,
    kHasBias = 0,
    kHasScales = 0,
    kPlaceBlocks = kFp8PlaceBlocks
  };
  W2 digits[3][4];
  f32 scales[2][HALVES];

  MF_FN_MEMBER void load(MF_T t, bool wide, GgmlLaneRows rows, u32 within,
                         MF_LOCAL(const Fp8Scales) of_rows, u32 col) {
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      MF_UNROLL
      for (u32 h = 0u; h < HALVES; ++h) scales[r][h] = of_rows[r].at(col + h * 32u);
    }
    u32 nan[2] = {0u, 0u};
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 at = (i < 2u ? rows.above_at : rows.below_at) +
                     (within * kMmaBlock + i % 2u * 32u + (t.lane & 3u) * 8u);
      const W2 codes = wide ? load2(MF_SHARED_AT(t, u32, at)) : shared_any_pair(t, at);
      MF_UNROLL
      for (u32 k = 0u; k < 2u; ++k) {
        const Fp8Digits own = fp8_digits(codes.v[k], nan + i / 2u);
        MF_UNROLL
        for (u32 d = 0u; d < 3u; ++d) digits[d][i].v[k] = own.v[d];
      }
    }
    // The four lanes of a row.
    u32 both = (nan[0] & 0x80808080u) | (nan[1] & 0x80808080u) >> 1u;
    both |= simd_shuffle_xor(t, both, 1u);
    both |= simd_shuffle_xor(t, both, 2u);
    MF_UNROLL
    for (u32 h = 0u; h < HALVES; ++h) {
      scales[0][h] = fp8_poisoned(scales[0][h], both);
      scales[1][h] = fp8_poisoned(scales[1][h], both << 1u);
    }
  }
  static MF_FN_MEMBER MmaMatrix placed(MmaMatrix m) {
    m.split_bytes = u32{kFp8PlaceBlocks} * kMmaBlock;
    m.row_words = MmaFp8Place::kRowWords;
    return m;
  }
  MF_FN_MEMBER GgmlScale scale(u32 r, u32 g) const {
    const f32 own = scales[r][g / 2u];
    const GgmlScale of_pair = {g % 2u == 0u ? fp8_upper_scale(own) : fp8_lower_scale(own), 0.0f};
    return of_pair;
  }
  template <u32 TILES>
  MF_FN_MEMBER void begin(MF_T t, MF_LOCAL(i32) high, MF_LOCAL(i32) low, u32 g,
                          MF_SHARED(u32) x) const {
    if (g % 2u == 0u) {
      TeamDigits<TILES, 1u>::template begin<HALVES>(t, high, low, digits[2], digits[1], g / 2u, x);
    } else {
      TeamDigits<TILES, 0u>::template begin<HALVES>(t, high, low, digits[0], digits[1], g / 2u, x);
    }
  }
  static MF_FN_MEMBER f32 add(f32 total, i32 high, i32 low, GgmlScale own, f32) {
    return add_fp8_pair(total, high, low, own.scale);
  }
};
struct Fp8Load {
  bool wide;
  Fp8Scales scales[2];  // of the lane's rows

  template <u32 HALVES>
  MF_FN_MEMBER void load(MF_T t, MF_LOCAL(Fp8Lane<HALVES>) lane, GgmlLaneRows rows, u32 within,
                         u32 block) const {
    lane->load(t, wide, rows, within, scales, block * kMmaBlock);
  }
};

/// 16 rows of a matrix times TILES * 8 rows of x; lanes have sums as in MmaSums.
///
/// A block is multiplied in steps of one scale and a part of the tokens each, two under way at
/// once: while units multiply for one, the one before it becomes floats. The next block's codes are
/// unpacked beside the floats of the last step: where the compiler knows the type it mixes both, so
/// that neither waits for shared memory.
template <u32 TILES>
struct GgmlSums {
  enum : u32 {
    kOwn = TILES * 4u,
    kTiles = TILES < 8u ? TILES / 2u : 4u,  // of a step
    kParts = TILES / kTiles,
    kStep = kTiles * 4u,
    kNumbers = kGgmlTokens,  // where the rows' second numbers begin
  };
  f32 v[kOwn];

  MF_FN_MEMBER f32 at(u32 o, u32 n, u32 j) const { return v[n * 4u + o * 2u + j]; }

  MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows) {
    place_grid(t, p.m.bits);  // a stage's barrier comes before it is read
    const bool wide = ((rows[0].skew | rows[1].skew | p.m.row_bytes) % 16u) == 0u;
    if (p.m.bits == kMmaFp8) return multiply_fp8(t, p, rows, wide);
    if (p.m.bits > kMmaFp8) return multiply_affine(t, p, rows, wide);
    const u32 groups = ggml_groups(p.m.bits);
    if (TILES == 16u && wide && p.m.bits == kGgml_q4_0) {
      multiply_groups<2u, GgmlWideQ40>(t, p, rows, wide);
    } else if (TILES == 16u && wide && p.m.bits == kGgml_q4_k) {
      multiply_groups<2u, GgmlWideQ4K>(t, p, rows, wide);
    } else if (p.m.bits == kGgml_q6_k) {
      GgmlQ6KLoad load;
      multiply_lanes<GgmlLane<4u>>(t, p, rows, &load);
    } else if (groups == 2u) {
      multiply_groups<2u, GgmlAny>(t, p, rows, wide);
    } else if (groups == 4u) {
      multiply_groups<4u, GgmlAny>(t, p, rows, wide);
    } else {
      multiply_groups<1u, GgmlAny>(t, p, rows, wide);
    }
  }

 private:
  /// Integers of a step: of 256s and of ones.
  struct Step {
    i32 high[kStep];
    i32 low[kStep];
  };

  template <u32 GROUPS, class Type>
  MF_FN_MEMBER void multiply_groups(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, bool wide) {
    GgmlLoad<Type> load = {p.m.bits, wide};
    multiply_lanes<GgmlLane<GROUPS>>(t, p, rows, &load);
  }
  MF_FN_MEMBER void multiply_fp8(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, bool wide) {
    const u32 own = t.lane / 4u;
    Fp8Load load = {wide,
                    {fp8_row_scales(p.m, p.cols, rows[0].scales, rows[0].at(own, p.m.rows)),
                     fp8_row_scales(p.m, p.cols, rows[1].scales, rows[1].at(own, p.m.rows))}};
    if (fp8_has_halves(p.m)) {
      multiply_lanes<Fp8Lane<2u>>(t, p, rows, &load);
    } else {
      multiply_lanes<Fp8Lane<1u>>(t, p, rows, &load);
    }
  }
  MF_FN_MEMBER void multiply_affine(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, bool wide) {
    if (TILES == 16u && p.m.bits == kGgml_w4_32) {
      GgmlLoad<GgmlCodes<kGgml_w4_32>> load = {p.m.bits, wide};
      multiply_lanes<AffineLane>(t, p, rows, &load);
    } else {
      GgmlLoad<AnyAffine> load = {p.m.bits, wide};
      multiply_lanes<AffineLane>(t, p, rows, &load);
    }
  }
  template <class Lane, class Load>
  MF_FN_MEMBER void multiply_lanes(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows,
                                   MF_LOCAL(Load) load) {
    enum : u32 { kGroups = Lane::kGroups, kQuarters = kGroups == 4u && Lane::kHasBias == 1u };
    const u32 blocks = p.cols / kMmaBlock;
    const u32 step = kMmaHalfRows + (rows[1].row - rows[0].row);
    const u32 tile = rows[0].row / step;
    const MmaRows own = t.lane < 16u ? rows[0] : rows[1];
    const GgmlRows matrix = {Lane::placed(p.m),
                             p.cols,
                             step,
                             rows[0].data,
                             rows[1].data,
                             rows[0].skew,
                             rows[1].skew,
                             ggml_outer(p.m, own.biases),
                             Lane::kHasScales == 1u ? lane_scales(t, own.scales, own.biases) : 0u};
    const u32 places = kGgmlStagesBegin + kGgmlStages * p.stages * (p.tile * kGgmlTokenWords) +
                       t.simd * 2u * p.place_words;
    f32 totals[kOwn];
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) v[i] = totals[i] = 0.0f;
    GgmlStages<TILES> copies;
    copies.begin(t, p.cols, p.tile);
    if (Lane::kHasScales == 1u) hold_row(t, matrix.affine_row(t, tile));
    issue<Lane>(t, &matrix, places, tile, 0u);
    copies.issue(t, p, kQuarters == 1u);
    u32 stage = kGgmlStagesBegin;
    u32 place = places;
    Lane lane;
    Step first;
    Step second;
    f32 products[kStep];
    MF_UNROLL
    for (u32 i = 0u; i < kStep; ++i) products[i] = 0.0f;
    arrive<kQuarters, Lane>(t, p, &matrix, &copies, places, place, tile, 0u);
    GgmlLaneRows lane_rows;
    lane_rows.begin(t, place);
    load->load(t, &lane, lane_rows, 0u, 0u);
    u32 left = p.stages;  // blocks of the stage
    u32 at_block = stage;
    MF_ROLLED
    for (u32 block = 0u; block < blocks; ++block) {
      begin_step(t, &first, &lane, 0u, at_block);
      add_all_but_last(t, totals, products, &first, &second, &lane, at_block, p.tile);
      const GgmlScale above = lane.scale(0u, kGroups - 1u);
      const GgmlScale below = lane.scale(1u, kGroups - 1u);
      const u32 before = at_block;
      const u32 next = block + 1u;
      const u32 within = next % Lane::kPlaceBlocks;
      if (next < blocks) {
        if (within == 0u) place = place == places ? places + p.place_words : places;
        at_block += p.tile * kGgmlTokenWords;
        if (--left == 0u) {
          left = p.stages;
          arrive<kQuarters, Lane>(t, p, &matrix, &copies, places, place, tile, next);
          stage = copies.after(stage, p);
          at_block = stage;
        }
        if (within == 0u) lane_rows.begin(t, place);
      }
      TeamBytes<kTiles>::template wait<0u>(t, second.high, second.low);
      // Beside the last step's sums; behind the last block the first one of its split again.
      load->load(t, &lane, lane_rows, next < blocks ? within : 0u, next < blocks ? next : 0u);
      add_step<Lane>(t, totals, products, &second, above, below, u32{kParts} * kGroups - 1u, before,
                     p.tile);
      if (next % kMmaSplitBlocks == 0u || next == blocks) end_split(totals);
    }
  }
  MF_FN_MEMBER void end_split(MF_LOCAL(f32) totals) {
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      v[i] = v[i] + totals[i];
      totals[i] = 0.0f;
    }
  }
  template <class Lane>
  static MF_FN_MEMBER void issue(MF_T t, MF_LOCAL(const GgmlRows) matrix, u32 place, u32 tile,
                                 u32 split) {
    matrix->issue(t, place, tile, split);
    if (Lane::kHasScales == 1u) matrix->issue_affine(t, place, held_row(t), split);
  }
  /// A lane's address, where others have a grid: registers are few.
  static MF_FN_MEMBER MF_SHARED(u32) place_of_row(MF_T t) {
    return MF_SHARED_AT(t, u32, (kGgmlGrid + t.index * 2u) * 4u);
  }
  static MF_FN_MEMBER void hold_row(MF_T t, u64 row) {
    const W2 words = {{static_cast<u32>(row), static_cast<u32>(row >> 32u)}};
    store2(place_of_row(t), words);
  }
  static MF_FN_MEMBER u64 held_row(MF_T t) {
    const W2 words = load2(place_of_row(t));
    return static_cast<u64>(words.v[1]) << 32u | words.v[0];
  }
  /// Waits for the stage of block `block`, and asks for the next one: that before may still be
  /// read.
  template <u32 QUARTERS, class Lane>
  static MF_FN_MEMBER void arrive(MF_T t, MmaMany p, MF_LOCAL(const GgmlRows) matrix,
                                  MF_LOCAL(GgmlStages<TILES>) copies, u32 places, u32 place,
                                  u32 tile, u32 block) {
    enum : u32 { kBlocks = Lane::kPlaceBlocks };
    GgmlStages<TILES>::wait(t);
    // With the batch of the next tokens, which has arrived before it is needed.
    if (block % kBlocks == 0u && block + kBlocks < p.cols / kMmaBlock) {
      issue<Lane>(t, matrix, place == places ? places + p.place_words : places, tile,
                  block / kBlocks + 1u);
    }
    copies->issue(t, p, QUARTERS == 1u);
  }

  /// Steps go by parts of the tokens, then by scales; two arrays have them in turn.
  template <class Lane>
  static MF_FN_MEMBER void begin_step(MF_T t, MF_LOCAL(Step) to, MF_LOCAL(const Lane) lane, u32 s,
                                      u32 stage) {
    enum : u32 { kGroups = Lane::kGroups };
    MF_SHARED(u32)
    x = MF_SHARED_AT(t, u32, (stage + s / kGroups * (kTiles * 8u) * kMmaBlockWords) * 4u);
    lane->template begin<kTiles>(t, to->high, to->low, s % kGroups, x);
  }
  template <class Lane>
  static MF_FN_MEMBER void add_all_but_last(MF_T t, MF_LOCAL(f32) totals, MF_LOCAL(f32) products,
                                            MF_LOCAL(Step) first, MF_LOCAL(Step) second,
                                            MF_LOCAL(const Lane) lane, u32 stage, u32 tile) {
    enum : u32 { kGroups = Lane::kGroups };
    MF_UNROLL
    for (u32 s = 0u; s + 1u < u32{kParts} * kGroups; ++s) {
      MF_LOCAL(Step) own = s % 2u == 0u ? first : second;
      begin_step(t, s % 2u == 0u ? second : first, lane, s + 1u, stage);
      TeamBytes<kTiles>::template wait<1u>(t, own->high, own->low);
      add_step<Lane>(t, totals, products, own, lane->scale(0u, s % kGroups),
                     lane->scale(1u, s % kGroups), s, stage, tile);
    }
  }
  /// Adds a step to the products of its tokens, and these to their totals behind the last scale.
  template <class Lane>
  static MF_FN_MEMBER void add_step(MF_T t, MF_LOCAL(f32) totals, MF_LOCAL(f32) products,
                                    MF_LOCAL(const Step) own, GgmlScale above, GgmlScale below,
                                    u32 s, u32 stage, u32 tile) {
    enum : u32 { kGroups = Lane::kGroups };
    const u32 g = s % kGroups;
    const u32 part = s / kGroups;
    // The lane's two tokens of the first 8.
    const u32 sums = stage + tile * kMmaBlockWords + part * (kTiles * 8u) + (t.lane & 3u) * 2u;
    MF_UNROLL
    for (u32 i = 0u; i < kTiles; ++i) {
      const u32 from = sums + i * 8u;
      W2 sum = {{0u, 0u}};
      if (Lane::kHasBias == 1u) sum = load_sums<kGroups>(t, from, g, tile);
      const W2 factor = load2(MF_SHARED_AT(t, u32, (from + kGgmlSumFactor * tile) * 4u));
      MF_UNROLL
      for (u32 q = 0u; q < 4u; ++q) {
        const u32 at = i * 4u + q;
        products[at] = Lane::add(g == 0u ? 0.0f : products[at], own->high[at], own->low[at],
                                 q < 2u ? above : below, as_float(sum.v[q % 2u]));
        if (g + 1u < kGroups) continue;
        MF_LOCAL(f32) total = totals + (part * kStep + at);
        *total = mf_fma(as_float(factor.v[q % 2u]), products[at], *total);
      }
    }
  }
  /// The sums of the columns of scale `g`, of two tokens.
  template <u32 GROUPS>
  static MF_FN_MEMBER W2 load_sums(MF_T t, u32 from, u32 g, u32 tile) {
    const u32 kind = GROUPS == 4u ? kGgmlSumQuarters + g : g;
    W2 sum = load2(MF_SHARED_AT(t, u32, (from + kind * tile) * 4u));
    if (GROUPS == 1u) {
      const W2 other = load2(MF_SHARED_AT(t, u32, (from + tile) * 4u));
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        sum.v[j] = as_bits(as_float(sum.v[j]) + as_float(other.v[j]));
      }
    }
    return sum;
  }
};

template <u32 TILES, class Output>
MF_FN void ggml_multiply_tiles(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows,
                               MF_LOCAL(const Output) output) {
  GgmlSums<TILES> sums;
  sums.multiply(t, p, rows);
  output->template store<TILES>(t, &sums);
}

/// mma_multiply() of either.
template <u32 BITS>
struct MmaTokens {
  enum : u32 { kNumbers = kMmaTokens };  // of rows of x, in shared memory, then of results
  template <class Output>
  static MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, u32 tokens,
                                    MF_LOCAL(const Output) output) {
    mma_multiply(t, p, rows, tokens, output);
  }
  static MF_FN_MEMBER MmaRows rows(MF_T t, u64 data, u64 scales, u64 biases, u32 row) {
    const MmaRows own = {MF_AT(t, const u8, data), MF_AT(t, const u8, scales),
                         MF_AT(t, const u8, biases), row, 0u};
    return own;
  }
};
template <>
struct MmaTokens<kMmaGgml> {
  enum : u32 { kNumbers = kGgmlTokens };
  template <class Output>
  static MF_FN_MEMBER void multiply(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) rows, u32 tokens,
                                    MF_LOCAL(const Output) output) {
    if (tokens > 64u) {
      ggml_multiply_tiles<16u>(t, p, rows, output);
    } else if (tokens > 32u) {
      ggml_multiply_tiles<8u>(t, p, rows, output);
    } else {
      ggml_multiply_tiles<4u>(t, p, rows, output);
    }
  }
  static MF_FN_MEMBER MmaRows rows(MF_T t, u64 data, u64 scales, u64 added, u32 row) {
    MF_GLOBAL(const u8) codes = MF_AT(t, const u8, data);
    MF_GLOBAL(const u8) factor = added == 0u ? codes : MF_AT(t, const u8, added);
    MF_GLOBAL(const u8) of_fp8 = scales == 0u ? codes : MF_AT(t, const u8, scales);
    const MmaRows own = {codes, of_fp8, factor, row, static_cast<u32>(data) % 32u};
    return own;
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
