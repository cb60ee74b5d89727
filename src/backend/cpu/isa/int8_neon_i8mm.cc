// Int8 kernels for 64-bit Arm with int8 matrix products (and dot products); compiled with exactly
// those flags.
//
// One instruction multiplies eight columns of two rows by those of two tokens, 32 products where a
// dot product has 16. Two unpacked lines of a panel, four columns of sixteen rows each, interleave
// into its left operands; codes are unsigned as they are, of 8 bits too. Few tokens read weights
// faster than any instruction multiplies them: dot products do that.
#include <arm_neon.h>

#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_neon_i8mm {
#include "backend/cpu/kernels/int8_lanes_neon-inl.h"
//
#include "backend/cpu/kernels/int8_lines-inl.h"
//
#include "backend/cpu/kernels/tiles_run-inl.h"

constexpr int kBlockTokens = 8;
constexpr int kChunkCols = 32;
constexpr int kPairs = 4;  // of rows that are under way together: half a panel

/// Eight columns of two tokens from each of two loads of sixteen.
struct TokenPair {
  int8x16_t low;
  int8x16_t high;
};

MF_INLINE TokenPair load_tokens(const int8_t* first, const int8_t* second) {
  const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first));
  const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(second));
  return {vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))};
}

/// Eight columns of eight rows, from the two lines that begin at `codes`: pairs of rows.
MF_INLINE void load_rows(const uint8_t* codes, uint8x16_t* rows) {
  MF_UNROLL
  for (int i = 0; i < kPairs; i += 2) {
    const IVec a = iload(codes + i / 2 * 16);
    const IVec b = iload(codes + kLine + i / 2 * 16);
    rows[i] = vreinterpretq_u8_s32(vzip1q_s32(a, b));
    rows[i + 1] = vreinterpretq_u8_s32(vzip2q_s32(a, b));
  }
}

/// Dots of eight rows and kTokens tokens over one group; the last token of an odd number is
/// multiplied twice. dots [token pair][row pair] holds row 0 of both tokens, then row 1.
template <int kTokens>
MF_INLINE void group_dots(const uint8_t* codes, const int8_t* values, int64_t group_size,
                          IVec* dots) {
  constexpr int kTokenPairs = (kTokens + 1) / 2;
  const int64_t chunk = group_size < kChunkCols ? group_size : kChunkCols;
  MF_UNROLL
  for (int i = 0; i < kTokenPairs * kPairs; ++i) dots[i] = izero();
  for (int64_t col = 0; col < group_size; col += 16) {
    uint8x16_t low[kPairs];
    uint8x16_t high[kPairs];
    load_rows(codes, low);
    load_rows(codes + 2 * kLine, high);
    codes += 4 * kLine;
    const int8_t* from = values + col / chunk * chunk * kTokens + col % chunk;
    MF_UNROLL
    for (int pair = 0; pair < kTokenPairs; ++pair) {
      const int8_t* first = from + 2 * pair * chunk;
      const TokenPair x = load_tokens(first, 2 * pair + 1 < kTokens ? first + chunk : first);
      MF_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        IVec& dot = dots[pair * kPairs + i];
        dot = vusmmlaq_s32(vusmmlaq_s32(dot, low[i], x.low), high[i], x.high);
      }
    }
  }
}

template <int kBits, int kPanels, int kTokens>
static void many_block(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                       int64_t groups, float* acc) {
  static_assert(kPanels == 1);
  const auto* values = static_cast<const int8_t*>(x.values) + group * group_size * kTokens;
  for (int64_t g = 0; g < groups; ++g, values += group_size * kTokens) {
    ask_ahead<kPanels>(run);
    const float* x_scales = x.scales + (group + g) * kTokens;
    const float* x_sums = x.sums + (group + g) * kTokens;
    for (int half = 0; half < 2; ++half) {
      IVec dots[(kTokens + 1) / 2 * kPairs];
      group_dots<kTokens>(run.codes + g * run.group_stride + half * (kLine / 2), values, group_size,
                          dots);
      MF_UNROLL
      for (int i = 0; i < kTokens * 2; ++i) {  // four rows of a token at a time
        const int token = i / 2;
        const int row = half * 8 + i % 2 * 4;
        const IVec* two = dots + token / 2 * kPairs + i % 2 * 2;
        const IVec dot = token % 2 == 0 ? vuzp1q_s32(two[0], two[1]) : vuzp2q_s32(two[0], two[1]);
        const FVec scale = fmul(fload(run.scales[g][0] + row), fbroadcast(x_scales + token));
        float* to = acc + token * kTilePanelRows + row;
        const FVec sum = ffma(scale, fconvert(dot), fload(to));
        fstore(to, ffma(fload(run.biases[g][0] + row), fbroadcast(x_sums + token), sum));
      }
    }
  }
}

/// For tiles_many-inl.h.
struct MatrixBlocks {
  static constexpr int kTokensMax = kBlockTokens;
  static constexpr int bits_of(int) { return 8; }  // all are multiplied alike
  template <int kBits, int kPanels, int kTokens>
  static MF_INLINE void multiply(TileRun& run, const TileBlock& x, int64_t group_size,
                                 int64_t group, int64_t groups, float* acc) {
    many_block<kBits, kPanels, kTokens>(run, x, group_size, group, groups, acc);
  }
};

#include "backend/cpu/kernels/tiles_many-inl.h"

static void few(const TileFewArgs& args) { kNeonDotprodInt8Tiles.few(args); }

static void prepare(const float* x, int64_t cols, int64_t group_size, void* values, float* scales,
                    float* sums) {
  kNeonDotprodInt8Tiles.prepare(x, cols, group_size, values, scales, sums);
}

}  // namespace isa_int8_neon_i8mm

const TileKernels kNeonI8mmInt8Tiles = {
    "neon-i8mm",
    1,
    isa_int8_neon_i8mm::kChunkCols,
    isa_int8_neon_i8mm::kBlockTokens,
    isa_int8_neon_i8mm::prepare,
    isa_int8_neon_i8mm::few,
    isa_int8_neon_i8mm::multiply_many<isa_int8_neon_i8mm::MatrixBlocks>,
    &kNeonDotprodBlocks};

}  // namespace moeflux::cpu
