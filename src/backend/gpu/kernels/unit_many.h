// Products on matrix units for many tokens: a SIMD group has 32 rows of matrices times 32 tokens,
// column block after column block; activations are split beforehand and staged in shared memory.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// x as pairs of bf16, an octet of columns in 8 words: high halves, low halves; and its sums over
/// blocks. Group y: the row; a thread an octet, cols / 8 rounded up to whole SIMD groups.
MF_KERNEL(unit_split, UnitSplitParams, MF_READ(0, f32, x), MF_WRITE(1, u32, split),
          MF_WRITE(2, f32, sums)) {
  MF_THREAD;
  const u32 o = t.group.x * t.threads + t.index;
  const UnitOctet octet = unit_octet(x + t.group.y * p.x_stride, o * 8u, p.cols, p.wide);
  const f32 sum = unit_block_sum(t, octet.sum);
  if (o * 8u >= p.cols) return;
  MF_GLOBAL(u32) to = split + (static_cast<u64>(t.group.y) * p.cols + o * 8u);
  store4(to, octet.high);
  store4(to + 4u, octet.low);
  if (o % 8u == 0u) sums[static_cast<u64>(t.group.y) * (p.cols / kUnitBlock) + o / 8u] = sum;
}

enum : u32 { kNoRow = 0xffffffffu };

/// Two tiles of 16 rows: `low` and `low + 8` as a lane has them, within their matrices.
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

/// Shared memory, in words: the rows of x, their sums over a block, their halves. TOKENS of them.
template <u32 TOKENS>
struct UnitManyShared {
  enum : u32 { kSums = TOKENS, kStaged = 2u * TOKENS };
};

/// A thread's part of a block of TOKENS rows of x on their way to shared memory.
template <u32 TOKENS>
struct UnitStage {
  enum : u32 { kUnits = TOKENS * 16u / kUnitThreads };  // of 16 bytes
  W4 units[kUnits];
  f32 sum;

  MF_FN_MEMBER void load(MF_T t, MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) sums, u32 cols,
                         u32 block) {
    MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
    MF_UNROLL
    for (u32 i = 0u; i < kUnits; ++i) {
      const u32 at = i * kUnitThreads + t.index;
      const u32 row = rows[at / 16u];
      const W4 nothing = {{0u, 0u, 0u, 0u}};
      units[i] =
          row == kNoRow
              ? nothing
              : load4(split + (static_cast<u64>(row) * cols + block * kUnitBlock + at % 16u * 4u));
    }
    sum = 0.0f;
    if (t.index < TOKENS) {
      const u32 row = rows[t.index];
      if (row != kNoRow) sum = sums[static_cast<u64>(row) * (cols / kUnitBlock) + block];
    }
  }

  MF_FN_MEMBER void store(MF_T t) const {
    MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, UnitManyShared<TOKENS>::kSums * 4u);
    MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, UnitManyShared<TOKENS>::kStaged * 4u);
    MF_UNROLL
    for (u32 i = 0u; i < kUnits; ++i) {
      const u32 at = i * kUnitThreads + t.index;
      const u32 part = at % 2u;
      const u32 octet = at / 2u % 8u;
      store4(
          staged + (at / 16u * kUnitTokenWords + part * 32u + octet % 2u * 16u + octet / 2u * 4u),
          units[i]);
    }
    if (t.index < TOKENS) sums[t.index] = sum;
  }
};

/// One block of columns: two tiles of rows, whose codes are `now0` and `now1`, times the halves of
/// 32 tokens, the lane's first of which lies at `own`.
template <u32 BITS>
MF_FN void unit_multiply_block(MF_T t, MF_LOCAL(f32) high, MF_LOCAL(f32) low,
                               MF_LOCAL(const u32) now0, MF_LOCAL(const u32) now1,
                               MF_SHARED(u32) own) {
  MF_UNROLL
  for (u32 i = 0u; i < 32u; ++i) {
    high[i] = 0.0f;
    low[i] = 0.0f;
  }
  MF_UNROLL
  for (u32 h = 0u; h < 2u; ++h) {
    u32 a[2][8];  // of a tile: pairs 0 to 3 of the low row, then of the high one
    MF_UNROLL
    for (u32 tile = 0u; tile < 2u; ++tile) {
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        a[tile][i] = UnitCodes<BITS>::pair(tile == 0u ? now0 : now1, h, i);
        a[tile][i + 4u] = UnitCodes<BITS>::pair((tile == 0u ? now0 : now1) + BITS / 2u, h, i);
      }
    }
    MF_UNROLL
    for (u32 n = 0u; n < 4u; ++n) {
      const W4 x = load4(own + (n * 8u * kUnitTokenWords + h * 16u));
      const W4 y = load4(own + (n * 8u * kUnitTokenWords + 32u + h * 16u));
      MF_UNROLL
      for (u32 i = 0u; i < 4u; i += 2u) {
        MF_UNROLL
        for (u32 tile = 0u; tile < 2u; ++tile) {
          const u32 at = tile * 16u + n * 4u;
          matrix_multiply_add(t, high + at, a[tile][i], a[tile][i + 4u], a[tile][i + 1u],
                              a[tile][i + 5u], x.v[i], x.v[i + 1u]);
          matrix_multiply_add(t, low + at, a[tile][i], a[tile][i + 4u], a[tile][i + 1u],
                              a[tile][i + 5u], y.v[i], y.v[i + 1u]);
        }
      }
    }
  }
}

