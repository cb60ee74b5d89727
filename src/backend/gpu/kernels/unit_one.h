// Products on matrix units for single tokens: splits of the columns go to SIMD groups, which have
// their part of the matrix in shared memory before the activations are there.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where the parts of a group's shared memory begin, in words.
struct UnitOneShared {
  u32 sums;   // of a block's integers, and its factor, after the integers themselves
  u32 parts;  // 16 rows a SIMD group and turn
};

MF_FN UnitOneShared unit_one_shared(u32 splits) {
  UnitOneShared s;
  s.sums = splits * (kUnitSplitBlocks * kUnitBlockWords);
  s.parts = s.sums + splits * (kUnitSplitBlocks * 2u);
  return s;
}

/// log2 of 1, 2, 4 or 8 splits: a division takes a hundred cycles in which nothing else happens.
MF_FN u32 splits_shift(u32 splits) { return (splits >> 1u) - (splits >> 3u); }

/// Columns that are octet `o` of those of `splits` splits: of each block the 256s of 8 octets, then
/// their ones; and sums and factors. Eight lanes bring a block.
MF_FN void store_unit_octet(MF_T t, MF_LOCAL(const f32) values, u32 o, u32 splits) {
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, unit_one_shared(splits).sums * 4u);
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

/// All columns of a row, as `splits` splits.
MF_FN void stage_unit_row(MF_T t, MF_GLOBAL(const f32) x, u32 splits, u32 cols, u32 wide) {
  for (u32 o = t.index; o < splits * (kUnitSplit / 8u); o += t.threads) {
    f32 values[8];
    load_octet(values, x, o * 8u, cols, wide);
    store_unit_octet(t, values, o, splits);
  }
}

/// 16 rows of a matrix from `row`, of which a SIMD group takes split after split: number `split` of
/// the `splits` that its group takes in a turn. Copies bring codes, scales and biases to shared
/// memory, in whole lines and without a register, the next turn's while one is multiplied. There
/// are few SIMD groups and each waits for itself, so that its instructions count: no branch keeps
/// blocks from running into each other. Where columns end, others' codes meet activations of zero.
template <u32 BITS>
struct UnitPart {
  enum : u32 {
    kRowWords = BITS * kUnitBitWords,              // from one row to the next
    kScales = BITS * (kUnitRows * kUnitBitWords),  // where scales and biases begin
    kWords = kScales + kUnitRows * kUnitScaleWords,
    kOwn = kUnitSplit / 128u * BITS,  // lanes that bring a row, 16 bytes each
  };
  UnitMatrix m;
  MF_GLOBAL(const u8) data;
  MF_GLOBAL(const u8) scales;
  MF_GLOBAL(const u8) biases;
  u32 cols;
  u32 row;
  u32 split;
  u32 splits;
  UnitShared shared;

  MF_FN_MEMBER u32 first_column(u32 turn) const { return (turn * splits + split) * kUnitSplit; }
  MF_FN_MEMBER bool has_any(u32 turn) const { return row < m.rows && first_column(turn) < cols; }
  MF_FN_MEMBER u32 place(MF_T t, u32 turn) const {
    return shared.begin + (turn & 1u) * shared.stride + t.simd * static_cast<u32>(kWords);
  }

