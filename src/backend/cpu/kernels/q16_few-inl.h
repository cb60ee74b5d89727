// One token of 16-bit activations and rows of blocks, multiplied by codes as they are unpacked, in
// registers: RowDots of block_few-inl.h with the floats of backend/unit_text.h.
// Included inside the namespace of one ISA, after q16_tiles-inl.h and its q16_sums_*-inl.h.

// --- How activations lie for the codes that meet them ---

/// Columns whose activations are arranged at a time: whole splits, so that a row's sum can wait in
/// the result, and few enough that they stay in the L1 cache beside weights.
constexpr int64_t kArrangedCols = 8192;

/// As prepare() leaves them, for words of four columns.
struct NaturalUnits {
  static constexpr bool kIsNatural = true;
  static MF_INLINE const uint8_t* at(const uint8_t* x, int line) { return unit_line(x, line); }
};

/// The even ones of eight columns, then the odd ones: the order of eight nibbles' low halves and
/// high halves.
struct EvenOddUnits {
  static constexpr bool kIsNatural = false;
  static MF_INLINE const uint8_t* at(const uint8_t* x, int line) { return unit_line(x, line); }
  static MF_INLINE void arrange(const uint8_t* from, int64_t cols, uint8_t* to) {
    using Bytes = uint8_t __attribute__((vector_size(16)));
    for (int64_t i = 0; i < 2 * cols; i += 16) {
      Bytes bytes;
      __builtin_memcpy(&bytes, from + i, 16);
      bytes = __builtin_shufflevector(bytes, bytes, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11,
                                      13, 15);
      __builtin_memcpy(to + i, &bytes, 16);
    }
  }
};

/// Integers of 16 bits, of four columns 0, 2, 1 and 3.
struct PairedUnits {
  static constexpr bool kIsNatural = false;
  static MF_INLINE const uint8_t* at(const uint8_t* x, int line) { return x + line * 8; }
  static MF_INLINE void arrange(const uint8_t* from, int64_t cols, uint8_t* to) {
    using Halves = int16_t __attribute__((vector_size(32)));
    using Bytes = int8_t __attribute__((vector_size(16)));
    for (int64_t i = 0; i < 2 * cols; i += 2 * kUnitChunk) {
      Bytes high;
      Bytes low;
      __builtin_memcpy(&high, from + i, 16);
      __builtin_memcpy(&low, from + i + kUnitChunk, 16);
      Halves both =
          __builtin_convertvector(high, Halves) * 256 + __builtin_convertvector(low, Halves);
      both =
          __builtin_shufflevector(both, both, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
      __builtin_memcpy(to + i, &both, 32);
    }
  }
};

template <bool kPairs>
struct UnitsOfCodes {
  using Units = NaturalUnits;
};
template <>
struct UnitsOfCodes<true> {
  using Units = PairedUnits;
};

/// How a kind of rows comes: codes, of which all are below 32 where kSmall is set, or halves of
/// bytes and nibbles of words.
template <class Rows>
struct UnitForm : UnitsOfCodes<kSumsPairs> {
  static constexpr bool kSmall = false;
  static constexpr bool kHalves = false;
};
struct SmallForm {
  using Units = NaturalUnits;
  static constexpr bool kSmall = true;
  static constexpr bool kHalves = false;
};
template <class UnitsOfHalves>
struct HalvesForm {
  using Units = UnitsOfHalves;
  static constexpr bool kSmall = false;
  static constexpr bool kHalves = true;
};
template <>
struct UnitForm<BlockRows<FillQ4_0>> : HalvesForm<NaturalUnits> {};
template <>
struct UnitForm<BlockRows<FillQ4_1>> : HalvesForm<NaturalUnits> {};
template <>
struct UnitForm<BlockRows<FillQ4K>> : HalvesForm<NaturalUnits> {};
template <int kGroup>
struct UnitForm<AffineRows<4, kGroup>> : HalvesForm<EvenOddUnits> {};
template <>
struct UnitForm<BlockRows<FillQ5_0>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillQ5_1>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillQ2K>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillQ3K>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillQ5K>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillMxfp4>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillNvfp4>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillQ1_0>> : SmallForm {};
template <int kCount>
struct UnitForm<BlockRows<FillQ2<kCount>>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillTq1_0>> : SmallForm {};
template <>
struct UnitForm<BlockRows<FillTq2_0>> : SmallForm {};

// --- Products ---

/// RowDots of 16-bit activations.
template <class Rows>
struct UnitRowDots {
  using Form = UnitForm<Rows>;
  using Units = typename Form::Units;
  static constexpr int kBits = Rows::kCodeBits < 8 ? 7 : 8;
  static constexpr int kUnitCols = Rows::kGroup < kUnitBlock ? Rows::kGroup : kUnitBlock;
  static constexpr int kLines = kUnitCols / kLineCols;
  static constexpr int kSmallLines = kLines < kSmallSumLines ? kLines : kSmallSumLines;
  static constexpr int kSmallSums = kLines / kSmallLines;  // of a unit
  static constexpr int kUnits = Rows::kElements / kUnitCols;
  static constexpr int kGroupUnits = Rows::kGroup / kUnitCols;
  static constexpr int kLive = Rows::kLiveGroups * kGroupUnits;  // units, as RowDots has groups
  static constexpr int kValueBytes = 2;
  const TileToken& token;
  float outer_scale;
  int64_t first_unit;
  const uint8_t* x;      // of the block's columns
  const uint8_t* ahead;  // as RowDots has it
  UnitChains<1> sums;
  CodeSum code_sums[kLive];
  SmallSum small_sums[kUnits * kSmallSums];
  NibbleSum low_sums[kUnits];
  NibbleSum high_sums[kUnits];  // sixteen times as much where kDotsWholeBytes is set

