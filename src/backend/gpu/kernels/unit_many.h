// Products on matrix units for many tokens: a SIMD group has 16 rows of a matrix times up to 32
// tokens, column block after column block. Activations become integers beforehand; their blocks are
// copied to shared memory, a few ahead of the one that is multiplied. So a group needs 128
// registers a thread at most, and while one of two decodes codes the other has the matrix units.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// x as bytes, an octet of columns in 4 words: 256s, ones; and of each block the sum of its
/// integers and its factor. Group y: the row; a thread an octet, cols / 8 rounded up to whole SIMD
/// groups.
MF_KERNEL(unit_split, UnitSplitParams, MF_READ(0, f32, x), MF_WRITE(1, u32, split),
          MF_WRITE(2, f32, sums)) {
  MF_THREAD;
  const u32 o = t.group.x * t.threads + t.index;
  f32 values[8];
  load_octet(values, x + t.group.y * p.x_stride, o * 8u, p.cols, p.wide);
  const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
  const UnitOctet octet = unit_octet(values, factor.into);
  const f32 sum = lanes_sum<8u>(t, octet.sum);
  if (o * 8u >= p.cols) return;
  const W4 words = {{octet.high.v[0], octet.high.v[1], octet.low.v[0], octet.low.v[1]}};
  store4(split + (static_cast<u64>(t.group.y) * (p.cols / 2u) + o * 4u), words);
  if (o % 8u == 0u) {
    MF_GLOBAL(f32) to = sums + (static_cast<u64>(t.group.y) * (p.cols / kUnitBlock) + o / 8u) * 2u;
    to[0] = sum;
    to[1] = factor.out_of;
  }
}

/// 16 rows of a matrix: `low` and `low + 8` as a lane has them.
struct UnitTile {
  u32 low;
  u32 high;
};

MF_FN UnitTile unit_tile(MF_T t, u32 row, u32 rows) {
  UnitTile tile;
  tile.low = row + t.lane / 4u < rows ? row + t.lane / 4u : rows - 1u;
  tile.high = tile.low + 8u < rows ? tile.low + 8u : rows - 1u;
  return tile;
}

/// A thread's part of the copies of blocks of TILES * 8 rows of x. The rows' numbers lie at the
/// beginning of shared memory, kUnitStages blocks after them, each with its sums and factors behind
/// it.
template <u32 TILES>
struct UnitCopies {
  enum : u32 {
    kUnits = TILES * 8u * 8u,  // of 16 bytes, an octet each
    kOwn = (kUnits + kUnitThreads - 1u) / kUnitThreads,
  };
  u64 from[kOwn];
  u32 to[kOwn];
  u64 sum_from;

  MF_FN_MEMBER void begin(MF_T t, u32 cols) {
    MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      const u32 at = (i * kUnitThreads + t.index) % kUnits;
      from[i] = static_cast<u64>(rows[at / 8u]) * (cols / 2u) + at % 8u * 4u;
      to[i] = at / 8u * kUnitTokenWords + at % 8u * 4u;
    }
    const u32 token = t.index < TILES * 16u ? t.index / 2u : 0u;
    sum_from = static_cast<u64>(rows[token]) * (cols / kUnitBlock * 2u) + t.index % 2u;
  }
  static MF_FN_MEMBER u32 stage(u32 block) {
    return kUnitTokens + block % kUnitStages * kUnitStageWords;
  }
  /// Block after block, beginning with the first.
  MF_FN_MEMBER void issue(MF_T t, MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) sums,
                          u32 block) {
    const u32 begin_words = stage(block);
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      if (i * kUnitThreads + t.index < static_cast<u32>(kUnits)) {
        copy_async4(t, MF_SHARED_AT(t, u32, (begin_words + to[i]) * 4u), split + from[i]);
      }
      from[i] += kUnitBlockWords;
    }
    if (t.index < TILES * 16u) {
      copy_async1(t, MF_SHARED_AT(t, f32, (begin_words + kUnitSums + t.index) * 4u),
                  sums + sum_from);
      sum_from += 2u;
    }
  }
};

