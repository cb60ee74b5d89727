// Tiles and blocks times activations of 16 bits: the machinery of int8_tiles-inl.h with two dots
// for each line, of the 256s and of the ones, and the floats of backend/unit_text.h.
// Included inside the namespace of one ISA, after int8_tiles-inl.h.
//
// A unit is the columns of one scale, 64 at most: a scale of 128 columns serves two units.

#include "backend/cpu/kernels/q16_quantize-inl.h"

constexpr int kUnitBlockLines = kUnitBlock / kLineCols;
constexpr int kUnitChunkLines = kUnitChunk / kLineCols;
constexpr int kUnitChunkBytes = 2 * kUnitChunk;

/// 256 times as much.
MF_INLINE IVec times_256(IVec v) { return same_bits<IVec>(same_bits<Ints>(v) << 8); }

/// Where the activations of a line's columns are, the 256s; their ones are kUnitChunk bytes behind.
MF_INLINE const uint8_t* unit_line(const uint8_t* values, int64_t line) {
  return values + line / kUnitChunkLines * kUnitChunkBytes + line % kUnitChunkLines * kLineCols;
}

// --- Many tokens ---

/// The floats of a run of one block of tokens, which is a split or the last columns.
template <int kSums>
struct UnitSums {
  alignas(64) float split[kSums * kVecLanes];
  alignas(64) float part[kSums * kVecLanes];  // of the scales of a block so far

  MF_INLINE void clear() { __builtin_memset(split, 0, sizeof(split)); }
  /// Adds unit `unit` of the run's.
  template <int kAll>
  MF_INLINE void add(int64_t unit, int64_t units_of_block, const Dot* dots, const FVec* scales,
                     const FVec* biases, const float* x_scales, const float* x_sums) {
    const bool begins = unit % units_of_block == 0;
    const bool ends = (unit + 1) % units_of_block == 0;
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const FVec before = begins ? fzero() : fload(part + i * kVecLanes);
      const FVec sum = ffma(scales[i % kAll], fconvert(dots[i]),
                            ffma(biases[i % kAll], fbroadcast(x_sums + i / kAll), before));
      if (ends) {
        float* to = split + i * kVecLanes;
        fstore(to, ffma(fbroadcast(x_scales + i / kAll), sum, fload(to)));
      } else {
        fstore(part + i * kVecLanes, sum);
      }
    }
  }
  MF_INLINE void add_to(float* acc) const {
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) {
      fstore(acc + i * kVecLanes, fload(acc + i * kVecLanes) + fload(split + i * kVecLanes));
    }
  }
};

/// Adds the products of half the bytes of a unit: `values` and `codes` are where they begin.
template <int kBits, int kPanels, int kTokens>
MF_INLINE void unit_half_dots(const uint8_t* values, const uint8_t* codes, int64_t next_panel,
                              int64_t chunks, Dot* dots) {
  constexpr int kAll = kPanels * kVecs;
  constexpr bool kTight = kTokens * kAll > 16;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    MF_UNROLL
    for (int line = 0; line < kUnitChunkLines; ++line, codes += kLine) {
      Dot w[kAll];
      MF_UNROLL
      for (int v = 0; v < kAll; ++v) {
        w[v] = dload(codes + (v < kVecs ? 0 : next_panel) + v % kVecs * kVecLanes * 4);
      }
      MF_UNROLL
      for (int i = 0; i < kTokens * kAll; ++i) {
        const Dot value = dbroadcast(values + i / kAll * kUnitChunkBytes + line * kLineCols);
        Dot& dot = dots[i];
        dot = kTight ? idot_tight<kBits>(dot, w[i % kAll], value)
                     : idot<kBits>(dot, w[i % kAll], value);
      }
    }
    values += kTokens * kUnitChunkBytes;
  }
}

/// Multiplies TileManyArgs' blocks: one set of accumulators takes the 256s, is multiplied, and
/// takes the ones. A run is a split.
struct UnitBlocks {
  static constexpr int kTokensMax = kBlockTokens;
  static constexpr int bits_of(int code_bits) { return code_bits < 8 ? 7 : 8; }
  static_assert(kRunCols == kUnitBlock * kUnitSplitBlocks);

