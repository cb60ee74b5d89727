// Products on matrix units for single tokens: splits of the columns go to SIMD groups, which have
// their part of the matrix in registers before the activations are there.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where the parts of a group's shared memory begin, in words.
struct UnitOneShared {
  u32 sums;   // of a block's integers, and its factor, after the integers themselves
  u32 parts;  // 16 rows a SIMD group
};

MF_FN UnitOneShared unit_one_shared(u32 splits) {
  UnitOneShared s;
  s.sums = splits * (kUnitSplitBlocks * kUnitBlockWords);
  s.parts = s.sums + splits * (kUnitSplitBlocks * 2u);
  return s;
}

/// log2 of 1, 2, 4 or 8 splits: a division takes a hundred cycles in which nothing else happens.
MF_FN u32 splits_shift(u32 splits) { return (splits >> 1u) - (splits >> 3u); }

/// The eight columns of x from `column` to octet `o` of those of `splits` splits: of each block the
/// 256s of 8 octets, then their ones; and sums and factors. Eight lanes bring a block.
MF_FN void stage_unit_octet(MF_T t, MF_GLOBAL(const f32) x, u32 column, u32 o, u32 splits, u32 cols,
                            u32 wide) {
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, unit_one_shared(splits).sums * 4u);
  f32 values[8];
  load_octet(values, x, column, cols, wide);
  const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
  const UnitOctet octet = unit_octet(values, factor.into);
  MF_SHARED(u32) to = MF_SHARED_AT(t, u32, 0u) + (o / 8u * kUnitBlockWords + o % 8u * 2u);
  store2(to, octet.high);
  store2(to + kUnitBlockWords / 2u, octet.low);
  const f32 sum = lanes_sum<8u>(t, octet.sum);
  if (o % 8u == 0u) {
    sums[o / 4u] = sum;
    sums[o / 4u + 1u] = factor.out_of;
  }
}

/// Columns [begin, begin + splits * 512) of a row.
MF_FN void stage_unit_row(MF_T t, MF_GLOBAL(const f32) x, u32 begin, u32 splits, u32 cols,
                          u32 wide) {
  for (u32 o = t.index; o < splits * (kUnitSplit / 8u); o += t.threads) {
    stage_unit_octet(t, x, begin + o * 8u, o, splits, cols, wide);
  }
}

/// What a SIMD group does of a matrix: 16 rows from `row`, split `split` of those at once. There
/// are few SIMD groups and each waits for itself, so that its instructions count: no branch keeps
/// blocks from running into each other. Where columns end, codes of nothing meet activations of
/// zero.
template <u32 BITS>
struct UnitPart {
  u32 codes[static_cast<u32>(kUnitSplitBlocks) * BITS];  // BITS words of two rows a block
  u32 scales[4];
  bool has_any;

  MF_FN_MEMBER void load(MF_T t, UnitMatrix m, MF_GLOBAL(const u8) data,
                         MF_GLOBAL(const u8) scale_data, MF_GLOBAL(const u8) bias_data, u32 cols,
                         u32 row, u32 first_column) {
    has_any = first_column < cols && row < m.rows;
    if (!has_any) return;
    const u32 left = (cols - first_column) / kUnitBlock;
    const u32 low = row + t.lane / 4u < m.rows ? row + t.lane / 4u : m.rows - 1u;
    const u32 high = low + 8u < m.rows ? low + 8u : m.rows - 1u;
    const u32 first = first_column / kUnitBlock;
    const u64 row_words = cols / 32u * BITS;
    const u32 within = first * (2u * BITS) + (t.lane & 3u) * (BITS / 2u);
    load_rows(MF_CAST(const u32, data) + (low * row_words + within),
              MF_CAST(const u32, data) + (high * row_words + within), left, m.wide);
    load_unit_scales(t, scales, m, scale_data, bias_data, cols, low, high, first);
  }

