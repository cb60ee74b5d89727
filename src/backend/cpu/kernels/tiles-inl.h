// Tiled weights times many tokens, for activations of either kind.
// Included inside a namespace of one ISA, after the definitions of its arithmetic:
// - FVec, a vector of kVecLanes f32, with fzero, fload, fstore, fbroadcast, ffma and fload_element;
// - Dot, as many 32-bit accumulators, with dzero, dload, dbroadcast and dfold;
// - CodeDots<kBits, kTight>, what adds products of codes below 2^kBits; kTight where accumulators
//   fill the registers. line() makes a factor of a vector of a line, add() adds its products. Where
//   kPartLines is not 0, the products of kPartLines lines are summed apart, and join() adds these
//   sums to a group's. dot() is the group's dot of a token;
// - kLineCols, the columns that one unpacked line covers, and unpack_line<kBits>;
// - kBlockTokens and kPairPanels.
//
// Weights are unpacked to lines once; then all tokens are multiplied by them, a block whose sums
// fit the registers at a time.

#include "backend/cpu/kernels/tiles_run-inl.h"

// A token's part of a block that stays together: 32 bytes of activations, half in groups of 16.
constexpr int kChunkLines = 8;
constexpr int kChunkCols = kChunkLines * kLineCols;

/// Adds the products of kLines lines to sums [token][vec]; a token's columns of kChunk lines stay
/// together.
template <class Dots, int kAll, int kTokens, int kChunk, int kLines>
MF_INLINE void add_lines(const uint8_t* codes, int64_t next_panel, const uint8_t* values,
                         Dot* sums) {
  MF_UNROLL
  for (int line = 0; line < kLines; ++line, codes += kLine) {
    typename Dots::Line w[kAll];
    MF_UNROLL
    for (int v = 0; v < kAll; ++v) {
      w[v] = Dots::line(dload(codes + (v < kVecs ? 0 : next_panel) + v % kVecs * kVecLanes * 4));
    }
    MF_UNROLL
    for (int i = 0; i < kTokens * kAll; ++i) {
      const Dot value = dbroadcast(values + i / kAll * kChunk * 4 + line * 4);
      sums[i] = Dots::add(sums[i], w[i % kAll], value);
    }
  }
}

/// Adds a run's products to acc [token][panel][row]. Loops over accumulators are flat, and a
/// chunk's lines are unrolled: else g++ keeps accumulators in memory.
template <int kBits, int kPanels, int kTokens, int kChunk>
static void many_chunks(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                        int64_t groups, float* acc) {
  constexpr int kAll = kPanels * kVecs;
  using Dots = CodeDots<kBits, (kTokens * kAll > 16)>;
  const uint8_t* values =
      static_cast<const uint8_t*>(x.values) + group * group_size / kLineCols * 4 * kTokens;
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* codes = run.codes + g * run.group_stride;
    Dot dots[kTokens * kAll];
    MF_UNROLL
    for (int i = 0; i < kTokens * kAll; ++i) dots[i] = dzero();
    for (int64_t col = 0; col < group_size; col += kChunk * kLineCols) {
      if constexpr (Dots::kPartLines == 0) {
        add_lines<Dots, kAll, kTokens, kChunk, kChunk>(codes, run.next_panel, values, dots);
      } else {
        constexpr int kPart = Dots::kPartLines < kChunk ? Dots::kPartLines : kChunk;
        MF_UNROLL
        for (int first = 0; first < kChunk; first += kPart) {
          Dot parts[kTokens * kAll];
          MF_UNROLL
          for (int i = 0; i < kTokens * kAll; ++i) parts[i] = dzero();
          add_lines<Dots, kAll, kTokens, kChunk, kPart>(codes + first * kLine, run.next_panel,
                                                        values + first * 4, parts);
          MF_UNROLL
          for (int i = 0; i < kTokens * kAll; ++i) dots[i] = Dots::join(dots[i], parts[i]);
        }
      }
      codes += kChunk * kLine;
      values += kTokens * kChunk * 4;
    }
    ask_ahead<kPanels>(run);
    FVec scales[kAll];
    FVec biases[kAll];
    MF_UNROLL
    for (int v = 0; v < kAll; ++v) {
      scales[v] = fload(run.scales[g][0] + v * kVecLanes);
      biases[v] = fload(run.biases[g][0] + v * kVecLanes);
    }
    const float* x_scales = x.scales + (group + g) * kTokens;
    const float* x_sums = x.sums + (group + g) * kTokens;
    MF_UNROLL
    for (int i = 0; i < kTokens * kAll; ++i) {
      float* to = acc + i * kVecLanes;
      const Dot dot = Dots::dot(dots[i], x_scales + i / kAll, x_sums + i / kAll);
      const FVec sum = dfold(fload(to), dot, scales[i % kAll], x_scales + i / kAll);
      fstore(to, ffma(biases[i % kAll], fbroadcast(x_sums + i / kAll), sum));
    }
  }
}

template <int kBits, int kPanels, int kTokens>
static void many_block(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                       int64_t groups, float* acc) {
  if constexpr (kTakesBlocks) {
    if (group_size < kChunkCols) {
      return many_chunks<kBits, kPanels, kTokens, kChunkLines / 2>(run, x, group_size, group,
                                                                   groups, acc);
    }
  }
  many_chunks<kBits, kPanels, kTokens, kChunkLines>(run, x, group_size, group, groups, acc);
}

/// For tiles_many-inl.h.
struct DotBlocks {
  static constexpr int kTokensMax = kBlockTokens;
  static constexpr int bits_of(int code_bits) { return product_bits(code_bits); }
  template <int kBits, int kPanels, int kTokens>
  static MF_INLINE void multiply(TileRun& run, const TileBlock& x, int64_t group_size,
                                 int64_t group, int64_t groups, float* acc) {
    many_block<kBits, kPanels, kTokens>(run, x, group_size, group, groups, acc);
  }
};

#include "backend/cpu/kernels/tiles_many-inl.h"

// --- Few tokens: what both kinds share ---

// Hardware prefetchers stop at page borders and need a few lines to start: lines far ahead are
// asked for explicitly, past the end of the panels too.
constexpr int64_t kPrefetchBytes = 8192;

/// The next bytes to prefetch while the group at `p` is multiplied.
MF_INLINE const uint8_t* far_ahead(const TileFewArgs& args, const TileExtents& e,
                                   const uint8_t* p) {
  const int64_t left = args.w.tiles + args.panel_end * e.panel_bytes - p;
  return left > kPrefetchBytes || args.next == nullptr ? p + kPrefetchBytes
                                                       : args.next + (kPrefetchBytes - left);
}
MF_INLINE void prefetch_far(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }

/// Stores acc [token][vec] as rows of `panel`.
template <int kTokens>
MF_INLINE void store_panel(const TileFewArgs& args, int64_t panel, const FVec* acc) {
  const int64_t row = panel * kTilePanelRows - args.out_row;
  MF_UNROLL
  for (int i = 0; i < kTokens * kVecs; ++i) {
    fstore(args.out[i / kVecs] + row + i % kVecs * kVecLanes, acc[i]);
  }
}
