// Few tokens and rows of blocks, for int8_tiles-inl.h. One token is multiplied by codes as they are
// unpacked, in registers. More tokens share codes that are filled into lines, some columns at a
// time.

/// The panel that is read after `panel`, or null.
MF_INLINE const uint8_t* next_panel(const TileFewArgs& args, const TileExtents& e, int64_t panel) {
  return panel + 1 < args.panel_end ? args.w.tiles + (panel + 1) * e.panel_bytes : args.next;
}

/// Asks for what lies as far behind the panel as columns [col, col + cols) of its rows take.
MF_INLINE void ask_for_next_panel(const TileFewArgs& args, const TileExtents& e, int64_t panel,
                                  int64_t col, int64_t cols) {
  const uint8_t* next = next_panel(args, e, panel);
  if (next == nullptr) return;
  const uint8_t* const end = next + e.panel_bytes * (col + cols) / args.w.cols;
  for (const uint8_t* p = next + e.panel_bytes * col / args.w.cols; p < end; p += kLine) {
    prefetch_far(p);
  }
}

// --- Two tokens and more ---

/// Some columns of a panel, filled.
struct FilledPanel {
  alignas(64) uint8_t lines[kBlockFillCols / kLineCols][kLine];
  alignas(64) float scales[kBlockFillCols / 16][kTilePanelRows];
  alignas(64) float biases[kBlockFillCols / 16][kTilePanelRows];
};

/// One group of `group_lines` lines, kPart of them unrolled at a time, added to acc [token][vec].
template <int kBits, int kPart, int kTokens>
MF_INLINE void few_filled_group(const TileFewArgs& args, const FilledPanel& panel,
                                int64_t group_lines, int64_t at, int64_t group, FVec* acc) {
  constexpr int kSums = kTokens * kVecs;
  using Dots = LineDots<kBits>;
  IVec sums[2 * kSums];
  MF_UNROLL
  for (int i = 0; i < 2 * kSums; ++i) sums[i] = izero();
  for (int64_t part = 0; part < group_lines; part += kPart) {
    MF_UNROLL
    for (int line = 0; line < kPart; ++line) {
      typename Dots::Line w[kVecs];
      MF_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        w[v] = Dots::line(iload(panel.lines[at * group_lines + part + line] + v * kIntLanes * 4));
      }
      MF_UNROLL
      for (int i = 0; i < kSums; ++i) {
        const auto* x = static_cast<const uint8_t*>(args.x[i / kVecs].values);
        const IVec four = ibroadcast(x + (group * group_lines + part + line) * kLineCols);
        IVec& sum = sums[line % 2 * kSums + i];
        sum = Dots::add(sum, w[i % kVecs], four);
      }
    }
  }
  MF_UNROLL
  for (int i = 0; i < kSums; ++i) {
    const TileToken& token = args.x[i / kVecs];
    const int64_t row = i % kVecs * kVecLanes;
    const IVec both = iadd(sums[i], sums[kSums + i]);
    const IVec dot = Dots::dot(both, token.scales + group, token.sums + group);
    const FVec sum = dfold(acc[i], dot, fload(panel.scales[at] + row), token.scales + group);
    acc[i] = ffma(fload(panel.biases[at] + row), fbroadcast(token.sums + group), sum);
  }
}

template <int kBits, int kPart, int kTokens>
static void few_blocks_of(const TileFewArgs& args) {
  const int64_t group_cols = args.w.block->group_size;
  const int64_t group_lines = group_cols / kLineCols;
  const TileExtents e = tile_extents(args.w);
  FilledPanel filled;
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const uint8_t* rows = args.w.tiles + panel * e.panel_bytes;
    FVec acc[kTokens * kVecs];
    MF_UNROLL
    for (int i = 0; i < kTokens * kVecs; ++i) acc[i] = fzero();
    for (int64_t col = 0; col < args.w.cols; col += kBlockFillCols) {
      const int64_t left = args.w.cols - col;
      const int64_t cols = left < kBlockFillCols ? left : kBlockFillCols;
      ask_for_next_panel(args, e, panel, col, cols);
      fill_panel(args.w, rows, col, cols, filled.lines[0], filled.scales[0], filled.biases[0],
                 kTilePanelRows);
      const int64_t first = col / group_cols;
      for (int64_t at = 0; at * group_cols < cols; ++at) {
        few_filled_group<kBits, kPart, kTokens>(args, filled, group_lines, at, first + at, acc);
      }
    }
    store_panel<kTokens>(args, panel, acc);
  }
}