/// The word of a lane's scales for a block of a split, shifted so that its half is the lower one.
/// The words would be indexed by a variable, which takes them out of registers: choose instead.
MF_FN u32 unit_scale_word(MF_LOCAL(const u32) words, u32 within) {
  const u32 pair = within / 2u;
  const u32 word = pair == 0u ? words[0] : pair == 1u ? words[1] : pair == 2u ? words[2] : words[3];
  return word >> (16u * (within % 2u));
}

/// A lane's codes of 16 rows on their way. Words are read one by one: rows may begin anywhere.
template <u32 BITS>
struct UnitCodesAhead {
  u32 words[2][BITS];  // of the next block and of the one after it
  u64 at[2];           // of the row and the one 8 below it

  MF_FN_MEMBER void begin(MF_T t, MF_GLOBAL(const u32) codes, u32 cols, UnitTile tile) {
    const u64 row_words = cols / 32u * BITS;
    at[0] = tile.low * row_words + (t.lane & 3u) * (BITS / 2u);
    at[1] = tile.high * row_words + (t.lane & 3u) * (BITS / 2u);
    load(codes, 0u, false);
    load(codes, 1u, cols > kUnitBlock);
  }
  /// Past the last block that one is read again.
  MF_FN_MEMBER void load(MF_GLOBAL(const u32) codes, u32 stage, bool moves) {
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      at[r] += moves ? 2u * BITS : 0u;
      MF_UNROLL
      for (u32 i = 0u; i < BITS / 2u; ++i) words[stage][r * (BITS / 2u) + i] = codes[at[r] + i];
    }
  }
  /// The next block's, and brings the one after those under way.
  MF_FN_MEMBER void take(MF_LOCAL(u32) now, MF_GLOBAL(const u32) codes, bool moves) {
    MF_UNROLL
    for (u32 i = 0u; i < BITS; ++i) {
      now[i] = words[0][i];
      words[0][i] = words[1][i];
    }
    load(codes, 1u, moves);
  }
};

/// One block of columns: 16 rows, whose codes are `now`, times TILES * 8 tokens; adds to the totals
/// of its split.
template <u32 BITS, u32 TILES>
MF_FN void add_unit_blocks(MF_T t, MF_LOCAL(f32) totals, MF_LOCAL(const u32) now, UnitScales s,
                           u32 block) {
  const u32 stage = UnitCopies<TILES>::stage(block);
  MF_SHARED(u32)
  own = MF_SHARED_AT(t, u32, stage * 4u) + (t.lane / 4u * kUnitTokenWords + (t.lane & 3u) * 8u);
  MF_SHARED(f32)
  sums = MF_SHARED_AT(t, f32, (stage + kUnitSums) * 4u) + (t.lane & 3u) * 4u;
  W2 low[2];
  W2 high[2];
  MF_UNROLL
  for (u32 h = 0u; h < 2u; ++h) {
    low[h] = UnitCodes<BITS>::octet(now, h);
    high[h] = UnitCodes<BITS>::octet(now + BITS / 2u, h);
  }
  MF_UNROLL
  for (u32 n = 0u; n < TILES; ++n) {
    i32 c[4] = {0, 0, 0, 0};  // of the 256s
    i32 d[4] = {0, 0, 0, 0};  // of the ones
    MF_UNROLL
    for (u32 h = 0u; h < 2u; ++h) {
      const W4 x = load4(own + (n * 8u * kUnitTokenWords + h * 4u));
      matrix_multiply_add_bytes(t, c, low[h].v[0], high[h].v[0], low[h].v[1], high[h].v[1], x.v[0],
                                x.v[1]);
      matrix_multiply_add_bytes(t, d, low[h].v[0], high[h].v[0], low[h].v[1], high[h].v[1], x.v[2],
                                x.v[3]);
    }
    const F4 two = load4(sums + n * 16u);  // sum and factor of two tokens
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 at = n * 4u + i;
      totals[at] = add_unit_block(totals[at], c[i], d[i], s.scale[i / 2u], s.bias[i / 2u],
                                  two.v[i % 2u * 2u], two.v[i % 2u * 2u + 1u]);
    }
  }
}

