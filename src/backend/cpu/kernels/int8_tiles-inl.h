// Tiles of 4-bit and 8-bit codes times int8 activations.
// Included inside the namespace of one ISA, after its int8_lanes_*-inl.h and int8_sums_*-inl.h; see
// tile_table.h.

#include "backend/cpu/kernels/int8_lines-inl.h"

using Dot = IVec;

MF_INLINE Dot dzero() { return izero(); }
MF_INLINE Dot dload(const uint8_t* p) { return iload(p); }
MF_INLINE Dot dbroadcast(const uint8_t* four) { return ibroadcast(four); }
MF_INLINE FVec dfold(FVec acc, Dot dot, FVec scale, const float* x_scale) {
  return ffma(fmul(scale, fbroadcast(x_scale)), fconvert(dot), acc);
}

#include "backend/cpu/kernels/tiles-inl.h"

/// Sums of 32 bits of every line by itself.
template <int kBits>
using LineDots = CodeDots<(kBits < 8 ? 7 : 8), false>;

/// Integer sums of one group of a panel, by token and vector; `p` moves behind its codes. Lines
/// from `ahead` on are asked for.
template <int kBits, int kTokens>
MF_INLINE void few_dots(const uint8_t*& p, const uint8_t* ahead, int64_t code_bytes,
                        const uint8_t* const* x, int64_t at, IVec* dots) {
  // A lone token needs four chains of dependent instructions to keep the multipliers busy.
  constexpr int kChains = kTokens == 1 ? 4 : 2;
  constexpr int kStepLines = kBits == 4 ? kChains / 2 : kChains;
  constexpr int kSums = kTokens * kVecs;
  using Dots = LineDots<kBits>;
  IVec sums[kChains * kSums];
  MF_UNROLL
  for (int i = 0; i < kChains * kSums; ++i) sums[i] = izero();
  for (const uint8_t* end = p + code_bytes; p < end;
       p += kStepLines * kLine, ahead += kStepLines * kLine) {
    MF_UNROLL
    for (int i = 0; i < kStepLines; ++i) prefetch_far(ahead + i * kLine);
    IVec w[kChains * kVecs];
    MF_UNROLL
    for (int i = 0; i < kStepLines * kVecs; ++i) {
      const IVec codes = iload(p + i * kIntLanes * 4);
      if constexpr (kBits == 4) {
        const int low = i / kVecs * 2 * kVecs + i % kVecs;
        w[low] = ilow_nibbles(codes);
        w[low + kVecs] = ihigh_nibbles(codes);
      } else {
        w[i] = codes;
      }
    }
    MF_UNROLL
    for (int i = 0; i < kChains * kSums; ++i) {
      const int chain = i / kSums;
      const IVec four = ibroadcast(x[i % kSums / kVecs] + at + 4 * chain);
      sums[i] = Dots::add(sums[i], Dots::line(w[chain * kVecs + i % kVecs]), four);
    }
    at += 4 * kChains;
  }
  MF_UNROLL
  for (int i = 0; i < kSums; ++i) {
    dots[i] = iadd(sums[i], sums[kSums + i]);
    if constexpr (kChains == 4) {
      dots[i] = iadd(dots[i], iadd(sums[2 * kSums + i], sums[3 * kSums + i]));
    }
  }
}

template <int kBits, int kTokens>
static void few_panel(const TileFewArgs& args, const TileExtents& e, int64_t panel) {
  constexpr int kSums = kTokens * kVecs;
  const uint8_t* p = args.w.tiles + panel * e.panel_bytes;
  const uint8_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const uint8_t*>(args.x[t].values);
  FVec acc[kSums];
  MF_UNROLL
  for (int i = 0; i < kSums; ++i) acc[i] = fzero();
  for (int64_t g = 0; g < e.groups; ++g) {
    IVec dots[kSums];
    const uint8_t* ahead = far_ahead(args, e, p);
    few_dots<kBits, kTokens>(p, ahead, e.code_bytes, x, g * args.w.group_size, dots);
    prefetch_far(ahead + e.code_bytes);
    FVec scales[kVecs];
    FVec biases[kVecs];
    MF_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      const int64_t lane = v * e.param_bytes / kVecs;
      scales[v] = fload_element(p + lane, args.w.type);
      biases[v] = fload_element(p + e.param_bytes + lane, args.w.type);
    }
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const TileToken& token = args.x[i / kVecs];
      const IVec dot = LineDots<kBits>::dot(dots[i], token.scales + g, token.sums + g);
      const FVec sum = dfold(acc[i], dot, scales[i % kVecs], token.scales + g);
      acc[i] = ffma(biases[i % kVecs], fbroadcast(token.sums + g), sum);
    }
    p += 2 * e.param_bytes;
  }
  store_panel<kTokens>(args, panel, acc);
}

/// For tiles_few-inl.h.
struct DotPanels {
  template <int kBits, int kTokens>
  static MF_INLINE void multiply(const TileFewArgs& args, const TileExtents& e, int64_t panel) {
    few_panel<kBits, kTokens>(args, e, panel);
  }
};

#include "backend/cpu/kernels/block_few-inl.h"
#include "backend/cpu/kernels/tiles_few-inl.h"

static void few_tiles_or_blocks(const TileFewArgs& args) {
  if (args.w.block == nullptr) return few<DotPanels>(args);
  if (args.tokens == 1) return args.w.block->one_token(args);
  const bool narrow = args.w.block->code_bits < 8;
  if (args.w.block->group_size == 16) {
    return narrow ? few_blocks_by_tokens<7, 4>(args) : few_blocks_by_tokens<8, 4>(args);
  }
  return narrow ? few_blocks_by_tokens<7, 8>(args) : few_blocks_by_tokens<8, 8>(args);
}

constexpr TileKernels make_int8_tiles(const char* name) {
  return {name,
          1,
          kChunkCols,
          kBlockTokens,
          int8_prepare,
          few_tiles_or_blocks,
          multiply_many<DotBlocks>,
          &kBlockKernels};
}