template <int kBits, int kPart>
static void few_blocks_by_tokens(const TileFewArgs& args) {
  switch (args.tokens) {
    case 2:
      return few_blocks_of<kBits, kPart, 2>(args);
    case 3:
      return few_blocks_of<kBits, kPart, 3>(args);
    default:
      return few_blocks_of<kBits, kPart, 4>(args);
  }
}

// --- One token ---

/// Asks for group `group`'s share of a block of rows: more lines at once would keep the panel's own
/// loads waiting.
template <class Rows>
MF_INLINE void ask_ahead(const uint8_t* ahead, int group) {
  // Compilers would gather a block's requests at its begin: Q6_K's 53 at once, from which its loads
  // waited until it read memory at less than half its likes' speed.
  __asm__ volatile("" : "+r"(ahead) : : "memory");
  constexpr int kGroups = Rows::kElements / Rows::kGroup;
  constexpr int kLines = (Rows::kBytes * kVecLanes + kLine - 1) / kLine;
  if constexpr (Rows::kLiveGroups < kGroups) {
    constexpr int kMost = (kLines + kGroups - 1) / kGroups;
    const int first = (group * kLines + kGroups - 1) / kGroups;
    unrolled<kMost>([&](int i) MF_INLINE_BODY { prefetch_far(ahead + (first + i) * kLine); });
  } else {
    unrolled<kLines>([&](int i) MF_INLINE_BODY {
      if (i * kGroups / kLines == group) prefetch_far(ahead + i * kLine);
    });
  }
}

/// Products of sixteen rows of a block: sums of its groups, and of all before it.
template <class Rows>
struct RowDots {
  static constexpr int kBits = Rows::kCodeBits < 8 ? 7 : 8;
  using Dots = LineDots<kBits>;
  static constexpr int kGroupLines = Rows::kGroup / kLineCols;
  static constexpr int kGroups = Rows::kElements / Rows::kGroup;
  static constexpr int kLive = Rows::kLiveGroups;
  static constexpr int kValueBytes = 1;
  const uint8_t* x;       // of the block's columns
  const float* x_scales;  // of its groups
  const float* x_sums;
  float outer_scale;
  const uint8_t* ahead;  // the same block and rows of the panel that comes next
  FVec sums;
  IVec dots[kLive];       // by live()
  IVec high_dots[kLive];  // sixteen times what is missing in `dots`
  IVec two_dots[kLive];   // of the two upper bits of six

  MF_INLINE RowDots(const TileFewArgs& args, int64_t block, const uint8_t* values,
                    const uint8_t* next, FVec before)
      : x(values),
        x_scales(args.x[0].scales + block * kGroups),
        x_sums(args.x[0].sums + block * kGroups),
        outer_scale(args.w.outer_scale),
        ahead(next),
        sums(before) {
    unrolled<kLive>([&](int g) MF_INLINE_BODY { dots[g] = high_dots[g] = two_dots[g] = izero(); });
  }
  /// A number that the compiler knows of groups in a loop too, so that their sums are in registers.
  static MF_INLINE unsigned live(int group) { return static_cast<unsigned>(group) % kLive; }
  static MF_INLINE unsigned live_of(int line) {
    return static_cast<unsigned>(line) / kGroupLines % kLive;
  }
  MF_INLINE void codes(int line, Words words) { add(dots[live_of(line)], line, words); }
  /// High halves are multiplied where they are, and the sum is divided.
  MF_INLINE void halves(int low, int high, Words bytes) {
    codes(low, bytes & kNibbles);
    if constexpr (kDotsWholeBytes) {
      add(high_dots[live_of(high)], high, bytes & ~kNibbles);
    } else {
      codes(high, bytes >> 4 & kNibbles);
    }
  }
  /// Four bits and two are multiplied where they are, too.
  template <int kUpper>
  MF_INLINE void six_bits(int line, Words fours, Words twos, int j) {
    if constexpr (kDotsWholeBytes) {
      IVec& four_dot = kUpper == 0 ? dots[live_of(line)] : high_dots[live_of(line)];
      add(four_dot, line, fours & (kNibbles << (4 * kUpper)));
      add(two_dots[live_of(line)], line, twos & (kBytesOf3 << (4 * kUpper + 2 * j)));
    } else {
      codes(line, merged_six_bits<kUpper>(fours, twos, j));
    }
  }
  /// The two bits of the group's codes stood at 2 * pair, and count from 4 on.
  MF_INLINE void join_six_bits(int group, int pair) {
    const auto sum = same_bits<Ints>(two_dots[live(group)]);
    const Ints twos = pair < 2 ? sum << (4 - 2 * pair) : sum >> (2 * pair - 4);
    dots[live(group)] = iadd(dots[live(group)], same_bits<IVec>(twos));
  }
  /// Eight codes, the first in the lowest bits: low halves are the even columns.
  MF_INLINE void nibbles(int line, Words eight) {
    const uint8_t* columns = x + line * kLineCols;
    IVec& dot = dots[live_of(line)];
    dot = idot<kBits>(dot, same_bits<IVec>(eight & kNibbles), ibroadcast_even(columns));
    if constexpr (kDotsWholeBytes) {
      IVec& high = high_dots[live_of(line)];
      high = idot<kBits>(high, same_bits<IVec>(eight & ~kNibbles), ibroadcast_odd(columns));
    } else {
      dot = idot<kBits>(dot, same_bits<IVec>(eight >> 4 & kNibbles), ibroadcast_odd(columns));
    }
  }
  MF_INLINE void group(int at, Floats scale, Floats bias) {
    if constexpr (Rows::kHasOuterScale) {
      scale *= outer_scale;
      bias *= outer_scale;
    }
    ask_ahead<Rows>(ahead, at);
    const Ints high = same_bits<Ints>(high_dots[live(at)]) >> 4;
    const IVec all = iadd(dots[live(at)], same_bits<IVec>(high));
    const IVec dot = Dots::dot(all, x_scales + at, x_sums + at);
    sums = dfold(sums, dot, same_bits<FVec>(scale), x_scales + at);
    sums = ffma(same_bits<FVec>(bias), fbroadcast(x_sums + at), sums);
    if constexpr (kLive < kGroups) dots[live(at)] = izero();
  }

