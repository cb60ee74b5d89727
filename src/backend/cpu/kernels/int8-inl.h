// Rows of 4-bit and 8-bit codes times int8 activations on vectors whose 32-bit lanes are rows.
// Included inside the namespace of one ISA, after its vec_int8_*-inl.h; see int8_table.h.
//
// Words of four or eight codes of many rows are transposed once per panel, so that one multiply
// instruction serves four codes of every lane's row, integers of a whole group accumulate in one
// register, and conversion and scaling cost a few instructions per lanes * group products.

constexpr int kBlocks = static_cast<int>(kInt8Rows) / kIntLanes;
constexpr int kUnitBytes = 32;  // of one row's codes, transposed at a time
constexpr int kUnitWords = 8;
constexpr int64_t kRunGroups = 8;
constexpr int64_t kFewTokens = 4;  // up to here groups are multiplied as they are unpacked

/// One run of groups of a panel's rows.
struct Int8Panel {
  const uint8_t* codes[kInt8Rows];  // rows past the last repeat it
  const uint8_t* scales[kInt8Rows];
  const uint8_t* biases[kInt8Rows];
  int64_t row_bytes;
  int64_t scale_bytes;  // of one row
  int blocks;
  alignas(64) float w_scales[kRunGroups][kInt8Rows];
  alignas(64) float w_biases[kRunGroups][kInt8Rows];
  // [group][four codes][row]
  alignas(64) uint8_t unpacked[kRunGroups * kInt8GroupMax / 4][kInt8Rows][4];
};

static void int8_open(Int8Panel& panel, const Int8PanelArgs& args) {
  const MatrixArgs& w = args.w;
  panel.row_bytes = w.cols / 8 * w.bits;
  panel.blocks = static_cast<int>((args.rows + kIntLanes - 1) / kIntLanes);
  panel.scale_bytes = w.cols / w.group_size * (w.type == ElementType::kF32 ? 4 : 2);
  for (int64_t r = 0; r < kInt8Rows; ++r) {
    const int64_t row = args.row + (r < args.rows ? r : args.rows - 1);
    panel.codes[r] = w.data + row * panel.row_bytes;
    panel.scales[r] = w.scales + row * panel.scale_bytes;
    panel.biases[r] = w.biases + row * panel.scale_bytes;
  }
}

/// Scales or biases of up to eight groups of each row, by group.
static void int8_scales(const uint8_t* const* rows, int blocks, ElementType type, int64_t group,
                        int64_t count, float (*to)[kInt8Rows]) {
  const int64_t offset = group * (type == ElementType::kF32 ? 4 : 2);
  for (int b = 0; b < blocks; ++b) {
    IVec words[kUnitWords];
    iload_floats(rows + b * kIntLanes, offset, type, count, words);
    itranspose(words);
    for (int g = 0; g < kUnitWords; ++g) istore(to[g] + b * kIntLanes, words[g]);
  }
}

/// Asks for the next panel's share of an array while this one's is read. The next panel follows in
/// memory, so reads reach it in order, as hardware prefetchers cannot tell from 32 rows at once.
MF_INLINE void int8_prefetch(const uint8_t* const* rows, int64_t row_bytes, int64_t done,
                             int64_t bytes) {
  const uint8_t* next = rows[0] + kInt8Rows * row_bytes + done;
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
}

/// Codes of groups that start at `offset` of each row into panel.unpacked, from its start.
template <int kBits>
static void int8_unpack(Int8Panel& panel, int64_t offset, int64_t bytes) {
  constexpr int kSteps = kBits == 4 ? 2 : 1;  // of four codes, in a word
  for (int64_t at = 0; at < bytes; at += kUnitBytes) {
    const int64_t left = bytes - at < kUnitBytes ? bytes - at : kUnitBytes;
    uint8_t(*to)[kInt8Rows][4] = panel.unpacked + at / 4 * kSteps;
    for (int b = 0; b < panel.blocks; ++b) {
      const int row = b * kIntLanes;
      IVec words[kUnitWords];
      iload_codes(panel.codes + row, offset + at, left, words);
      if ((offset + at) % 64 == 0) {  // the rows' next lines, from the L2 cache
        for (int r = 0; r < kIntLanes; ++r)
          __builtin_prefetch(panel.codes[row + r] + offset + at + 64);
      }
      int8_prefetch(panel.codes, panel.row_bytes, kInt8Rows * (offset + at) + row * kUnitBytes,
                    kIntLanes * kUnitBytes);
      if constexpr (kBits == 8) {
        for (IVec& word : words) word = ieven_odd(word);
      }
      itranspose(words);
      for (int w = 0; w < kUnitWords; ++w) {
        if constexpr (kBits == 4) {
          istore(to[2 * w][row], ilow_nibbles(words[w]));
          istore(to[2 * w + 1][row], ihigh_nibbles(words[w]));
        } else {
          istore(to[w][row], words[w]);
        }
      }
    }
  }
}

/// Groups [group, group + count) of the matrix; the first one of them is number `first` of the run
/// for scales, and the first in panel.unpacked.
struct Int8Groups {
  int64_t group;
  int64_t first;
  int64_t count;
  int64_t group_size;
};

