// Int8 and q16 kernels for any machine: portable C++, one product after the other.
#include "backend/cpu/kernels/block_tables.h"
#include "backend/cpu/kernels/tile_table.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace isa_int8_generic {
#include "backend/cpu/kernels/int8_quantize-inl.h"
//
#include "backend/cpu/kernels/q16_quantize-inl.h"
//
#include "backend/cpu/kernels/block_lanes_generic-inl.h"
//
#include "backend/cpu/kernels/block_rows-inl.h"

template <class Rows>
constexpr void (*kOneToken)(const TileFewArgs&) = nullptr;
template <class Rows>
constexpr void (*kOneTokenUnits)(const TileFewArgs&) = nullptr;

#include "backend/cpu/kernels/block_table-inl.h"
//
#include "backend/cpu/kernels/vec_generic-inl.h"
//
#include "backend/cpu/kernels/fill_args-inl.h"

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

/// One token's activations of one group; of q16 a scale and a sum for each unit of it.
struct GroupOfToken {
  int16_t codes[kTileGroupMax];
  float scales[2];
  float sums[2];
};

/// A group of a panel's rows: its codes and what they are multiplied by.
struct GroupOfRows {
  int16_t codes[kTilePanelRows][kTileGroupMax];
  float scales[kTilePanelRows];
  float biases[kTilePanelRows];
};

/// Some columns of a panel of blocks.
struct FilledPanel {
  uint8_t lines[kBlockFillCols / 4][64];
  float scales[kBlockFillCols / 16][kTilePanelRows];
  float biases[kBlockFillCols / 16][kTilePanelRows];
};

/// Group `g` of the panel of blocks that begins at `rows`; the columns around it are filled when
/// the first of them is asked for.
static void load_filled(const TileMatrix& w, const uint8_t* rows, int64_t g, FilledPanel& filled,
                        GroupOfRows& to) {
  const int64_t col = g * w.group_size;
  const int64_t at = col % kBlockFillCols;
  if (at == 0) {
    const int64_t left = w.cols - col;
    const int64_t cols = left < kBlockFillCols ? left : kBlockFillCols;
    w.block->fill(fill_args(w, rows, col, cols, filled.lines[0], filled.scales[0], filled.biases[0],
                            kTilePanelRows));
  }
  TileMatrix lines = w;
  lines.bits = 8;
  unpack_group(filled.lines[at / 4], lines, to.codes);
  for (int64_t r = 0; r < kTilePanelRows; ++r) {
    to.scales[r] = filled.scales[at / w.group_size][r] * w.outer_scale;
    to.biases[r] = filled.biases[at / w.group_size][r] * w.outer_scale;
  }
}

/// The group of a panel of tiles that begins at `p`.
static void load_tile(const TileMatrix& w, const uint8_t* p, GroupOfRows& to) {
  const int64_t code_bytes = kTilePanelRows * w.group_size * w.bits / 8;
  const int64_t param_bytes = kTilePanelRows * (w.type == ElementType::kF32 ? 4 : 2);
  unpack_group(p, w, to.codes);
  for (int64_t r = 0; r < kTilePanelRows; ++r) {
    to.scales[r] = element(p + code_bytes, r, w.type);
    to.biases[r] = element(p + code_bytes + param_bytes, r, w.type);
  }
}

/// The sums of some tokens and a panel's rows, from activations of int8.
struct Int8Sums {
  static constexpr int64_t kValueBytes = 1;
  float acc[kBlockTokens][kTilePanelRows];

  static int64_t unit_cols(int64_t group_size) { return group_size; }
  static int64_t kept(int64_t group_size) { return group_size < kChunk ? group_size : kChunk; }
  static int16_t value(const uint8_t* chunk, int64_t i) { return static_cast<int8_t>(chunk[i]); }
  void clear() { __builtin_memset(acc, 0, sizeof(acc)); }
  void add(int64_t token, int64_t /*unit*/, int64_t /*unit_cols*/, const GroupOfRows& rows,
           int64_t row, int32_t dot, float scale, float sum) {
    float& to = acc[token][row];
    to = __builtin_fmaf(rows.scales[row] * scale, static_cast<float>(dot), to);
    to = __builtin_fmaf(rows.biases[row], sum, to);
  }
  void end() {}
};

/// The same of q16.
struct UnitSums {
  static constexpr int64_t kValueBytes = 2;
  float acc[kBlockTokens][kTilePanelRows];
  float splits[kBlockTokens][kTilePanelRows];
  float parts[kBlockTokens][kTilePanelRows];

  static int64_t unit_cols(int64_t group_size) {
    return group_size < kUnitBlock ? group_size : kUnitBlock;
  }
  static int64_t kept(int64_t) { return kUnitChunk; }
  static int16_t value(const uint8_t* chunk, int64_t i) {
    return static_cast<int16_t>(static_cast<int8_t>(chunk[i]) * 256 +
                                static_cast<int8_t>(chunk[kUnitChunk + i]));
  }
  void clear() {
    __builtin_memset(acc, 0, sizeof(acc));
    __builtin_memset(splits, 0, sizeof(splits));
    __builtin_memset(parts, 0, sizeof(parts));
  }
  void add(int64_t token, int64_t unit, int64_t unit_cols, const GroupOfRows& rows, int64_t row,
           int32_t dot, float scale, float sum) {
    float& part = parts[token][row];
    float& split = splits[token][row];
    part = __builtin_fmaf(rows.biases[row], sum, part);
    part = __builtin_fmaf(rows.scales[row], static_cast<float>(dot), part);
    const int64_t end = (unit + 1) * unit_cols;
    if (end % kUnitBlock != 0) return;
    split = __builtin_fmaf(scale, part, split);
    part = 0.0f;
    if (end % (kUnitBlock * kUnitSplitBlocks) != 0) return;
    acc[token][row] += split;
    split = 0.0f;
  }
  void end() {
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      for (int64_t r = 0; r < kTilePanelRows; ++r) acc[t][r] += splits[t][r];
    }
  }
};