 private:
  MF_INLINE void add(IVec& dot, int line, Words words) {
    dot = Dots::add(dot, Dots::line(same_bits<IVec>(words)), ibroadcast(x + line * kLineCols));
  }
};

/// Adds blocks [begin, end) of a panel's rows to sums [vec]; `values` are the activations that Dots
/// takes, from the first of these blocks on.
template <class Rows, class Dots, class Sums>
MF_INLINE void multiply_rows(const TileFewArgs& args, const TileExtents& e, int64_t panel,
                             int64_t begin, int64_t end, const uint8_t* values, Sums* sums) {
  static_assert(kWordLanes == kVecLanes);
  const BlockFillArgs from = fill_args(args.w, args.w.tiles + panel * e.panel_bytes, 0, args.w.cols,
                                       nullptr, nullptr, nullptr, 0);
  const uint8_t* next = next_panel(args, e, panel);
  if (next == nullptr) next = from.rows;  // which is read anyway
  for (int64_t block = begin; block < end; block += Rows::kChunk) {
    const int64_t left = end - block;
    const int64_t count = left < Rows::kChunk ? left : Rows::kChunk;
    const auto multiply = [&](int v) MF_INLINE_BODY {
      const Rows rows(from, v * kVecLanes, block, count);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t share = (block + i) * kVecs + v;
        Dots to(args, block + i, values + (block + i - begin) * Rows::kElements * Dots::kValueBytes,
                next + share * Rows::kBytes * kVecLanes, sums[v]);
        rows.fill(i, to);
        sums[v] = to.sums;
      }
    };
    // Codes of a grid are long: a loop, like those of their fills. Others take half as long again
    // in one (Q4_K on AVX2).
    if constexpr (kVecs > 1 && Rows::kLiveGroups < Rows::kElements / Rows::kGroup) {
      looped<kVecs>(multiply);
    } else {
      unrolled<kVecs>(multiply);
    }
  }
}

/// BlockKernel::one_token.
template <class Rows>
static void one_token_of(const TileFewArgs& args) {
  const TileExtents e = tile_extents(args.w);
  const int64_t blocks = args.w.cols / Rows::kElements;
  const auto* values = static_cast<const uint8_t*>(args.x[0].values);
  for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    FVec sums[kVecs];
    MF_UNROLL
    for (int v = 0; v < kVecs; ++v) sums[v] = fzero();
    multiply_rows<Rows, RowDots<Rows>>(args, e, panel, 0, blocks, values, sums);
    store_panel<1>(args, panel, sums);
  }
}
template <class Rows>
constexpr auto kOneToken = one_token_of<Rows>;

/// The same with 16-bit activations: q16_few-inl.h.
template <class Rows>
static void one_token_units_of(const TileFewArgs& args);
template <class Rows>
constexpr auto kOneTokenUnits = one_token_units_of<Rows>;

#include "backend/cpu/kernels/block_table-inl.h"