template <int kBits, int kTileBlocks, int kTokens>
static void int8_tile(const Int8Panel& panel, const Int8Groups& groups, int block,
                      const Int8Token* x, float (*out)[kInt8Rows]) {
  // A lone token needs more chains than it has rows to hide the latency of its products.
  constexpr int kChains = kTokens * kTileBlocks >= 8 ? 1 : kTokens == 1 ? 4 : 2;
  const int64_t steps = groups.group_size / 4;
  const int row = block * kIntLanes;
  for (int64_t g = 0; g < groups.count; ++g) {
    const uint8_t(*codes)[kInt8Rows][4] = panel.unpacked + g * steps;
    const int8_t* tokens[kTokens];
    IVec dots[kChains][kTileBlocks][kTokens];
    for (int t = 0; t < kTokens; ++t) {
      tokens[t] = x[t].codes + (groups.group + g) * groups.group_size;
      for (int c = 0; c < kChains; ++c) {
        for (int b = 0; b < kTileBlocks; ++b) dots[c][b][t] = izero();
      }
    }
    for (int64_t s = 0; s < steps; s += kChains) {
      for (int c = 0; c < kChains; ++c) {
        IVec w[kTileBlocks];
        for (int b = 0; b < kTileBlocks; ++b) w[b] = iload(codes[s + c][row + b * kIntLanes]);
        for (int t = 0; t < kTokens; ++t) {
          const IVec four = ibroadcast(tokens[t] + 4 * (s + c));
          for (int b = 0; b < kTileBlocks; ++b) {
            dots[c][b][t] = idot<kBits>(dots[c][b][t], w[b], four);
          }
        }
      }
    }
    for (int b = 0; b < kTileBlocks; ++b) {
      const int lane0 = row + b * kIntLanes;
      const FVec scale = fload(panel.w_scales[groups.first + g] + lane0);
      const FVec bias = fload(panel.w_biases[groups.first + g] + lane0);
      for (int t = 0; t < kTokens; ++t) {
        IVec dot = dots[0][b][t];
        for (int c = 1; c < kChains; ++c) dot = iadd(dot, dots[c][b][t]);
        FVec acc = fload(out[t] + lane0);
        const FVec both = fmul(scale, fbroadcast(x[t].scales + groups.group + g));
        acc = ffma(both, fconvert(dot), acc);
        acc = ffma(bias, fbroadcast(x[t].sums + groups.group + g), acc);
        fstore(out[t] + lane0, acc);
      }
    }
  }
}

template <int kBits, int kTokens>
static void int8_tiles(const Int8Panel& panel, const Int8Groups& groups, const Int8Token* x,
                       float (*out)[kInt8Rows]) {
  int b = 0;
  for (; b + 2 <= panel.blocks; b += 2) int8_tile<kBits, 2, kTokens>(panel, groups, b, x, out);
  if (b < panel.blocks) int8_tile<kBits, 1, kTokens>(panel, groups, b, x, out);
}

template <int kBits>
static void int8_multiply(const Int8Panel& panel, const Int8Groups& groups,
                          const Int8PanelArgs& args) {
  int64_t t = 0;
  for (; t + kTileTokens <= args.tokens; t += kTileTokens) {
    int8_tiles<kBits, kTileTokens>(panel, groups, args.x + t, args.out + t);
  }
  for (; t + 2 <= args.tokens; t += 2) {
    int8_tiles<kBits, 2>(panel, groups, args.x + t, args.out + t);
  }
  if (t < args.tokens) int8_tiles<kBits, 1>(panel, groups, args.x + t, args.out + t);
}

template <int kBits>
static void int8_panel_of(const Int8PanelArgs& args) {
  Int8Panel panel;
  int8_open(panel, args);
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t r = 0; r < kInt8Rows; ++r) args.out[t][r] = 0.0f;
  }
  const int64_t group_size = args.w.group_size;
  const int64_t groups = args.w.cols / group_size;
  const int64_t group_bytes = group_size / 8 * kBits;
  const int64_t unit_groups = group_bytes < kUnitBytes ? kUnitBytes / group_bytes : 1;
  const int64_t stride = args.tokens <= kFewTokens ? unit_groups : kRunGroups;
  for (int64_t run = 0; run < groups; run += kRunGroups) {
    const int64_t count = groups - run < kRunGroups ? groups - run : kRunGroups;
    const int64_t scale_bytes = args.w.type == ElementType::kF32 ? 4 : 2;
    const int64_t done = kInt8Rows * run * scale_bytes;
    int8_prefetch(panel.scales, panel.scale_bytes, done, kInt8Rows * count * scale_bytes);
    int8_prefetch(panel.biases, panel.scale_bytes, done, kInt8Rows * count * scale_bytes);
    int8_scales(panel.scales, panel.blocks, args.w.type, run, count, panel.w_scales);
    int8_scales(panel.biases, panel.blocks, args.w.type, run, count, panel.w_biases);
    for (int64_t g = 0; g < count; g += stride) {
      const int64_t some = count - g < stride ? count - g : stride;
      int8_unpack<kBits>(panel, (run + g) * group_bytes, some * group_bytes);
      int8_multiply<kBits>(panel, {run + g, g, some, group_size}, args);
    }
  }
}

static void int8_panel(const Int8PanelArgs& args) {
  if (args.w.bits == 4) {
    int8_panel_of<4>(args);
  } else {
    int8_panel_of<8>(args);
  }
}