  MF_FN_MEMBER void load_rows(MF_GLOBAL(const u32) low, MF_GLOBAL(const u32) high, u32 left,
                              u32 wide) {
    const u32 words = BITS / 2u;  // of a row, a block
    if (wide == 0u) {
      MF_UNROLL
      for (u32 i = 0u; i < kUnitSplitBlocks * words; ++i) {
        const u32 b = i / words;
        const u32 at = b * (2u * BITS) + i % words;
        codes[b * BITS + i % words] = b < left ? low[at] : 0u;
        codes[b * BITS + words + i % words] = b < left ? high[at] : 0u;
      }
      return;
    }
    MF_UNROLL
    for (u32 i = 0u; i < kUnitSplitBlocks * 2u; ++i) {
      const u32 b = i / 2u;
      MF_GLOBAL(const u32) from = (i % 2u == 0u ? low : high) + b * (2u * BITS);
      MF_LOCAL(u32) to = codes + i * words;
      if (BITS == 4u) {
        W2 two = {{0u, 0u}};
        if (b < left) two = load2(from);
        to[0] = two.v[0];
        to[1] = two.v[1];
      } else {
        W4 four = {{0u, 0u, 0u, 0u}};
        if (b < left) four = load4(from);
        MF_UNROLL
        for (u32 k = 0u; k < 4u; ++k) to[k % words] = four.v[k];
      }
    }
  }

  /// Leaves 16 sums in `to`.
  MF_FN_MEMBER void multiply(MF_T t, u32 format, u32 split, u32 splits, MF_SHARED(f32) to) const {
    const f32 sum = has_any ? product(t, format, split, splits) : 0.0f;
    if ((t.lane & 1u) == 0u) to[t.lane / 4u + (t.lane & 2u) * 4u] = sum;
  }

  /// Of row lane / 4 in the first two of four lanes, of the row 8 further in the others.
  MF_FN_MEMBER f32 product(MF_T t, u32 format, u32 split, u32 splits) const {
    MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, 0u);
    MF_SHARED(f32)
    sums =
        MF_SHARED_AT(t, f32, unit_one_shared(splits).sums * 4u) + split * (kUnitSplitBlocks * 2u);
    f32 own[kUnitSplitBlocks];
    MF_UNROLL
    for (u32 b = 0u; b < kUnitSplitBlocks; ++b) own[b] = unit_scale(scales[b / 2u], b % 2u, format);
    // Columns 0, 2, 4 and 6 of a step are the 256s, the others the ones: four lanes have the same
    // two rows, of which the first two finish the first and the others the second.
    const u32 half = (t.lane / 4u) & 1u;
    const u32 base = split * kUnitSplitBlocks * kUnitBlockWords + half * (kUnitBlockWords / 2u) +
                     (t.lane & 3u) * 4u;
    f32 total = 0.0f;
    MF_UNROLL
    for (u32 b = 0u; b < kUnitSplitBlocks; ++b) {
      i32 c[4] = {0, 0, 0, 0};
      const W4 x = load4(staged + (base + b * kUnitBlockWords));
      MF_UNROLL
      for (u32 h = 0u; h < 2u; ++h) {
        const W2 low = UnitCodes<BITS>::octet(codes + b * BITS, h);
        const W2 high = UnitCodes<BITS>::octet(codes + (b * BITS + BITS / 2u), h);
        matrix_multiply_add_bytes(t, c, low.v[0], high.v[0], low.v[1], high.v[1], x.v[2u * h],
                                  x.v[2u * h + 1u]);
      }
      const bool is_first = (t.lane & 2u) == 0u;
      total = add_unit_block(total, is_first ? c[0] : c[2], is_first ? c[1] : c[3], own[b],
                             simd_shuffle_xor(t, own[b], 1u), sums[2u * b], sums[2u * b + 1u]);
    }
    return total;
  }
};

