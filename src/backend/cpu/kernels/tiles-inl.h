// Tiled weights times many tokens, for activations of either kind.
// Included inside a namespace of one ISA, after what defines the arithmetic: a vector type FVec of
// kVecLanes f32 with fzero, fload, fstore, fbroadcast, ffma and fload_element; a vector type Dot of
// as many 32-bit accumulators with dzero, dload, dbroadcast, dmultiply and dfold; kLineCols,
// the columns that one unpacked line covers; unpack_line<kBits>; kBlockTokens and kPairPanels.
//
// A line is 64 bytes: a 32-bit lane for each of the sixteen rows of a panel. Weights of one or two
// panels are unpacked to lines once, a run of columns that fits the L1 cache beside its
// activations; then all tokens are multiplied by them, a block whose sums fit the registers at a
// time.

constexpr int kVecs = static_cast<int>(kTilePanelRows) / kVecLanes;  // of one panel
constexpr int kLine = 64;
constexpr int kRunLines = 128;
constexpr int kRunCols = kRunLines * kLineCols;
constexpr int kRunGroupsMax = kRunCols / 32;
constexpr int kChunkLines = 8;  // what a token keeps together in a block: 32 bytes of activations
constexpr int kChunkCols = kChunkLines * kLineCols;
constexpr int kChunkBytes = 32;

struct TileExtents {
  int64_t groups;
  int64_t code_bytes;   // of one group of a panel
  int64_t param_bytes;  // of its scales, and of its biases
  int64_t group_bytes;
  int64_t panel_bytes;
};

MF_INLINE TileExtents tile_extents(const TileMatrix& w) {
  TileExtents e;
  e.groups = w.cols / w.group_size;
  e.code_bytes = kTilePanelRows * w.group_size * w.bits / 8;
  e.param_bytes = kTilePanelRows * (w.type == ElementType::kF32 ? 4 : 2);
  e.group_bytes = e.code_bytes + 2 * e.param_bytes;
  e.panel_bytes = e.groups * e.group_bytes;
  return e;
}

/// One run of groups of a pair of panels.
struct TileRun {
  const uint8_t* codes;  // lines of the first panel
  int64_t next_panel;    // bytes from them to those of the second
  int64_t group_stride;  // bytes between groups
  // What will be read next, of each panel: asked for bit by bit while this run is multiplied, in
  // steps of one group and one block.
  const uint8_t* ahead;
  const uint8_t* ahead_end;
  int64_t ahead_next_panel;
  int64_t ahead_step;  // bytes of each panel
  alignas(64) float scales[kRunGroupsMax][kPairPanels][kTilePanelRows];
  alignas(64) float biases[kRunGroupsMax][kPairPanels][kTilePanelRows];
  alignas(64) uint8_t unpacked[kPairPanels][kRunLines][kLine];
};

template <int kBits>
static void unpack_run(TileRun& run, const TileMatrix& w, const TileExtents& e,
                       const uint8_t* tiles, int panel, int64_t groups) {
  constexpr int kLines = 32 / (kBits * kLineCols);  // that one stored line unpacks to
  uint8_t(*to)[kLine] = run.unpacked[panel];
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* p = tiles + g * e.group_bytes;
    if constexpr (kLines > 1) {
      for (int64_t i = 0; i < e.code_bytes; i += kLine, to += kLines) {
        unpack_line<kBits>(p + i, to[0]);
      }
    }
    p += e.code_bytes;
    for (int v = 0; v < kVecs; ++v) {
      const int64_t lane = v * e.param_bytes / kVecs;
      fstore(run.scales[g][panel] + v * kVecLanes, fload_element(p + lane, w.type));
      fstore(run.biases[g][panel] + v * kVecLanes, fload_element(p + e.param_bytes + lane, w.type));
    }
  }
  if constexpr (kLines > 1) {
    run.codes = run.unpacked[0][0];
    run.next_panel = kRunLines * kLine;
    run.group_stride = w.group_size / kLineCols * kLine;
  } else {
    run.codes = tiles - panel * e.panel_bytes;
    run.next_panel = e.panel_bytes;
    run.group_stride = e.group_bytes;
  }
}

/// Adds a run's products to acc [token][panel][row]. Loops over accumulators are flat, and a
/// chunk's lines are unrolled: else g++ keeps accumulators in memory.
template <int kBits, int kPanels, int kTokens>
static void many_block(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                       int64_t groups, float* acc) {
  constexpr int kAll = kPanels * kVecs;
  constexpr bool kTight = kTokens * kAll > 16;
  const uint8_t* values =
      static_cast<const uint8_t*>(x.values) + group * group_size / kLineCols * 4 * kTokens;
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* codes = run.codes + g * run.group_stride;
    Dot dots[kTokens * kAll];
    MF_UNROLL
    for (int i = 0; i < kTokens * kAll; ++i) dots[i] = dzero();
    for (int64_t col = 0; col < group_size; col += kChunkCols) {
      MF_UNROLL
      for (int line = 0; line < kChunkLines; ++line, codes += kLine) {
        Dot w[kAll];
        MF_UNROLL
        for (int v = 0; v < kAll; ++v) {
          w[v] = dload(codes + (v < kVecs ? 0 : run.next_panel) + v % kVecs * kVecLanes * 4);
        }
        MF_UNROLL
        for (int i = 0; i < kTokens * kAll; ++i) {
          const Dot value = dbroadcast(values + i / kAll * kChunkBytes + line * 4);
          dots[i] = dmultiply<kBits, kTight>(dots[i], w[i % kAll], value);
        }
      }
      values += kTokens * kChunkBytes;
    }
    const uint8_t* const ahead_end = run.ahead + run.ahead_step;
    for (; run.ahead < ahead_end && run.ahead < run.ahead_end; run.ahead += kLine) {
      for (int p = 0; p < kPanels; ++p) {
        __builtin_prefetch(run.ahead + p * run.ahead_next_panel, 0, 2);
      }
    }
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
      const FVec sum = dfold(fload(to), dots[i], scales[i % kAll], x_scales + i / kAll);
      fstore(to, ffma(biases[i % kAll], fbroadcast(x_sums + i / kAll), sum));
    }
  }
}

