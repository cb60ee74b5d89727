// Int8 kernels for x86-64 with AMX-INT8 (and AVX-512 F, BW, VL, DQ, VNNI); compiled with exactly
// those flags. Linux must have given leave to use the tile registers (isa_choice.cc).
//
// The unpacked lines of a panel are the right operand of a tile product as they lie: a line is four
// columns of sixteen rows. The left operand is up to sixteen tokens' activations of a group, and
// the product the exact dots [token][row]. Few tokens have no use for that: VNNI multiplies them.
#include <immintrin.h>

#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_avx512_amx {
#include "backend/cpu/kernels/int8_lanes_avx512-inl.h"
//
#include "backend/cpu/kernels/int8_lines-inl.h"
//
#include "backend/cpu/kernels/tiles_run-inl.h"

constexpr int kBlockTokens = 16;
constexpr int64_t kTileCols = 64;  // columns of one tile product, at most

/// The configuration that ldtilecfg reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// The writes are in memory now: g++ 12's intrinsics do not say that they read it.
MF_INLINE void settle(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

/// Registers come in two sets, so that products of two groups are under way at a time: 0 and 3 hold
/// dots, 1 and 4 tokens, 2 and 5 codes.
MF_INLINE void configure(int64_t tokens, int64_t cols) {
  TileConfig config;
  for (int dots = 0; dots < 6; dots += 3) {
    config.rows[dots] = config.rows[dots + 1] = static_cast<uint8_t>(tokens);
    config.rows[dots + 2] = static_cast<uint8_t>(cols / kLineCols);
    config.row_bytes[dots] = config.row_bytes[dots + 2] = kLine;
    config.row_bytes[dots + 1] = static_cast<uint16_t>(cols);
  }
  settle(&config);
  _tile_loadconfig(&config);
}

/// One group of one panel and the tokens of a block.
struct GroupArgs {
  const uint8_t* values;
  const uint8_t* codes;
  int64_t group_size;
  int64_t cols;  // of one tile product
  int64_t tokens;
  int32_t (*dots)[kTilePanelRows];  // [token]
};

// The intrinsics take digits only.
#define MF_AMX_GROUP_DOTS(dots_tile, tokens_tile, codes_tile, args)      \
  do {                                                                   \
    const uint8_t* from = (args).values;                                 \
    const uint8_t* codes = (args).codes;                                 \
    _tile_zero(dots_tile);                                               \
    for (int64_t col = 0; col < (args).group_size; col += (args).cols) { \
      _tile_loadd(tokens_tile, from, (args).cols);                       \
      _tile_loadd(codes_tile, codes, kLine);                             \
      _tile_dpbsud(dots_tile, tokens_tile, codes_tile);                  \
      from += (args).cols * (args).tokens;                               \
      codes += (args).cols / kLineCols * kLine;                          \
    }                                                                    \
    _tile_stored(dots_tile, (args).dots, kLine);                         \
  } while (false)

MF_INLINE void group_dots(const GroupArgs& args, bool odd) {
  if (odd) {
    MF_AMX_GROUP_DOTS(3, 4, 5, args);
  } else {
    MF_AMX_GROUP_DOTS(0, 1, 2, args);
  }
}

/// The sums of one panel stay in registers for a run. Dots of a group are stored before those of
/// the group before it are used: vector loads wait for stores from tiles to reach the cache. A
/// configuration for more tokens than a block has reads past them, into what a block has room for,
/// and those dots are left alone.
template <int kBits, int kPanels, int kTokens>
static void many_block(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                       int64_t groups, float* acc) {
  settle(run.codes);
  alignas(64) int32_t dots[2][kBlockTokens][kTilePanelRows];
  GroupArgs next{};
  next.group_size = group_size;
  next.cols = group_size < kTileCols ? group_size : kTileCols;
  next.tokens = kTokens;
  for (int p = 0; p < kPanels; ++p) {
    FVec sums[kTokens];
    MF_UNROLL
    for (int t = 0; t < kTokens; ++t) sums[t] = fload(acc + (t * kPanels + p) * kTilePanelRows);
    next.values = static_cast<const uint8_t*>(x.values) + group * group_size * kTokens;
    next.codes = run.codes + p * run.next_panel;
    next.dots = dots[0];
    group_dots(next, false);
    for (int64_t g = 0; g < groups; ++g) {
      const bool is_odd = (g & 1) != 0;
      if (g + 1 < groups) {
        next.values += group_size * kTokens;
        next.codes += run.group_stride;
        next.dots = dots[is_odd ? 0 : 1];
        group_dots(next, !is_odd);
      }
      if (p == 0) ask_ahead<kPanels>(run);
      const FVec scale = fload(run.scales[g][p]);
      const FVec bias = fload(run.biases[g][p]);
      const float* x_scales = x.scales + (group + g) * kTokens;
      const float* x_sums = x.sums + (group + g) * kTokens;
      const int32_t(*dot)[kTilePanelRows] = dots[is_odd ? 1 : 0];
      MF_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const FVec factor = fmul(scale, fbroadcast(x_scales + t));
        sums[t] = ffma(factor, fconvert(iload(dot[t])), sums[t]);
        sums[t] = ffma(bias, fbroadcast(x_sums + t), sums[t]);
      }
    }
    MF_UNROLL
    for (int t = 0; t < kTokens; ++t) fstore(acc + (t * kPanels + p) * kTilePanelRows, sums[t]);
  }
}

/// For tiles_many-inl.h.
struct AmxBlocks {
  static constexpr int kTokensMax = kBlockTokens;
  static constexpr int bits_of(int) { return 8; }  // all are multiplied alike
  template <int kBits, int kPanels, int kTokens>
  static MF_INLINE void multiply(TileRun& run, const TileBlock& x, int64_t group_size,
                                 int64_t group, int64_t groups, float* acc) {
    many_block<kBits, kPanels, kTokens>(run, x, group_size, group, groups, acc);
  }
};

#include "backend/cpu/kernels/tiles_many-inl.h"

static void few(const TileFewArgs& args) { kAvx512VnniInt8Tiles.few(args); }

static void many(const TileManyArgs& args) {
  int64_t tokens = 0;
  for (int64_t b = 0; b < args.blocks; ++b) {
    tokens = args.x[b].tokens > tokens ? args.x[b].tokens : tokens;
  }
  configure(tokens, args.w.group_size < kTileCols ? args.w.group_size : kTileCols);
  multiply_many<AmxBlocks>(args);
  _tile_release();  // so that nobody saves tile registers when this thread is switched
}

static void prepare(const float* x, int64_t cols, int64_t group_size, void* values, float* scales,
                    float* sums) {
  kAvx512VnniInt8Tiles.prepare(x, cols, group_size, values, scales, sums);
}

}  // namespace isa_int8_avx512_amx

const TileKernels kAvx512AmxInt8Tiles = {"avx512-amx",
                                         1,
                                         isa_int8_avx512_amx::kTileCols,
                                         isa_int8_avx512_amx::kBlockTokens,
                                         isa_int8_avx512_amx::prepare,
                                         isa_int8_avx512_amx::few,
                                         isa_int8_avx512_amx::many,
                                         &kAvx512VnniBlocks};

}  // namespace moeflux::cpu