/// Adds the splits that are there to a row's sum, in order.
MF_FN f32 add_unit_splits(MF_SHARED(f32) parts, f32 sum, u32 splits, u32 first_column, u32 cols) {
  f32 held[kUnitSimds];
  MF_UNROLL
  for (u32 s = 0u; s < kUnitSimds; ++s) {
    held[s] = parts[(s < splits ? s : 0u) * kUnitRows];  // no branch: all on their way together
  }
  MF_UNROLL
  for (u32 s = 0u; s < kUnitSimds; ++s) {
    const bool exists = s < splits && first_column + s * kUnitSplit < cols;
    sum = exists ? sum + held[s] : sum;
  }
  return sum;
}

/// A row of x in memory.
struct UnitMemoryRow {
  MF_GLOBAL(const f32) x;

  MF_FN_MEMBER void stage(MF_T t, MF_PARAMS(UnitLinearParams) p, u32 begin) const {
    stage_unit_row(t, x, begin, p.splits, p.cols, p.wide);
  }
};

/// The 16 * 8 / splits rows of a group, which begin at `first_row`: gives a thread the sum of the
/// row of its number. A source that is not in memory has its columns in one turn.
template <u32 BITS, class Source>
MF_FN f32 unit_row_of_one(MF_T t, MF_PARAMS(UnitLinearParams) p, UnitMatrix m, u32 first_row,
                          MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                          MF_GLOBAL(const u8) biases, MF_LOCAL(const Source) source) {
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(p.splits).parts * 4u);
  const u32 shift = splits_shift(p.splits);
  const u32 split = t.simd & (p.splits - 1u);
  const u32 row = first_row + (t.simd >> shift) * kUnitRows;
  UnitPart<BITS> part;
  part.load(t, m, data, scales, biases, p.cols, row, split * kUnitSplit);
  await_inputs(t);
  f32 sum = 0.0f;
  for (u32 begin = 0u; begin < p.cols; begin += p.splits * kUnitSplit) {
    if (begin > 0u) {
      barrier(t);
      part.load(t, m, data, scales, biases, p.cols, row, begin + split * kUnitSplit);
    }
    source->stage(t, p, begin);
    barrier(t);
    part.multiply(t, m.scales, split, p.splits, parts + t.simd * kUnitRows);
    barrier(t);
    if (t.index < (kUnitSimds * kUnitRows) >> shift) {
      MF_SHARED(f32)
      own = parts + (t.index / kUnitRows * p.splits * kUnitRows + t.index % kUnitRows);
      sum = add_unit_splits(own, sum, p.splits, begin, p.cols);
    }
  }
  return sum;
}

/// Which of the matrices a group has, and its first row.
struct UnitShare {
  u32 which;
  u32 first_row;
  u32 own_row;  // whose sum the thread has
  bool is_mine;
};

MF_FN UnitShare unit_share(MF_T t, MF_PARAMS(UnitLinearParams) p) {
  UnitShare share;
  share.which = 0u;
  MF_UNROLL
  for (u32 i = 1u; i < kUnitMatricesMax; ++i) {
    if (i < p.count && t.group.x >= p.first_group[i]) share.which = i;
  }
  const u32 rows = (kUnitSimds * kUnitRows) >> splits_shift(p.splits);
  share.first_row = (t.group.x - p.first_group[share.which]) * rows;
  share.own_row = share.first_row + t.index;
  share.is_mine = t.index < rows && share.own_row < p.matrices[share.which].rows;
  return share;
}

/// True when the thread's row is a channel of the convolution, whose parts it asks for.
MF_FN bool begin_unit_conv(MF_T t, MF_PARAMS(UnitLinearParams) p, UnitShare share,
                           MF_GLOBAL(const f32) weight, MF_GLOBAL(f32) state) {
  if (!share.is_mine || share.which != p.conv_matrix) return false;
  const u32 channels = p.matrices[share.which].rows;
  prefetch(t, weight + share.own_row * p.conv_taps);
  for (u32 j = 0u; j + 1u < p.conv_taps; ++j) prefetch(t, state + (j * channels + share.own_row));
  return true;
}

