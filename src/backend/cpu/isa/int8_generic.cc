// Int8 kernels for any machine: portable C++, one product after the other.
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_generic {
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/vec_generic-inl.h"

constexpr int64_t kChunk = 32;
constexpr int64_t kBlockTokens = 8;

static float element(const uint8_t* data, int64_t i, ElementType type) {
  float value[1];
  const uint8_t* p = data + i * (type == ElementType::kF32 ? 4 : 2);
  if (type == ElementType::kF32) {
    __builtin_memcpy(value, p, 4);
  } else {
    vstore_partial(
        value, type == ElementType::kBf16 ? vload_bf16_partial(p, 1) : vload_f16_partial(p, 1), 1);
  }
  return value[0];
}

/// Codes of one group of a panel by row.
static void unpack_group(const uint8_t* line, const TileMatrix& w, int16_t (*to)[kTileGroupMax]) {
  const int64_t line_cols = 32 / w.bits;
  for (int64_t col = 0; col < w.group_size; col += line_cols, line += 64) {
    for (int64_t r = 0; r < kTilePanelRows; ++r) {
      for (int64_t b = 0; b < 4; ++b) {
        const uint8_t byte = line[4 * r + b];
        if (w.bits == 8) {
          to[r][col + b] = byte;
        } else {
          to[r][col + b] = byte & 0x0f;
          to[r][col + 4 + b] = byte >> 4;
        }
      }
    }
  }
}

/// 16-bit factors: what compilers turn into multiply-and-add of pairs everywhere.
static int32_t dot(const int16_t* codes, const int16_t* x, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += codes[i] * x[i];
  return sum;
}

/// One token's activations of one group.
struct GroupOfToken {
  int16_t codes[kTileGroupMax];
  float scale;
  float sum;
};

/// fn(group, token) gives the activations; acc is [token][row].
template <class Fn>
static void panel_of(const TileMatrix& w, int64_t panel, int64_t tokens,
                     float (*acc)[kTilePanelRows], Fn&& fn) {
  const int64_t groups = w.cols / w.group_size;
  const int64_t code_bytes = kTilePanelRows * w.group_size * w.bits / 8;
  const int64_t param_bytes = kTilePanelRows * (w.type == ElementType::kF32 ? 4 : 2);
  const uint8_t* p = w.tiles + panel * groups * (code_bytes + 2 * param_bytes);
  int16_t codes[kTilePanelRows][kTileGroupMax];
  GroupOfToken x;
  for (int64_t t = 0; t < tokens; ++t) {
    for (float& sum : acc[t]) sum = 0.0f;
  }
  for (int64_t g = 0; g < groups; ++g, p += code_bytes + 2 * param_bytes) {
    unpack_group(p, w, codes);
    for (int64_t t = 0; t < tokens; ++t) {
      fn(g, t, x);
      for (int64_t r = 0; r < kTilePanelRows; ++r) {
        const float scale = element(p + code_bytes, r, w.type);
        const float bias = element(p + code_bytes + param_bytes, r, w.type);
        const auto sum = static_cast<float>(dot(codes[r], x.codes, w.group_size));
        acc[t][r] = __builtin_fmaf(scale * x.scale, sum, acc[t][r]);
        acc[t][r] = __builtin_fmaf(bias, x.sum, acc[t][r]);
      }
    }
  }
}

static void few(const TileFewArgs& args) {
  float acc[kTileFewTokens][kTilePanelRows];
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    panel_of(args.w, panel, args.tokens, acc, [&](int64_t g, int64_t t, GroupOfToken& x) {
      const int64_t size = args.w.group_size;
      const int8_t* codes = static_cast<const int8_t*>(args.x[t].values) + g * size;
      for (int64_t i = 0; i < size; ++i) x.codes[i] = codes[i];
      x.scale = args.x[t].scales[g];
      x.sum = args.x[t].sums[g];
    });
    for (int64_t t = 0; t < args.tokens; ++t) {
      __builtin_memcpy(args.out[t] + panel * kTilePanelRows - args.out_row, acc[t], sizeof(acc[t]));
    }
  }
}

static void many(const TileManyArgs& args) {
  float acc[kBlockTokens][kTilePanelRows];
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    float* const* out = args.out;
    for (int64_t b = 0; b < args.blocks; ++b) {
      const TileBlock& block = args.x[b];
      panel_of(args.w, panel, block.tokens, acc, [&](int64_t g, int64_t t, GroupOfToken& x) {
        const int8_t* values = static_cast<const int8_t*>(block.values);
        for (int64_t i = 0; i < args.w.group_size; ++i) {
          const int64_t chunk = (g * args.w.group_size + i) / kChunk;
          x.codes[i] = values[(chunk * block.tokens + t) * kChunk + i % kChunk];
        }
        x.scale = block.scales[g * block.tokens + t];
        x.sum = block.sums[g * block.tokens + t];
      });
      for (int64_t t = 0; t < block.tokens; ++t) {
        __builtin_memcpy(out[t] + panel * kTilePanelRows - args.out_row, acc[t], sizeof(acc[t]));
      }
      out += block.tokens;
    }
  }
}

}  // namespace isa_int8_generic

const TileKernels kGenericInt8Tiles = {"generic",
                                       1,
                                       isa_int8_generic::kChunk,
                                       isa_int8_generic::kBlockTokens,
                                       isa_int8_generic::int8_prepare,
                                       isa_int8_generic::few,
                                       isa_int8_generic::many};

}  // namespace moeflux::cpu