/// sums[n * 4 + i]: 16 rows of a matrix times TILES * 8 rows of x; i as matrix_multiply_add_bytes()
/// has it. All threads of a group together, each SIMD group with rows of its own.
template <u32 BITS, u32 TILES>
MF_FN void unit_multiply_many(MF_T t, MF_LOCAL(f32) sums, UnitMatrix m, u32 cols,
                              MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scale_data,
                              MF_GLOBAL(const u8) bias_data, u32 row, MF_GLOBAL(const u32) split,
                              MF_GLOBAL(const f32) split_sums) {
  const UnitTile tile = unit_tile(t, row, m.rows);
  const u32 blocks = cols / kUnitBlock;
  MF_GLOBAL(const u32) code_words = MF_CAST(const u32, data);
  MF_UNROLL
  for (u32 i = 0u; i < TILES * 4u; ++i) sums[i] = 0.0f;
  UnitCopies<TILES> copies;
  copies.begin(t, cols);
  MF_UNROLL
  for (u32 s = 0u; s + 1u < kUnitStages; ++s) {
    if (s < blocks) copies.issue(t, split, split_sums, s);
    copies_commit(t);
  }
  UnitCodesAhead<BITS> codes;
  codes.begin(t, code_words, cols, tile);
  u32 coming_scales[4];
  load_unit_scales(t, coming_scales, m, scale_data, bias_data, cols, tile.low, tile.high, 0u);
  for (u32 first = 0u; first < blocks; first += kUnitSplitBlocks) {
    u32 scales[4];
    f32 totals[TILES * 4u];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) scales[i] = coming_scales[i];
    MF_UNROLL
    for (u32 i = 0u; i < TILES * 4u; ++i) totals[i] = 0.0f;
    const bool is_last = blocks - first <= kUnitSplitBlocks;
    if (!is_last) {
      load_unit_scales(t, coming_scales, m, scale_data, bias_data, cols, tile.low, tile.high,
                       first + kUnitSplitBlocks);
    }
    const u32 end = is_last ? blocks : first + kUnitSplitBlocks;
    for (u32 block = first; block < end; ++block) {
      copies_wait<kUnitStages - 2u>(t);
      barrier(t);
      if (block + kUnitStages - 1u < blocks) {
        copies.issue(t, split, split_sums, block + kUnitStages - 1u);
      }
      copies_commit(t);
      u32 now[BITS];
      codes.take(now, code_words, block + 2u < blocks);
      const u32 words[4] = {unit_scale_word(scales, block - first), 0u, 0u, 0u};
      add_unit_blocks<BITS, TILES>(t, totals, now, unit_scales(t, words, 0u, m.scales), block);
    }
    MF_UNROLL
    for (u32 i = 0u; i < TILES * 4u; ++i) sums[i] = sums[i] + totals[i];
  }
}

/// Row and token of a lane's sum `at`.
MF_FN u32 unit_sum_row(MF_T t, u32 at) { return at / 2u % 2u * 8u + t.lane / 4u; }
MF_FN u32 unit_sum_token(MF_T t, u32 at) { return at / 4u * 8u + (t.lane & 3u) * 2u + at % 2u; }

/// 16 rows a SIMD group, TILES * 8 tokens from `token`.
template <u32 BITS, u32 TILES>
MF_FN void unit_linear_tiles(MF_T t, MF_PARAMS(UnitLinearParams) p, UnitMatrix m, u32 row,
                             u32 token, MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                             MF_GLOBAL(const u8) biases, MF_GLOBAL(const u32) split,
                             MF_GLOBAL(const f32) split_sums, MF_GLOBAL(f32) out, u64 out_stride) {
  f32 sums[TILES * 4u];
  unit_multiply_many<BITS, TILES>(t, sums, m, p.cols, data, scales, biases, row, split, split_sums);
  MF_UNROLL
  for (u32 at = 0u; at < TILES * 4u; ++at) {
    const u32 out_row = row + unit_sum_row(t, at);
    const u32 out_token = token + unit_sum_token(t, at);
    if (out_row < m.rows && out_token < p.tokens) out[out_token * out_stride + out_row] = sums[at];
  }
}

