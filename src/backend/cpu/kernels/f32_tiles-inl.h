// Tiles of 4-bit and 8-bit codes times f32 activations.
// Included inside a namespace within that of one ISA, after kernels-inl.h; see tile_table.h.

using FVec = Vec;
using Dot = Vec;
constexpr int kVecLanes = kLanes;
constexpr int kLineCols = 1;
constexpr bool kTakesBlocks = false;
constexpr int kPairPanels = kLanes == 16 ? 2 : 1;
// Times the vectors of a panel or a pair: what fits the registers beside weights and a broadcast.
constexpr int kBlockTokens = kLanes == 16 ? 12 : kRegisters >= 32 ? 6 : kLanes == 8 ? 6 : 3;

MF_INLINE FVec fzero() { return vset(0.0f); }
MF_INLINE FVec fload(const float* p) { return vload(p); }
MF_INLINE void fstore(float* p, FVec v) { vstore(p, v); }
MF_INLINE FVec fbroadcast(const float* p) { return vset(*p); }
MF_INLINE FVec ffma(FVec a, FVec b, FVec c) { return vfma(a, b, c); }
MF_INLINE FVec fload_element(const uint8_t* p, ElementType type) { return vload_element(p, type); }

MF_INLINE Dot dzero() { return vset(0.0f); }
MF_INLINE Dot dload(const uint8_t* p) { return vload(reinterpret_cast<const float*>(p)); }
MF_INLINE Dot dbroadcast(const uint8_t* four) {
  float value;
  __builtin_memcpy(&value, four, 4);
  return vset(value);
}
template <int kBits, bool>
struct CodeDots {
  using Line = Vec;
  static constexpr int kPartLines = 0;
  static MF_INLINE Line line(Vec codes) { return codes; }
  static MF_INLINE Dot add(Dot sum, Line codes, Dot x) { return vfma(codes, x, sum); }
  static MF_INLINE Dot join(Dot sum, Dot) { return sum; }
  static MF_INLINE Dot dot(Dot sum, const float*, const float*) { return sum; }
};
constexpr int product_bits(int code_bits) { return code_bits; }
MF_INLINE FVec dfold(FVec acc, Dot dot, FVec scale, const float*) { return vfma(scale, dot, acc); }

/// Where column `col` of a stored line lies in each of its words.
template <int kBits>
constexpr int code_shift(int col) {
  return kBits == 8 ? 8 * col : col < 4 ? 8 * col : 8 * (col - 4) + 4;
}

template <int kBits>
MF_INLINE void unpack_line(const uint8_t* line, uint8_t* to) {
  MF_UNROLL
  for (int i = 0; i < 32 / kBits * (16 / kLanes); ++i) {
    constexpr int kVectors = 16 / kLanes;
    const Vec codes =
        vcodes<kBits>(line + i % kVectors * kLanes * 4, code_shift<kBits>(i / kVectors));
    vstore(reinterpret_cast<float*>(to) + i * kLanes, codes);
  }
}

#include "backend/cpu/kernels/tiles-inl.h"

/// Products of kGroups groups of a panel, by group, token and vector: one chain a group, so several
/// groups at once keep the multipliers busy.
template <int kBits, int kTokens, int kGroups>
MF_INLINE void few_dots(const uint8_t* p, const uint8_t* ahead, const TileExtents& e,
                        const float* const* x, int64_t at, int64_t group_size, Vec* dots) {
  constexpr int kCols = 32 / kBits;
  MF_UNROLL
  for (int i = 0; i < kGroups * kTokens * kVecs; ++i) dots[i] = vset(0.0f);
  for (int64_t line = 0; line < e.code_bytes; line += kLine, at += kCols) {
    MF_UNROLL
    for (int g = 0; g < kGroups; ++g) prefetch_far(ahead + g * e.group_bytes + line);
    MF_UNROLL
    for (int col = 0; col < kCols; ++col) {
      Vec w[kGroups * kVecs];
      MF_UNROLL
      for (int i = 0; i < kGroups * kVecs; ++i) {
        w[i] = vcodes<kBits>(p + i / kVecs * e.group_bytes + line + i % kVecs * kLanes * 4,
                             code_shift<kBits>(col));
      }
      MF_UNROLL
      for (int i = 0; i < kGroups * kTokens * kVecs; ++i) {
        const int group = i / (kTokens * kVecs);
        const float* value = x[i / kVecs % kTokens] + at + group * group_size + col;
        dots[i] = vfma(w[group * kVecs + i % kVecs], vset(*value), dots[i]);
      }
    }
  }
}

/// Multiplies groups [g, g + kGroups) and adds them to acc [token][vec], in order.
template <int kBits, int kTokens, int kGroups>
MF_INLINE void few_groups(const TileFewArgs& args, const TileExtents& e, const uint8_t* p,
                          const float* const* x, int64_t g, Vec* acc) {
  Vec dots[kGroups * kTokens * kVecs];
  few_dots<kBits, kTokens, kGroups>(p, far_ahead(args, e, p), e, x, g * args.w.group_size,
                                    args.w.group_size, dots);
  MF_UNROLL
  for (int i = 0; i < kGroups * kTokens * kVecs; ++i) {
    const int group = i / (kTokens * kVecs);
    const int sum = i % (kTokens * kVecs);
    const uint8_t* params =
        p + group * e.group_bytes + e.code_bytes + i % kVecs * e.param_bytes / kVecs;
    const Vec scale = vload_element(params, args.w.type);
    const Vec bias = vload_element(params + e.param_bytes, args.w.type);
    acc[sum] = vfma(scale, dots[i], acc[sum]);
    acc[sum] = vfma(bias, vset(args.x[sum / kVecs].sums[g + group]), acc[sum]);
  }
}

template <int kBits, int kTokens>
static void few_panel(const TileFewArgs& args, const TileExtents& e, int64_t panel) {
  constexpr int kSums = kTokens * kVecs;
  constexpr int kGroups = kSums == 1 ? 4 : kSums == 2 ? 2 : 1;
  const uint8_t* p = args.w.tiles + panel * e.panel_bytes;
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const float*>(args.x[t].values);
  Vec acc[kSums];
  MF_UNROLL
  for (int i = 0; i < kSums; ++i) acc[i] = vset(0.0f);
  int64_t g = 0;
  for (; g + kGroups <= e.groups; g += kGroups, p += kGroups * e.group_bytes) {
    few_groups<kBits, kTokens, kGroups>(args, e, p, x, g, acc);
  }
  for (; g < e.groups; ++g, p += e.group_bytes) {
    few_groups<kBits, kTokens, 1>(args, e, p, x, g, acc);
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

#include "backend/cpu/kernels/tiles_few-inl.h"

static void f32_prepare(const float* x, int64_t cols, int64_t group_size, void* values, float*,
                        float* sums) {
  __builtin_memcpy(values, x, static_cast<uint64_t>(cols) * sizeof(float));
  for (int64_t k = 0; k < cols; k += group_size, ++sums) {
    float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t i = 0; i < group_size; i += 4) {
      for (int64_t j = 0; j < 4; ++j) four[j] += x[k + i + j];
    }
    *sums = (four[0] + four[1]) + (four[2] + four[3]);
  }
}

constexpr TileKernels make_f32_tiles(const char* name) {
  return {
      name,   4, kChunkCols, kBlockTokens, f32_prepare, few<DotPanels>, multiply_many<DotBlocks>,
      nullptr};
}