  MF_INLINE UnitRowDots(const TileFewArgs& args, int64_t block, const uint8_t* values,
                        const uint8_t* next, const UnitChains<1>& before)
      : token(args.x[0]),
        outer_scale(args.w.outer_scale),
        first_unit(block * kUnits),
        x(values),
        ahead(next),
        sums(before) {}
  MF_INLINE void codes(int line, Words words) {
    static_assert(!Form::kHalves);
    if constexpr (Form::kSmall) {
      small_sums[line / kSmallLines].add(same_bits<IVec>(words), Units::at(x, line));
    } else {
      code_sums[live(line / kLines)].template add<kBits>(same_bits<IVec>(words),
                                                         Units::at(x, line));
    }
  }
  MF_INLINE void halves(int low, int high, Words bytes) {
    static_assert(Form::kHalves);
    low_sums[low / kLines].add(same_bits<IVec>(bytes & kNibbles), Units::at(x, low));
    const Words upper = kDotsWholeBytes ? bytes & ~kNibbles : bytes >> 4 & kNibbles;
    high_sums[high / kLines].add(same_bits<IVec>(upper), Units::at(x, high));
  }
  /// Eight codes, of which the even ones are the low halves.
  MF_INLINE void nibbles(int line, Words eight) { halves(line, line + 1, eight); }
  template <int kUpper>
  MF_INLINE void six_bits(int line, Words fours, Words twos, int j) {
    codes(line, merged_six_bits<kUpper>(fours, twos, j));
  }
  MF_INLINE void join_six_bits(int /*group*/, int /*pair*/) const {}
  MF_INLINE void group(int at, Floats scale, Floats bias) {
    ask_ahead<Rows>(ahead, at);
    if constexpr (Rows::kHasOuterScale) {
      scale *= outer_scale;
      bias *= outer_scale;
    }
    const auto scales = same_bits<FVec>(scale);
    const auto biases = same_bits<FVec>(bias);
    unrolled<kGroupUnits>([&](int i) MF_INLINE_BODY {
      const int unit = at * kGroupUnits + i;
      const IVec dot = dot_of(unit);
      sums.template add<kLines>(first_unit + unit, &dot, &scales, &biases, &token);
      if constexpr (kLive < kUnits) code_sums[live(unit)] = CodeSum{};
    });
  }

 private:
  static_assert(kLive == kUnits || (!Form::kSmall && !Form::kHalves));
  static MF_INLINE unsigned live(int unit) { return static_cast<unsigned>(unit) % kLive; }
  MF_INLINE IVec dot_of(int unit) const {
    if constexpr (Form::kHalves) {
      const auto high = same_bits<Ints>(high_sums[unit].value()) >> (kDotsWholeBytes ? 4 : 0);
      return iadd(low_sums[unit].value(), same_bits<IVec>(high));
    } else if constexpr (Form::kSmall) {
      IVec dot = small_sums[unit * kSmallSums].value();
      unrolled<kSmallSums - 1>([&](int i) MF_INLINE_BODY {
        dot = iadd(dot, small_sums[unit * kSmallSums + 1 + i].value());
      });
      return dot;
    } else {
      return code_sums[live(unit)].value();
    }
  }
};

/// BlockKernel::one_token_units.
template <class Rows>
static void one_token_units_of(const TileFewArgs& args) {
  using Units = typename UnitForm<Rows>::Units;
  const TileExtents e = tile_extents(args.w);
  alignas(64) uint8_t arranged[Units::kIsNatural ? 64 : 2 * kArrangedCols];
  for (int64_t col = 0; col < args.w.cols; col += kArrangedCols) {
    const int64_t left = args.w.cols - col;
    const int64_t cols = left < kArrangedCols ? left : kArrangedCols;
    const uint8_t* values = static_cast<const uint8_t*>(args.x[0].values) + 2 * col;
    if constexpr (!Units::kIsNatural) {
      Units::arrange(values, cols, arranged);
      values = arranged;
    }
    for (int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
      const float* before = args.out[0] + panel * kTilePanelRows - args.out_row;
      UnitChains<1> sums[kVecs];
      FVec totals[kVecs];
      MF_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        sums[v].clear();
        if (col > 0) sums[v].total[0] = fload(before + v * kVecLanes);
      }
      multiply_rows<Rows, UnitRowDots<Rows>>(args, e, panel, col / Rows::kElements,
                                             (col + cols) / Rows::kElements, values, sums);
      MF_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        sums[v].end_split();
        totals[v] = sums[v].total[0];
      }
      store_panel<1>(args, panel, totals);
    }
  }
}

// --- All of it ---

static void few_units(const TileFewArgs& args) {
  if (args.w.block == nullptr) return few<UnitPanels>(args);
  if (args.tokens == 1) return args.w.block->one_token_units(args);
  return args.w.block->code_bits < 8 ? few_unit_blocks_by_group<7>(args)
                                     : few_unit_blocks_by_group<8>(args);
}

constexpr TileKernels make_q16_tiles(const char* name) {
  return {
      name,          2, kUnitChunk, kBlockTokens, q16_prepare, few_units, multiply_many<UnitBlocks>,
      &kBlockKernels};
}
