// Rows of blocks and of MLX's affine groups, kWordLanes at a time: what the int8 products read.
// Included inside a namespace, after a block_lanes_*-inl.h.
//
// Rows of a kind are a struct with
//   kElements, kBytes, kGroup, kCodeBits  as BlockKernel has them
//   kHasOuterScale                      whether a matrix has one
//   kLiveGroups                         groups whose lines come before the first of them ends
//   kChunk                              blocks that are read together, at most
//   Rows(args, row, block, count)       `count` blocks from `block` on of the rows from `row` on
//   fill(i, to)                         the i-th of them; block_fill-inl.h says what `to` is

#include "backend/cpu/kernels/block_fill-inl.h"

template <class Fill>
struct BlockRows {
  using Block = typename Fill::Block;
  static constexpr int kElements = Block::kElements;
  static constexpr int kBytes = Block::kBytes;
  static constexpr int kGroup = Block::kGroup;
  static constexpr int kCodeBits = Fill::kCodeBits;
  static constexpr bool kHasOuterScale = requires { Fill::kHasOuterScale; };
  static constexpr int kLiveGroups = requires { Fill::kLoops; }
  ? 32 / kGroup : kElements / kGroup;
  static constexpr int kChunk = 256 / kElements;
  const uint8_t* from;
  RowSteps steps;

  MF_INLINE BlockRows(const BlockFillArgs& args, int row, int64_t block, int64_t /*count*/)
      : from(args.rows + row * args.row_bytes + block * kBytes), steps(args.row_bytes) {}
  template <class To>
  MF_INLINE void fill(int64_t i, To& to) const {
    Fill::fill(from + i * kBytes, steps, to);
  }
};

/// Up to eight scales or biases of affine groups, from the first at `from` on.
struct GroupParams {
  Floats values[8];

  MF_INLINE GroupParams(const BlockFillArgs& args, const uint8_t* from, int64_t count) {
    if (count < 8) {
      for (int64_t g = 0; g < count; ++g) values[g] = gather(args, from, g);
    } else if (args.param_type == ElementType::kF32) {
      const RowOctet words(from, RowSteps(args.param_row_bytes));
      unrolled<8>([&](int g) MF_INLINE_BODY { values[g] = reinterpret_cast<Floats>(words[g]); });
    } else {
      const RowWords words(from, RowSteps(args.param_row_bytes));
      const bool is_half = args.param_type == ElementType::kF16;
      unrolled<8>([&](int g) MF_INLINE_BODY {
        const Words word = words[g / 2];
        const Words bits = g % 2 == 0 ? word & 0xffffu : word >> 16;
        values[g] = is_half ? halves_to_floats(bits) : reinterpret_cast<Floats>(bits << 16);
      });
    }
  }

 private:
  static MF_INLINE Floats gather(const BlockFillArgs& args, const uint8_t* from, int64_t g) {
    const RowSteps rows(args.param_row_bytes);
    if (args.param_type == ElementType::kF32) {
      return reinterpret_cast<Floats>(gather_words(from + 4 * g, rows));
    }
    if (args.param_type == ElementType::kF16) return gather_halves(from + 2 * g, rows);
    return reinterpret_cast<Floats>(gather_u16(from + 2 * g, rows) << 16);
  }
};

/// A group for a block; codes, scales and biases lie apart.
template <int kBits, int kGroupSize>
struct AffineRows {
  static constexpr int kElements = kGroupSize;
  static constexpr int kBytes = kGroupSize * kBits / 8;
  static constexpr int kGroup = kGroupSize;
  static constexpr int kCodeBits = kBits;
  static constexpr bool kHasOuterScale = false;
  static constexpr int kLiveGroups = 1;
  static constexpr int kChunk = 8;
  const uint8_t* from;
  RowSteps steps;
  GroupParams scales;
  GroupParams biases;

  MF_INLINE AffineRows(const BlockFillArgs& args, int row, int64_t block, int64_t count)
      : from(args.rows + row * args.row_bytes + block * kBytes),
        steps(args.row_bytes),
        scales(args, args.scale_rows + param_at(args, row, block), count),
        biases(args, args.bias_rows + param_at(args, row, block), count) {}
  template <class To>
  MF_INLINE void fill(int64_t i, To& to) const {
    unrolled<kBytes / 16>([&](int part) MF_INLINE_BODY {
      const RowWords packed(from + i * kBytes + 16 * part, steps);
      unrolled<4>([&](int word) MF_INLINE_BODY {
        if constexpr (kBits == 8) {
          to.codes(4 * part + word, packed[word]);
        } else {
          to.nibbles(8 * part + 2 * word, packed[word]);
        }
      });
    });
    to.group(0, scales.values[i], biases.values[i]);
  }

 private:
  static MF_INLINE int64_t param_at(const BlockFillArgs& args, int row, int64_t block) {
    return row * args.param_row_bytes + block * (args.param_type == ElementType::kF32 ? 4 : 2);
  }
};

/// The two bits move to where they count in one shift.
template <int kUpper>
MF_INLINE Words merged_six_bits(Words fours, Words twos, int j) {
  const int at = 4 * kUpper + 2 * j;
  const Words upper = at < 4 ? twos << (4 - at) : twos >> (at - 4);
  return (fours >> (4 * kUpper) & kNibbles) | (upper & kBytesOf3 << 4);
}

/// Where a panel's lines are stored.
struct PanelLines {
  uint8_t* lines;
  float* scales;  // [group][row], groups `stride` apart
  float* biases;
  int64_t stride;

  MF_INLINE void codes(int line, Words words) const { store_words(lines + line * 64, words); }
  /// The line of low halves of bytes and that of high ones.
  MF_INLINE void halves(int low, int high, Words bytes) const {
    codes(low, bytes & kNibbles);
    codes(high, bytes >> 4 & kNibbles);
  }
  template <int kUpper>
  MF_INLINE void six_bits(int line, Words fours, Words twos, int j) const {
    codes(line, merged_six_bits<kUpper>(fours, twos, j));
  }
  MF_INLINE void join_six_bits(int /*group*/, int /*pair*/) const {}
  /// Two lines of eight codes, the first in the lowest bits.
  MF_INLINE void nibbles(int line, Words eight) const {
    codes(line, spread(eight));
    codes(line + 1, spread(eight >> 16));
  }
  MF_INLINE void group(int at, Floats scale, Floats bias) const {
    store_floats(scales + at * stride, scale);
    store_floats(biases + at * stride, bias);
  }

 private:
  static MF_INLINE Words spread(Words four) {
    const Words pairs = (four & 0xffu) | (four & 0xff00u) << 8;
    return (pairs | pairs << 4) & kNibbles;
  }
};

/// BlockKernel::fill.
template <class Rows>
static void fill_rows(const BlockFillArgs& args) {
  constexpr int kGroups = Rows::kElements / Rows::kGroup;
  for (int row = 0; row < kTilePanelRows; row += kWordLanes) {
    PanelLines to = {args.lines + row * 4, args.scales + row, args.biases + row, args.stride};
    for (int64_t block = 0; block < args.blocks; block += Rows::kChunk) {
      const int64_t left = args.blocks - block;
      const int64_t count = left < Rows::kChunk ? left : Rows::kChunk;
      const Rows rows(args, row, block, count);
      for (int64_t i = 0; i < count; ++i) {
        rows.fill(i, to);
        to.lines += Rows::kElements / 4 * 64;
        to.scales += kGroups * to.stride;
        to.biases += kGroups * to.stride;
      }
    }
  }
}