/// The word of a lane's scales for a block of a split, shifted so that its half is the lower one.
/// The words would be indexed by a variable, which takes them out of registers: choose instead.
MF_FN u32 unit_scale_word(MF_LOCAL(const u32) words, u32 within) {
  const u32 pair = within / 2u;
  const u32 word = pair == 0u ? words[0] : pair == 1u ? words[1] : pair == 2u ? words[2] : words[3];
  return word >> (16u * (within % 2u));
}

/// sums[tile * 16 + n * 4 + i]: two tiles of 16 rows times 32 tokens from `first` in shared memory;
/// i as matrix_multiply_add() has it. All threads of a group together.
template <u32 BITS, u32 TOKENS>
MF_FN void unit_multiply_many(MF_T t, MF_LOCAL(f32) sums, UnitMatrix m, u32 cols,
                              MF_GLOBAL(const u8) data0, MF_GLOBAL(const u8) scales0,
                              MF_GLOBAL(const u8) biases0, UnitTile tile0,
                              MF_GLOBAL(const u8) data1, MF_GLOBAL(const u8) scales1,
                              MF_GLOBAL(const u8) biases1, UnitTile tile1,
                              MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                              u32 first) {
  MF_SHARED(f32) block_sums = MF_SHARED_AT(t, f32, UnitManyShared<TOKENS>::kSums * 4u);
  MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, UnitManyShared<TOKENS>::kStaged * 4u);
  const u32 own = (first + t.lane / 4u) * kUnitTokenWords + (t.lane & 3u) * 4u;
  const u32 blocks = cols / kUnitBlock;
  f32 totals[32];
  MF_UNROLL
  for (u32 i = 0u; i < 32u; ++i) {
    sums[i] = 0.0f;
    totals[i] = 0.0f;
  }
  u32 codes[2][BITS];
  u32 scales[2][4];
  UnitStage<TOKENS> stage;
  stage.load(t, split, split_sums, cols, 0u);
  load_unit_codes<BITS>(t, codes[0], MF_CAST(const u32, data0), cols, tile0.low, tile0.high, 0u,
                        m.wide);
  load_unit_codes<BITS>(t, codes[1], MF_CAST(const u32, data1), cols, tile1.low, tile1.high, 0u,
                        m.wide);
  for (u32 block = 0u; block < blocks; ++block) {
    if (block > 0u) barrier(t);
    stage.store(t);
    u32 now[2][BITS];
    MF_UNROLL
    for (u32 i = 0u; i < 2u * BITS; ++i) now[i / BITS][i % BITS] = codes[i / BITS][i % BITS];
    if (block % kUnitSplitBlocks == 0u) {
      load_unit_scales(t, scales[0], m, scales0, biases0, cols, tile0.low, tile0.high, block);
      load_unit_scales(t, scales[1], m, scales1, biases1, cols, tile1.low, tile1.high, block);
    }
    if (block + 1u < blocks) {
      stage.load(t, split, split_sums, cols, block + 1u);
      load_unit_codes<BITS>(t, codes[0], MF_CAST(const u32, data0), cols, tile0.low, tile0.high,
                            block + 1u, m.wide);
      load_unit_codes<BITS>(t, codes[1], MF_CAST(const u32, data1), cols, tile1.low, tile1.high,
                            block + 1u, m.wide);
    }
    barrier(t);
    f32 high[32];
    f32 low[32];
    unit_multiply_block<BITS>(t, high, low, now[0], now[1], staged + own);
    const u32 within = block % kUnitSplitBlocks;
    const bool ends = within + 1u == kUnitSplitBlocks || block + 1u == blocks;
    MF_UNROLL
    for (u32 tile = 0u; tile < 2u; ++tile) {
      const u32 words[4] = {unit_scale_word(scales[tile], within), 0u, 0u, 0u};
      const UnitScales s = unit_scales<BITS>(t, words, 0u, m.scales);
      MF_UNROLL
      for (u32 n = 0u; n < 4u; ++n) {
        MF_UNROLL
        for (u32 i = 0u; i < 4u; ++i) {
          const u32 at = tile * 16u + n * 4u + i;
          const f32 sum = block_sums[first + n * 8u + (t.lane & 3u) * 2u + i % 2u];
          totals[at] =
              add_unit_block(totals[at], high[at], low[at], s.scale[i / 2u], s.bias[i / 2u], sum);
          if (ends) {
            sums[at] = sums[at] + totals[at];
            totals[at] = 0.0f;
          }
        }
      }
    }
  }
}

