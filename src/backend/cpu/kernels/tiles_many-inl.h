// Goes through panels, runs of their columns and blocks of tokens. Included after tiles_run-inl.h
// by what has a struct Blocks. Blocks::bits_of(code_bits) is the kBits for blocks of such codes.
// Blocks::multiply<kBits, kPanels, kTokens>() adds a run's products of one block of tokens to acc
// [token][panel][row], of up to Blocks::kTokensMax tokens.

template <class Blocks, int kBits, int kPanels, int kTokens>
static void many_block_of(TileRun& run, const TileBlock& x, int64_t group_size, int64_t group,
                          int64_t groups, float* acc) {
  if constexpr (kTokens > 1) {
    if (x.tokens < kTokens) {
      return many_block_of<Blocks, kBits, kPanels, kTokens - 1>(run, x, group_size, group, groups,
                                                                acc);
    }
  }
  Blocks::template multiply<kBits, kPanels, kTokens>(run, x, group_size, group, groups, acc);
}

/// kPanels panels from `panel` on; those at `after`, if not null, follow.
template <class Blocks, int kBits, int kPanels>
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
      const uint8_t* panel_tiles = tiles + p * e.panel_bytes;
      if (kTakesBlocks && args.w.block != nullptr) {
        fill_run(run, args.w, panel_tiles, p, group, groups);
      } else {
        unpack_run<kBits>(run, args.w, e, panel_tiles + group * e.group_bytes, p, groups);
      }
    }
    plan_ahead(run, e, tiles, after, group, groups, run_groups, args.blocks);
    float* block_acc = acc;
    for (int64_t b = 0; b < args.blocks; ++b) {
      many_block_of<Blocks, kBits, kPanels, Blocks::kTokensMax>(run, args.x[b], args.w.group_size,
                                                                group, groups, block_acc);
      block_acc += args.x[b].tokens * kPanels * kTilePanelRows;
    }
  }
  const int64_t row = panel * kTilePanelRows - args.out_row;
  for (int64_t t = 0; t < tokens; ++t) {
    __builtin_memcpy(args.out[t] + row, acc + t * kPanels * kTilePanelRows,
                     kPanels * kTilePanelRows * sizeof(float));
  }
}

template <class Blocks, int kBits>
static void many_of(const TileManyArgs& args) {
  const TileExtents e = tile_extents(args.w);
  int64_t panel = args.panel_begin;
  const auto after = [&](int64_t next) {
    return next < args.panel_end ? args.w.tiles + next * e.panel_bytes : args.next;
  };
  for (; panel + kPairPanels <= args.panel_end; panel += kPairPanels) {
    many_panels<Blocks, kBits, kPairPanels>(args, e, panel, after(panel + kPairPanels));
  }
  for (; panel < args.panel_end; ++panel)
    many_panels<Blocks, kBits, 1>(args, e, panel, after(panel + 1));
}

template <class Blocks, int kCodeBits>
static void many_of_blocks(const TileManyArgs& args) {
  if constexpr (kCodeBits < 8) {
    if (args.w.block->code_bits > kCodeBits) return many_of_blocks<Blocks, kCodeBits + 1>(args);
  }
  many_of<Blocks, Blocks::bits_of(kCodeBits)>(args);
}

template <class Blocks>
static void multiply_many(const TileManyArgs& args) {
  if constexpr (kTakesBlocks) {
    if (args.w.block != nullptr) return many_of_blocks<Blocks, 4>(args);
  }
  if (args.w.bits == 4) {
    many_of<Blocks, 4>(args);
  } else {
    many_of<Blocks, 8>(args);
  }
}