/// Group x: 128 rows of one of the matrices; y: 32 tokens. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_linear, UnitLinearParams, MF_CONST(0, u8, data0), MF_CONST(1, u8, scales0),
          MF_CONST(2, u8, biases0), MF_CONST(3, u8, data1), MF_CONST(4, u8, scales1),
          MF_CONST(5, u8, biases1), MF_CONST(6, u8, data2), MF_CONST(7, u8, scales2),
          MF_CONST(8, u8, biases2), MF_CONST(9, u8, data3), MF_CONST(10, u8, scales3),
          MF_CONST(11, u8, biases3), MF_READ(12, u32, split), MF_READ(13, f32, split_sums),
          MF_WRITE(14, f32, out0), MF_WRITE(15, f32, out1), MF_WRITE(16, f32, out2),
          MF_WRITE(17, f32, out3)) {
  MF_THREAD;
  u32 which = 0u;
  MF_UNROLL
  for (u32 i = 1u; i < kUnitMatricesMax; ++i) {
    if (i < p.count && t.group.x >= p.first_group[i]) which = i;
  }
  const UnitMatrix m = p.matrices[which];
  MF_GLOBAL(const u8)
  data = which == 0u ? data0 : which == 1u ? data1 : which == 2u ? data2 : data3;
  MF_GLOBAL(const u8)
  scales = which == 0u ? scales0 : which == 1u ? scales1 : which == 2u ? scales2 : scales3;
  MF_GLOBAL(const u8)
  biases = which == 0u ? biases0 : which == 1u ? biases1 : which == 2u ? biases2 : biases3;
  MF_GLOBAL(f32) out = which == 0u ? out0 : which == 1u ? out1 : which == 2u ? out2 : out3;
  const u64 stride = p.out_strides[which];
  MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
  const u32 token = t.group.y * kUnitTokens;
  const u32 last = p.tokens - 1u;
  // Past the last token its row is multiplied again, and not stored.
  if (t.index < kUnitTokens) rows[t.index] = token + t.index < last ? token + t.index : last;
  barrier(t);
  const u32 row = ((t.group.x - p.first_group[which]) * kUnitSimds + t.simd) * kUnitRows;
  const bool is_full = p.tokens - token > kUnitTokens / 2u;
  if (m.bits == 4u && is_full) {
    unit_linear_tiles<4u, 4u>(t, p, m, row, token, data, scales, biases, split, split_sums, out,
                              stride);
  } else if (m.bits == 4u) {
    unit_linear_tiles<4u, 2u>(t, p, m, row, token, data, scales, biases, split, split_sums, out,
                              stride);
  } else {
    unit_linear_tiles<8u, 4u>(t, p, m, row, token, data, scales, biases, split, split_sums, out,
                              stride);
  }
}

/// The rows of x of a tile of slots; returns the tile. x has a row for `per_row` slots.
MF_FN SlotTile stage_slot_rows(MF_T t, MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                               u32 per_row) {
  MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
  SlotTile tile;
  const u32 at = 1u + t.group.y * 3u;
  const bool exists = t.group.y < tiles[0];
  tile.entry = exists ? tiles[at] : 0u;
  tile.begin = exists ? tiles[at + 1u] : 0u;
  tile.count = exists ? tiles[at + 2u] : 0u;
  if (t.index < kUnitTokens && exists) {
    const u32 slot = t.index < tile.count ? t.index : tile.count - 1u;
    rows[t.index] = list[tile.begin + slot] / per_row;
  }
  barrier(t);
  return tile;
}