MF_FN void finish_unit_conv(MF_PARAMS(UnitLinearParams) p, UnitShare share, f32 sum,
                            MF_GLOBAL(const f32) weight, MF_GLOBAL(f32) state, MF_GLOBAL(f32) out) {
  const u32 channels = p.matrices[share.which].rows;
  const ConvPast past = conv_past(weight, state, p.conv_taps, channels, share.own_row);
  out[share.own_row] = conv_one(&past, sum, state, p.conv_taps, channels, share.own_row);
}

/// The rows' sums of a group, each in the thread of its number. Without matrices of 8 bits a
/// multiprocessor has room for three groups, with them for two.
template <u32 BITS, class Source>
MF_FN f32 unit_row_sum(MF_T t, MF_PARAMS(UnitLinearParams) p, UnitShare share,
                       MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                       MF_GLOBAL(const u8) biases, MF_LOCAL(const Source) source) {
  const UnitMatrix m = p.matrices[share.which];
  const u32 first = share.first_row;
  if (BITS == 4u || m.bits == 4u) {
    return unit_row_of_one<4u>(t, p, m, first, data, scales, biases, source);
  }
  return unit_row_of_one < BITS == 4u ? 4u : 8u > (t, p, m, first, data, scales, biases, source);
}

#define MF_OF(which, a) which == 0u ? a##0 : which == 1u ? a##1 : which == 2u ? a##2 : a##3

// Group x: rows of one of the matrices; y: a token. 256 threads. Rows of a single token may go on
// through a convolution. BITS is 4 if all matrices have 4.
#define MF_UNIT_LINEAR_ONE(name, BITS, fits)                                                  \
  MF_FITS(256, fits)                                                                          \
  MF_KERNEL(name, UnitLinearParams, MF_CONST(0, u8, data0), MF_CONST(1, u8, scales0),         \
            MF_CONST(2, u8, biases0), MF_CONST(3, u8, data1), MF_CONST(4, u8, scales1),       \
            MF_CONST(5, u8, biases1), MF_CONST(6, u8, data2), MF_CONST(7, u8, scales2),       \
            MF_CONST(8, u8, biases2), MF_CONST(9, u8, data3), MF_CONST(10, u8, scales3),      \
            MF_CONST(11, u8, biases3), MF_READ(12, f32, x), MF_CONST(13, f32, conv_weight),   \
            MF_WRITE(14, f32, conv_state), MF_WRITE(15, f32, out0), MF_WRITE(16, f32, out1),  \
            MF_WRITE(17, f32, out2), MF_WRITE(18, f32, out3), MF_WRITE(19, f32, conv_out)) {  \
    MF_THREAD_EARLY;                                                                          \
    const UnitShare share = unit_share(t, p);                                                 \
    const u32 which = share.which;                                                            \
    const bool convolves = begin_unit_conv(t, p, share, conv_weight, conv_state);             \
    MF_GLOBAL(f32) out = MF_OF(which, out);                                                   \
    const UnitMemoryRow row = {x + t.group.y * p.x_stride};                                   \
    const f32 sum = unit_row_sum<BITS>(t, p, share, MF_OF(which, data), MF_OF(which, scales), \
                                       MF_OF(which, biases), &row);                           \
    if (share.is_mine) out[t.group.y * p.out_strides[which] + share.own_row] = sum;           \
    if (convolves) finish_unit_conv(p, share, sum, conv_weight, conv_state, conv_out);        \
  }
MF_UNIT_LINEAR_ONE(unit_linear_one, 8u, 2)
MF_UNIT_LINEAR_ONE(unit_linear_one4, 4u, 3)
#undef MF_UNIT_LINEAR_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