  /// Not inlined: codes of four bits and of seven are multiplied alike, by one copy of this.
  template <int kBits, int kPanels, int kTokens>
  [[gnu::noinline]] static void multiply(TileRun& run, const TileBlock& x, int64_t group_size,
                                         int64_t group, int64_t groups, float* acc) {
    constexpr int kAll = kPanels * kVecs;
    const int64_t unit_cols = group_size < kUnitBlock ? group_size : kUnitBlock;
    const int64_t group_units = group_size / unit_cols;
    const int64_t chunks = unit_cols / kUnitChunk;
    const uint8_t* values =
        static_cast<const uint8_t*>(x.values) + group * group_size * 2 * kTokens;
    const float* x_scales = x.scales + group * group_units * kTokens;
    const float* x_sums = x.sums + group * group_units * kTokens;
    UnitSums<kTokens * kAll> sums;
    sums.clear();
    for (int64_t unit = 0; unit < groups * group_units; ++unit) {
      const int64_t g = unit / group_units;
      const uint8_t* codes =
          run.codes + g * run.group_stride + unit % group_units * kUnitBlockLines * kLine;
      Dot dots[kTokens * kAll];
      MF_UNROLL
      for (int i = 0; i < kTokens * kAll; ++i) dots[i] = dzero();
      unit_half_dots<kBits, kPanels, kTokens>(values, codes, run.next_panel, chunks, dots);
      MF_UNROLL
      for (int i = 0; i < kTokens * kAll; ++i) dots[i] = times_256(dots[i]);
      unit_half_dots<kBits, kPanels, kTokens>(values + kUnitChunk, codes, run.next_panel, chunks,
                                              dots);
      values += unit_cols * 2 * kTokens;
      if (unit % group_units == 0) ask_ahead<kPanels>(run);
      FVec scales[kAll];
      FVec biases[kAll];
      MF_UNROLL
      for (int v = 0; v < kAll; ++v) {
        scales[v] = fload(run.scales[g][0] + v * kVecLanes);
        biases[v] = fload(run.biases[g][0] + v * kVecLanes);
      }
      sums.template add<kAll>(unit, kUnitBlock / unit_cols, dots, scales, biases, x_scales, x_sums);
      x_scales += kTokens;
      x_sums += kTokens;
    }
    sums.add_to(acc);
  }
};

// --- Few tokens ---

/// The floats of some sums of a row, by unit of kLines lines.
template <int kSums>
struct UnitChains {
  FVec total[kSums];
  FVec split[kSums];
  FVec part[kSums];

  MF_INLINE void clear() {
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) total[i] = split[i] = part[i] = fzero();
  }
  template <int kLines>
  MF_INLINE void add(int64_t unit, const IVec* dots, const FVec* scales, const FVec* biases,
                     const TileToken* x) {
    constexpr int64_t kUnits = kUnitBlockLines / kLines;
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const FVec sum = ffma(biases[i % kVecs], fbroadcast(x[i / kVecs].sums + unit), part[i]);
      part[i] = ffma(scales[i % kVecs], fconvert(dots[i]), sum);
    }
    if (kUnits > 1 && (unit + 1) % kUnits != 0) return;
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) {
      split[i] = ffma(fbroadcast(x[i / kVecs].scales + unit), part[i], split[i]);
      part[i] = fzero();
    }
    if ((unit + 1) % (kUnits * kUnitSplitBlocks) == 0) end_split();
  }
  MF_INLINE void end_split() {
    MF_UNROLL
    for (int i = 0; i < kSums; ++i) {
      total[i] = total[i] + split[i];
      split[i] = fzero();
    }
  }
};

/// Sums of a unit of kLines lines by token and vector; x points to each token's unit. Stored lines
/// begin at `p`, of 4 bits two for each stored one; those from `ahead` on are asked for, if not
/// null.
template <int kBits, int kLines, int kTokens>
MF_INLINE void unit_dots(const uint8_t* p, const uint8_t* ahead, const uint8_t* const* x,
                         IVec* dots) {
  constexpr int kSums = kTokens * kVecs;
  // A lone token needs more chains of dependent instructions than its two sums.
  constexpr int kChains = kSums == 1 ? 2 : 1;
  constexpr int kStored = kBits == 4 ? kUnitChunkLines / 2 : kUnitChunkLines;
  IVec high[kChains * kSums];
  IVec low[kChains * kSums];
  MF_UNROLL
  for (int i = 0; i < kChains * kSums; ++i) high[i] = low[i] = izero();
  for (int first = 0; first < kLines; first += kUnitChunkLines) {
    if (ahead != nullptr) {
      MF_UNROLL
      for (int i = 0; i < kStored; ++i) prefetch_far(ahead + i * kLine);
      ahead += kStored * kLine;
    }
    IVec w[kUnitChunkLines * kVecs];
    MF_UNROLL
    for (int i = 0; i < kStored * kVecs; ++i) {
      const IVec codes = iload(p + i * kIntLanes * 4);
      if constexpr (kBits == 4) {
        const int even = i / kVecs * 2 * kVecs + i % kVecs;
        w[even] = ilow_nibbles(codes);
        w[even + kVecs] = ihigh_nibbles(codes);
      } else {
        w[i] = codes;
      }
    }
    p += kStored * kLine;
    MF_UNROLL
    for (int i = 0; i < kUnitChunkLines * kSums; ++i) {
      const int line = i / kSums;
      const int to = line % kChains * kSums + i % kSums;
      const uint8_t* from = unit_line(x[i % kSums / kVecs], first + line);
      const IVec& codes = w[line * kVecs + i % kVecs];
      high[to] = idot<kBits>(high[to], codes, ibroadcast(from));
      low[to] = idot<kBits>(low[to], codes, ibroadcast(from + kUnitChunk));
    }
  }
  MF_UNROLL
  for (int i = 0; i < kSums; ++i) {
    if constexpr (kChains == 2) {
      high[i] = iadd(high[i], high[kSums + i]);
      low[i] = iadd(low[i], low[kSums + i]);
    }
    dots[i] = iadd(times_256(high[i]), low[i]);
  }
}