template <u32 BITS, u32 TILES>
MF_FN void unit_multiply_expert(MF_T t, MF_PARAMS(UnitExpertParams) p, MF_LOCAL(f32) sums,
                                ExpertMatrix matrix, u32 row, MF_GLOBAL(const u32) split,
                                MF_GLOBAL(const f32) split_sums) {
  unit_multiply_many<BITS, TILES>(t, sums, p.matrix, p.cols, MF_AT(t, const u8, matrix.data),
                                  MF_AT(t, const u8, matrix.scales),
                                  MF_AT(t, const u8, matrix.biases), row, split, split_sums);
}

/// 16 rows of the gate in one half of the SIMD groups, the same of up in the other half, which
/// hands them over.
template <u32 BITS, u32 TILES>
MF_FN void unit_gate_up_tiles(MF_T t, MF_PARAMS(UnitExpertParams) p, SlotTile tile,
                              MF_GLOBAL(const u64) entries, MF_GLOBAL(const u32) list,
                              MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                              MF_GLOBAL(f32) out) {
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const u32 pairs = kUnitSimds / 2u;
  const bool is_gate = t.simd < pairs;
  const u32 row = (t.group.x * pairs + t.simd % pairs) * kUnitRows;
  f32 sums[TILES * 4u];
  unit_multiply_expert<BITS, TILES>(t, p, sums, is_gate ? gate : up, row, split, split_sums);
  MF_SHARED(f32) ups = MF_SHARED_AT(t, f32, 0u) + (t.simd % pairs * TILES * 128u + t.lane);
  barrier(t);
  if (!is_gate) {
    MF_UNROLL
    for (u32 at = 0u; at < TILES * 4u; ++at) ups[at * 32u] = sums[at];
  }
  barrier(t);
  if (!is_gate) return;
  MF_UNROLL
  for (u32 at = 0u; at < TILES * 4u; ++at) {
    const u32 out_row = row + unit_sum_row(t, at);
    const u32 slot = unit_sum_token(t, at);
    if (out_row < p.matrix.rows && slot < tile.count) {
      out[list[tile.begin + slot] * p.out_stride + out_row] =
          gated_unit(sums[at] + bias_at(t, gate.bias, out_row, p.bias_format),
                     ups[at * 32u] + bias_at(t, up.bias, out_row, p.bias_format), p.activation,
                     p.alpha, p.limit, p.up_offset);
    }
  }
}

/// Group x: 64 rows of gate and of up; y: a tile of slots. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_gate_up, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, p.top_k);
  if (tile.count == 0u) return;
  if (p.matrix.bits == 4u && tile.count > kUnitTokens / 2u) {
    unit_gate_up_tiles<4u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  } else if (p.matrix.bits == 4u) {
    unit_gate_up_tiles<4u, 2u>(t, p, tile, entries, list, split, split_sums, out);
  } else {
    unit_gate_up_tiles<8u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  }
}

template <u32 BITS, u32 TILES>
MF_FN void unit_down_tiles(MF_T t, MF_PARAMS(UnitExpertParams) p, SlotTile tile,
                           MF_GLOBAL(const u64) entries, MF_GLOBAL(const u32) list,
                           MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                           MF_GLOBAL(f32) out) {
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 row = (t.group.x * kUnitSimds + t.simd) * kUnitRows;
  f32 sums[TILES * 4u];
  unit_multiply_expert<BITS, TILES>(t, p, sums, down, row, split, split_sums);
  MF_UNROLL
  for (u32 at = 0u; at < TILES * 4u; ++at) {
    const u32 out_row = row + unit_sum_row(t, at);
    const u32 slot = unit_sum_token(t, at);
    if (out_row < p.matrix.rows && slot < tile.count) {
      out[list[tile.begin + slot] * p.out_stride + out_row] =
          sums[at] + bias_at(t, down.bias, out_row, p.bias_format);
    }
  }
}

/// Group x: 128 rows; y: a tile of slots. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_down, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, 1u);
  if (tile.count == 0u) return;
  if (p.matrix.bits == 4u && tile.count > kUnitTokens / 2u) {
    unit_down_tiles<4u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  } else if (p.matrix.bits == 4u) {
    unit_down_tiles<4u, 2u>(t, p, tile, entries, list, split, split_sums, out);
  } else {
    unit_down_tiles<8u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