template <int kBits, int kPanels, int kTokens>
static void many_block_of(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                          int64_t groups, float* acc) {
  if constexpr (kTokens > 1) {
    if (x.tokens < kTokens) {
      return many_block_of<kBits, kPanels, kTokens - 1>(run, x, group_size, group, groups, acc);
    }
  }
  many_block<kBits, kPanels, kTokens>(run, x, group_size, group, groups, acc);
}

/// Plans what to ask for while groups [group, group + groups) of the panels at `tiles` are
/// multiplied: their next run, or the first one of the panels at `after`.
MF_INLINE void plan_ahead(TileRun& run, const TileExtents& e, const uint8_t* tiles,
                          const uint8_t* after, int64_t group, int64_t groups, int64_t run_groups,
                          int64_t blocks) {
  const bool is_last = group + groups == e.groups;
  const int64_t from = is_last ? 0 : group + groups;
  const int64_t count = e.groups - from < run_groups ? e.groups - from : run_groups;
  run.ahead = is_last ? after : tiles + from * e.group_bytes;
  run.ahead_end = run.ahead == nullptr ? nullptr : run.ahead + count * e.group_bytes;
  run.ahead_next_panel = e.panel_bytes;
  run.ahead_step = (count * e.group_bytes / (groups * blocks) / kLine + 1) * kLine;
}

/// kPanels panels from `panel` on; those at `after`, if not null, follow.
template <int kBits, int kPanels>
static void many_panels(const TileManyArgs& args, const TileExtents& e, int64_t panel,
                        const uint8_t* after) {
  alignas(64) float acc[kTileManyTokens * kPanels * kTilePanelRows];
  int64_t tokens = 0;
  for (int64_t b = 0; b < args.blocks; ++b) tokens += args.x[b].tokens;
  __builtin_memset(acc, 0,
                   static_cast<uint64_t>(tokens * kPanels * kTilePanelRows) * sizeof(float));
  TileRun run;
  const uint8_t* tiles = args.w.tiles + panel * e.panel_bytes;
  const int64_t run_groups = kRunCols / args.w.group_size;
  for (int64_t group = 0; group < e.groups; group += run_groups) {
    const int64_t groups = e.groups - group < run_groups ? e.groups - group : run_groups;
    for (int p = 0; p < kPanels; ++p) {
      unpack_run<kBits>(run, args.w, e, tiles + p * e.panel_bytes + group * e.group_bytes, p,
                        groups);
    }
    plan_ahead(run, e, tiles, after, group, groups, run_groups, args.blocks);
    float* block_acc = acc;
    for (int64_t b = 0; b < args.blocks; ++b) {
      many_block_of<kBits, kPanels, kBlockTokens>(run, args.x[b], args.w.group_size, group, groups,
                                                  block_acc);
      block_acc += args.x[b].tokens * kPanels * kTilePanelRows;
    }
  }
  const int64_t row = panel * kTilePanelRows - args.out_row;
  for (int64_t t = 0; t < tokens; ++t) {
    __builtin_memcpy(args.out[t] + row, acc + t * kPanels * kTilePanelRows,
                     kPanels * kTilePanelRows * sizeof(float));
  }
}

template <int kBits>
static void many_of(const TileManyArgs& args) {
  const TileExtents e = tile_extents(args.w);
  int64_t panel = args.panel_begin;
  const auto after = [&](int64_t next) {
    return next < args.panel_end ? args.w.tiles + next * e.panel_bytes : args.next;
  };
  for (; panel + kPairPanels <= args.panel_end; panel += kPairPanels) {
    many_panels<kBits, kPairPanels>(args, e, panel, after(panel + kPairPanels));
  }
  for (; panel < args.panel_end; ++panel) many_panels<kBits, 1>(args, e, panel, after(panel + 1));
}

static void many(const TileManyArgs& args) {
  if (args.w.bits == 4) {
    many_of<4>(args);
  } else {
    many_of<8>(args);
  }
}

// --- Few tokens: what both kinds share ---

// Hardware prefetchers stop at page borders and need a few lines to start: lines far ahead are
// asked for explicitly, past the end of a run of panels too, as the thread's next run begins there.
constexpr int64_t kPrefetchBytes = 8192;
MF_INLINE void prefetch_ahead(const uint8_t* p) { __builtin_prefetch(p + kPrefetchBytes, 0, 2); }

/// Stores acc [token][vec] as rows of `panel`.
template <int kTokens>
MF_INLINE void store_panel(const TileFewArgs& args, int64_t panel, const FVec* acc) {
  const int64_t row = panel * kTilePanelRows - args.out_row;
  MF_UNROLL
  for (int i = 0; i < kTokens * kVecs; ++i) {
    fstore(args.out[i / kVecs] + row + i % kVecs * kVecLanes, acc[i]);
  }
}