/// x of unit `unit` of `cols` columns each.
template <int kTokens>
MF_INLINE void point_to_unit(const TileFewArgs& args, int64_t col, const uint8_t** x) {
  MF_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    x[t] = static_cast<const uint8_t*>(args.x[t].values) + 2 * col;
  }
}

/// A panel of tiles, whose scales are of whole blocks of columns.
struct UnitPanels {
  template <int kBits, int kTokens>
  static void multiply(const TileFewArgs& args, const TileExtents& e, int64_t panel) {
    constexpr int kSums = kTokens * kVecs;
    constexpr int64_t kUnitBytes = kUnitBlockLines * kLine * (kBits == 4 ? 1 : 2) / 2;
    const uint8_t* p = args.w.tiles + panel * e.panel_bytes;
    UnitChains<kSums> sums;
    sums.clear();
    int64_t unit = 0;
    for (int64_t g = 0; g < e.groups; ++g) {
      FVec scales[kVecs];
      FVec biases[kVecs];
      MF_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        const uint8_t* lane = p + e.code_bytes + v * e.param_bytes / kVecs;
        scales[v] = fload_element(lane, args.w.type);
        biases[v] = fload_element(lane + e.param_bytes, args.w.type);
      }
      const uint8_t* ahead = far_ahead(args, e, p);
      prefetch_far(ahead + e.code_bytes);
      for (int64_t at = 0; at < e.code_bytes; at += kUnitBytes, ++unit) {
        const uint8_t* x[kTokens];
        point_to_unit<kTokens>(args, unit * kUnitBlock, x);
        IVec dots[kSums];
        unit_dots<kBits, kUnitBlockLines, kTokens>(p + at, ahead + at, x, dots);
        sums.template add<kUnitBlockLines>(unit, dots, scales, biases, args.x);
      }
      p += e.group_bytes;
    }
    sums.end_split();
    store_panel<kTokens>(args, panel, sums.total);
  }
};

/// Two tokens and more and rows of blocks, filled some columns at a time. A scale serves one unit
/// or two.
template <int kBits, int kLines, int kTokens>
static void few_unit_blocks_of(const TileFewArgs& args) {
  constexpr int64_t kUnitCols = kLines * kLineCols;
  const int scale_shift = args.w.block->group_size > kUnitCols ? 1 : 0;
  constexpr int kSums = kTokens * kVecs;
  const TileExtents e = tile_extents(args.w);
  FilledPanel filled;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* rows = args.w.tiles + panel * e.panel_bytes;
    UnitChains<kSums> sums;
    sums.clear();
    for (int64_t col = 0; col < args.w.cols; col += kBlockFillCols) {
      const int64_t left = args.w.cols - col;
      const int64_t cols = left < kBlockFillCols ? left : kBlockFillCols;
      ask_for_next_panel(args, e, panel, col, cols);
      fill_panel(args.w, rows, col, cols, filled.lines[0], filled.scales[0], filled.biases[0],
                 kTilePanelRows);
      for (int64_t at = 0; at < cols / kUnitCols; ++at) {
        const uint8_t* x[kTokens];
        point_to_unit<kTokens>(args, col + at * kUnitCols, x);
        IVec dots[kSums];
        unit_dots<kBits, kLines, kTokens>(filled.lines[at * kLines], nullptr, x, dots);
        FVec scales[kVecs];
        FVec biases[kVecs];
        MF_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          scales[v] = fload(filled.scales[at >> scale_shift] + v * kVecLanes);
          biases[v] = fload(filled.biases[at >> scale_shift] + v * kVecLanes);
        }
        sums.template add<kLines>(col / kUnitCols + at, dots, scales, biases, args.x);
      }
    }
    sums.end_split();
    store_panel<kTokens>(args, panel, sums.total);
  }
}

template <int kBits, int kLines>
static void few_unit_blocks(const TileFewArgs& args) {
  switch (args.tokens) {
    case 2:
      return few_unit_blocks_of<kBits, kLines, 2>(args);
    case 3:
      return few_unit_blocks_of<kBits, kLines, 3>(args);
    default:
      return few_unit_blocks_of<kBits, kLines, 4>(args);
  }
}

template <int kBits>
static void few_unit_blocks_by_group(const TileFewArgs& args) {
  switch (args.w.block->group_size) {
    case 16:
      return few_unit_blocks<kBits, 4>(args);
    case 32:
      return few_unit_blocks<kBits, 8>(args);
    default:
      return few_unit_blocks<kBits, 16>(args);
  }
}