  /// A batch of copies, also if there is nothing to copy.
  MF_FN_MEMBER void issue(MF_T t, u32 turn) const {
    if (has_any(turn)) {
      const u32 first = first_column(turn);
      const u32 last = m.rows - 1u - row;  // past the last row that one is multiplied again
      m.wide != 0u ? copy_codes(t, place(t, turn), first, last)
                   : read_codes(t, place(t, turn), first, last);
      copy_scales(t, place(t, turn) + kScales, first, last);
    }
    copies_commit(t);
  }
  MF_FN_MEMBER MF_GLOBAL(const u32) first_codes(u32 first) const {
    return MF_CAST(const u32, data) +
           (row * static_cast<u64>(cols / 32u * BITS) + first / 32u * BITS);
  }
  MF_FN_MEMBER void copy_codes(MF_T t, u32 at, u32 first, u32 last) const {
    const u32 row_words = cols / 32u * BITS;
    const u32 unit = t.lane % kOwn * 4u;
    const u32 r = t.lane / kOwn;
    MF_GLOBAL(const u32)
    from = first_codes(first) + (unit < row_words - first / 32u * BITS ? unit : 0u);
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (at + r * kRowWords + unit) * 4u);
    MF_UNROLL
    for (u32 i = 0u; i < kUnitRows; i += 32u / kOwn) {
      const u32 below = r + i < last ? r + i : last;
      copy_async4(t, to + i * kRowWords, from + static_cast<u64>(below) * row_words);
    }
  }
  /// Of rows that begin anywhere.
  MF_FN_MEMBER void read_codes(MF_T t, u32 at, u32 first, u32 last) const {
    const u32 row_words = cols / 32u * BITS;
    const u32 left = row_words - first / 32u * BITS;
    MF_GLOBAL(const u32) from = first_codes(first);
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, at * 4u);
    MF_ROLLED
    for (u32 i = t.lane; i < kOwn * (4u * kUnitRows); i += 32u) {
      const u32 r = i / (kOwn * 4u);
      const u32 c = i % (kOwn * 4u);
      to[r * kRowWords + c] =
          from[static_cast<u64>(r < last ? r : last) * row_words + (c < left ? c : 0u)];
    }
  }
  /// Of a row the scales of 8 blocks, two a word, then the biases: an even lane has the former.
  MF_FN_MEMBER void copy_scales(MF_T t, u32 at, u32 first, u32 last) const {
    MF_GLOBAL(const u8) from = (t.lane & 1u) == 0u ? scales : biases;
    const u32 below = t.lane / 2u < last ? t.lane / 2u : last;
    const u64 groups = static_cast<u64>(row + below) * (cols >> m.group_shift);
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (at + t.lane * (kUnitScaleWords / 2u)) * 4u);
    if (m.wide_scales != 0u) {
      copy_async4(t, to, MF_CAST(const u32, from) + (groups + first / kUnitBlock) / 2u);
      return;
    }
    const u32 last_block = cols / kUnitBlock - 1u;
    MF_ROLLED
    for (u32 i = 0u; i < kUnitSplitBlocks / 2u; ++i) {
      to[i] = load_scale_pair(m, from, groups, first / kUnitBlock + 2u * i, last_block);
    }
  }

  /// Leaves 16 sums in `to`, of the activations of split `staged` of `count`.
  MF_FN_MEMBER void multiply(MF_T t, u32 turn, u32 staged, u32 count, MF_SHARED(f32) to) const {
    const f32 sum = has_any(turn) ? product(t, place(t, turn), staged, count) : 0.0f;
    if ((t.lane & 1u) == 0u) to[t.lane / 4u + (t.lane & 2u) * 4u] = sum;
  }

  MF_FN_MEMBER void load_codes(MF_LOCAL(u32) words, MF_SHARED(u32) from) const {
    if (BITS == 4u) {
      const W2 two = load2(from);
      words[0] = two.v[0];
      words[1] = two.v[1];
    } else {
      const W4 four = load4(from);
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) words[i % (BITS / 2u)] = four.v[i];
    }
  }

  /// Of row lane / 4 in the first two of four lanes, of the row 8 further in the others.
  MF_FN_MEMBER f32 product(MF_T t, u32 at, u32 staged, u32 count) const {
    const u32 g = t.lane / 4u;
    MF_SHARED(u32)
    codes = MF_SHARED_AT(t, u32, (at + g * kRowWords + (t.lane & 3u) * (BITS / 2u)) * 4u);
    MF_SHARED(f32)
    sums =
        MF_SHARED_AT(t, f32, unit_one_shared(count).sums * 4u) + staged * (kUnitSplitBlocks * 2u);
    const u32 scale_row = g + (t.lane & 2u) * 4u;
    const W4 pairs = load4(MF_SHARED_AT(
        t, u32,
        (at + kScales + scale_row * kUnitScaleWords + (t.lane & 1u) * (kUnitScaleWords / 2u)) *
            4u));
    f32 own[kUnitSplitBlocks];
    MF_UNROLL
    for (u32 b = 0u; b < kUnitSplitBlocks; ++b)
      own[b] = unit_scale(pairs.v[b / 2u], b % 2u, m.scales);
    // Columns 0, 2, 4 and 6 of a step are the 256s, the others the ones: four lanes have the same
    // two rows, of which the first two finish the first and the others the second.
    MF_SHARED(u32)
    x_bytes = MF_SHARED_AT(t, u32, 0u) + (staged * kUnitSplitBlocks * kUnitBlockWords +
                                          (g & 1u) * (kUnitBlockWords / 2u) + (t.lane & 3u) * 4u);
    f32 total = 0.0f;
    MF_UNROLL
    for (u32 b = 0u; b < kUnitSplitBlocks; ++b) {
      i32 c[4] = {0, 0, 0, 0};
      const W4 x = load4(x_bytes + b * kUnitBlockWords);
      u32 words[BITS];
      load_codes(words, codes + b * (2u * BITS));
      load_codes(words + BITS / 2u, codes + (8u * kRowWords + b * (2u * BITS)));
      MF_UNROLL
      for (u32 h = 0u; h < 2u; ++h) {
        const W2 low = UnitCodes<BITS>::octet(words, h);
        const W2 high = UnitCodes<BITS>::octet(words + BITS / 2u, h);
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

/// Brings the first turn under way, or the first two where there is room.
template <u32 BITS>
MF_FN void unit_begin_turns(MF_T t, MF_LOCAL(const UnitPart<BITS>) part) {
  part->issue(t, 0u);
  if (part->shared.stride != 0u) part->issue(t, 1u);
}

/// All turns of a SIMD group, each with 16 sums of its own in `parts`. SIMD groups need not wait
/// for each other in between.
template <u32 BITS>
MF_FN void unit_multiply_turns(MF_T t, MF_LOCAL(const UnitPart<BITS>) part, MF_SHARED(f32) parts) {
  const bool has_two = part->shared.stride != 0u;
  const u32 staged = part->shared.turns * part->splits;
  for (u32 turn = 0u; turn < part->shared.turns; ++turn) {
    if (has_two) {
      copies_wait<1u>(t);
    } else {
      copies_wait<0u>(t);
    }
    simd_barrier(t);
    part->multiply(t, turn, turn * part->splits + part->split, staged,
                   parts + (turn * kUnitSimds + t.simd) * kUnitRows);
    simd_barrier(t);
    if (turn + 1u < part->shared.turns) part->issue(t, turn + (has_two ? 2u : 1u));
  }
  barrier(t);
}

/// The sum of a row's splits, in order.
MF_FN f32 sum_unit_splits(MF_SHARED(f32) parts, UnitShared shared, u32 splits, u32 cols) {
  f32 sum = 0.0f;
  for (u32 turn = 0u; turn < shared.turns; ++turn) {
    f32 held[kUnitSimds];
    MF_UNROLL
    for (u32 s = 0u; s < kUnitSimds; ++s) {  // no branch: all on their way together
      held[s] = parts[(turn * kUnitSimds + (s < splits ? s : 0u)) * kUnitRows];
    }
    MF_UNROLL
    for (u32 s = 0u; s < kUnitSimds; ++s) {
      const bool exists = s < splits && (turn * splits + s) * kUnitSplit < cols;
      sum = exists ? sum + held[s] : sum;
    }
  }
  return sum;
}

/// A row of x in memory.
struct UnitMemoryRow {
  MF_GLOBAL(const f32) x;

  MF_FN_MEMBER void stage(MF_T t, MF_PARAMS(UnitLinearParams) p) const {
    stage_unit_row(t, x, p.shared.turns * p.splits, p.cols, p.wide);
  }
};

/// The 16 * 8 / splits rows of a group, which begin at `first_row`: gives a thread the sum of the
/// row of its number.
template <u32 BITS, class Source>
MF_FN f32 unit_row_of_one(MF_T t, MF_PARAMS(UnitLinearParams) p, UnitMatrix m, u32 first_row,
                          MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                          MF_GLOBAL(const u8) biases, MF_LOCAL(const Source) source) {
  const u32 staged = p.shared.turns * p.splits;
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(staged).parts * 4u);
  const u32 shift = splits_shift(p.splits);
  const UnitPart<BITS> part = {m,
                               data,
                               scales,
                               biases,
                               p.cols,
                               first_row + (t.simd >> shift) * kUnitRows,
                               t.simd & (p.splits - 1u),
                               p.splits,
                               p.shared};
  unit_begin_turns(t, &part);
  await_inputs(t);
  source->stage(t, p);
  barrier(t);
  unit_multiply_turns(t, &part, parts);
  if (t.index >= (kUnitSimds * kUnitRows) >> shift) return 0.0f;
  const u32 own = t.index / kUnitRows * p.splits * kUnitRows + t.index % kUnitRows;
  return sum_unit_splits(parts + own, p.shared, p.splits, p.cols);
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
  MF_ROLLED
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
/// multiprocessor has room for four groups, with them for two.
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
MF_UNIT_LINEAR_ONE(unit_linear_one4, 4u, 4)
#undef MF_UNIT_LINEAR_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