/// fn(group, token, x) gives the activations.
template <class Sums, class Fn>
static void panel_of(const TileMatrix& w, int64_t panel, int64_t tokens, Sums& sums, Fn&& fn) {
  const int64_t groups = w.cols / w.group_size;
  const int64_t code_bytes = kTilePanelRows * w.group_size * w.bits / 8;
  const int64_t param_bytes = kTilePanelRows * (w.type == ElementType::kF32 ? 4 : 2);
  const int64_t group_bytes = code_bytes + 2 * param_bytes;
  const int64_t unit_cols = Sums::unit_cols(w.group_size);
  const int64_t units = w.group_size / unit_cols;
  FilledPanel filled;
  GroupOfRows rows;
  GroupOfToken x;
  sums.clear();
  for (int64_t g = 0; g < groups; ++g) {
    if (w.block != nullptr) {
      const int64_t row_bytes = w.cols / w.block->elements * w.block->bytes;
      load_filled(w, w.tiles + panel * kTilePanelRows * row_bytes, g, filled, rows);
    } else {
      load_tile(w, w.tiles + (panel * groups + g) * group_bytes, rows);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      fn(g, t, x);
      for (int64_t u = 0; u < units; ++u) {
        for (int64_t r = 0; r < kTilePanelRows; ++r) {
          const int32_t sum =
              dot(rows.codes[r] + u * unit_cols, x.codes + u * unit_cols, unit_cols);
          sums.add(t, g * units + u, unit_cols, rows, r, sum, x.scales[u], x.sums[u]);
        }
      }
    }
  }
  sums.end();
}

template <class Sums>
static void few(const TileFewArgs& args) {
  Sums sums;
  const int64_t size = args.w.group_size;
  const int64_t kept = Sums::kept(size);
  const int64_t units = size / Sums::unit_cols(size);
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    panel_of(args.w, panel, args.tokens, sums, [&](int64_t g, int64_t t, GroupOfToken& x) {
      const auto* values = static_cast<const uint8_t*>(args.x[t].values);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t chunk = (g * size + i) / kept;
        x.codes[i] = Sums::value(values + chunk * kept * Sums::kValueBytes, (g * size + i) % kept);
      }
      for (int64_t u = 0; u < units; ++u) {
        x.scales[u] = args.x[t].scales[g * units + u];
        x.sums[u] = args.x[t].sums[g * units + u];
      }
    });
    for (int64_t t = 0; t < args.tokens; ++t) {
      __builtin_memcpy(args.out[t] + panel * kTilePanelRows - args.out_row, sums.acc[t],
                       sizeof(sums.acc[t]));
    }
  }
}

template <class Sums>
static void many(const TileManyArgs& args) {
  Sums sums;
  const int64_t size = args.w.group_size;
  const int64_t kept = Sums::kept(size);
  const int64_t units = size / Sums::unit_cols(size);
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    float* const* out = args.out;
    for (int64_t b = 0; b < args.blocks; ++b) {
      const TileBlock& block = args.x[b];
      panel_of(args.w, panel, block.tokens, sums, [&](int64_t g, int64_t t, GroupOfToken& x) {
        const auto* values = static_cast<const uint8_t*>(block.values);
        for (int64_t i = 0; i < size; ++i) {
          const int64_t chunk = (g * size + i) / kept * block.tokens + t;
          x.codes[i] =
              Sums::value(values + chunk * kept * Sums::kValueBytes, (g * size + i) % kept);
        }
        for (int64_t u = 0; u < units; ++u) {
          x.scales[u] = block.scales[(g * units + u) * block.tokens + t];
          x.sums[u] = block.sums[(g * units + u) * block.tokens + t];
        }
      });
      for (int64_t t = 0; t < block.tokens; ++t) {
        __builtin_memcpy(out[t] + panel * kTilePanelRows - args.out_row, sums.acc[t],
                         sizeof(sums.acc[t]));
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
                                       isa_int8_generic::few<isa_int8_generic::Int8Sums>,
                                       isa_int8_generic::many<isa_int8_generic::Int8Sums>,
                                       &isa_int8_generic::kBlockKernels};
const TileKernels kGenericQ16Tiles = {"generic",
                                      2,
                                      isa_int8_generic::kUnitChunk,
                                      isa_int8_generic::kBlockTokens,
                                      isa_int8_generic::q16_prepare,
                                      isa_int8_generic::few<isa_int8_generic::UnitSums>,
                                      isa_int8_generic::many<isa_int8_generic::UnitSums>,
                                      &isa_int8_generic::kBlockKernels};

}  // namespace moeflux::cpu