/// Group x: 128 rows; y: 64 tokens. 256 threads, of which each SIMD group has 32 of both.
template <u32 BITS>
MF_FN void unit_linear_tiles(MF_T t, MF_PARAMS(UnitLinearParams) p, MF_GLOBAL(const u8) data,
                             MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                             MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                             MF_GLOBAL(f32) out) {
  MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
  const u32 token = t.group.y * 2u * kUnitTokens;
  if (t.index < 2u * kUnitTokens) {
    rows[t.index] = token + t.index < p.tokens ? token + t.index : static_cast<u32>(kNoRow);
  }
  barrier(t);
  const UnitMatrix m = p.matrices[0];
  const u32 row = (t.group.x * 4u + t.simd / 2u) * 2u * kUnitRows;
  const u32 first = t.simd % 2u * kUnitTokens;
  f32 sums[32];
  unit_multiply_many<BITS, 2u * kUnitTokens>(
      t, sums, m, p.cols, data, scales, biases, unit_tile(t, row, m.rows), data, scales, biases,
      unit_tile(t, row + kUnitRows, m.rows), split, split_sums, first);
  MF_UNROLL
  for (u32 at = 0u; at < 32u; ++at) {
    const u32 out_row = row + at / 16u * kUnitRows + at / 2u % 2u * 8u + t.lane / 4u;
    const u32 out_token = token + first + at / 4u % 4u * 8u + (t.lane & 3u) * 2u + at % 2u;
    if (out_row < m.rows && out_token < p.tokens) {
      out[out_token * p.out_strides[0] + out_row] = sums[at];
    }
  }
}

MF_KERNEL(unit_linear, UnitLinearParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  if (p.matrices[0].bits == 4u) {
    unit_linear_tiles<4u>(t, p, data, scales, biases, split, split_sums, out);
  } else {
    unit_linear_tiles<8u>(t, p, data, scales, biases, split, split_sums, out);
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
  if (t.index < kUnitTokens) {
    rows[t.index] =
        t.index < tile.count ? list[tile.begin + t.index] / per_row : static_cast<u32>(kNoRow);
  }
  barrier(t);
  return tile;
}

template <u32 BITS>
MF_FN void unit_multiply_expert(MF_T t, MF_PARAMS(UnitExpertParams) p, MF_LOCAL(f32) sums,
                                ExpertMatrix first, u32 first_row, ExpertMatrix second,
                                u32 second_row, MF_GLOBAL(const u32) split,
                                MF_GLOBAL(const f32) split_sums) {
  unit_multiply_many<BITS, kUnitTokens>(
      t, sums, p.matrix, p.cols, MF_AT(t, const u8, first.data), MF_AT(t, const u8, first.scales),
      MF_AT(t, const u8, first.biases), unit_tile(t, first_row, p.matrix.rows),
      MF_AT(t, const u8, second.data), MF_AT(t, const u8, second.scales),
      MF_AT(t, const u8, second.biases), unit_tile(t, second_row, p.matrix.rows), split, split_sums,
      0u);
}

/// Group x: 128 rows of gate and of up, 16 of each a SIMD group; y: a tile of slots.
MF_KERNEL(unit_gate_up, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, p.top_k);
  if (tile.count == 0u) return;
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const u32 row = (t.group.x * kUnitSimds + t.simd) * kUnitRows;
  f32 sums[32];
  if (p.matrix.bits == 4u) {
    unit_multiply_expert<4u>(t, p, sums, gate, row, up, row, split, split_sums);
  } else {
    unit_multiply_expert<8u>(t, p, sums, gate, row, up, row, split, split_sums);
  }
  MF_UNROLL
  for (u32 at = 0u; at < 16u; ++at) {
    const u32 out_row = row + at / 2u % 2u * 8u + t.lane / 4u;
    const u32 slot = at / 4u * 8u + (t.lane & 3u) * 2u + at % 2u;
    if (out_row < p.matrix.rows && slot < tile.count) {
      out[list[tile.begin + slot] * p.out_stride + out_row] =
          gated_unit(sums[at] + bias_at(t, gate.bias, out_row, p.bias_format),
                     sums[at + 16u] + bias_at(t, up.bias, out_row, p.bias_format), p.activation,
                     p.alpha, p.limit, p.up_offset);
    }
  }
}

/// Group x: 256 rows, 32 a SIMD group; y: a tile of slots.
MF_KERNEL(unit_down, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, 1u);
  if (tile.count == 0u) return;
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 row = (t.group.x * kUnitSimds + t.simd) * 2u * kUnitRows;
  f32 sums[32];
  if (p.matrix.bits == 4u) {
    unit_multiply_expert<4u>(t, p, sums, down, row, down, row + kUnitRows, split, split_sums);
  } else {
    unit_multiply_expert<8u>(t, p, sums, down, row, down, row + kUnitRows, split, split_sums);
  }
  MF_UNROLL
  for (u32 at = 0u; at < 32u; ++at) {
    const u32 out_row = row + at / 16u * kUnitRows + at / 2u % 2u * 8u + t.lane / 4u;
    const u32 slot = at / 4u % 4u * 8u + (t.lane & 3u) * 2u + at % 2u;
    if (out_row < p.matrix.rows && slot < tile.count) {
      out[list[tile.begin + slot] * p.out_stride + out_row] =
          sums[at] + bias_at(t, down.bias, out_row, p.bias_format);
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
