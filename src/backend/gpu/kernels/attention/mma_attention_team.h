// Attention of many queries over pages in f16, where GPUs multiply by teams of four SIMD groups: a
// group has two teams of 64 rows of one kv head. Keys and values come in larger halves, as products
// of teams take them (mma_attention_team_halves). Sums are those of mma_attention_tiles.h.
//
// Where shared memory has places for two tiles, of heads of up to 128 columns, teams take turns:
// one makes weights while units multiply for the other. Wider ones go together.
#pragma once

#include "backend/gpu/dialect/team_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_many.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where things lie in shared memory, in words: queries of two teams, larger halves before smaller
/// ones, keys, values, three factors of each key. BLOCKS of 64 columns.
template <u32 BLOCKS>
struct TeamTile {
  enum : u32 {
    kTeams = 2,
    kSlots = BLOCKS <= 2u ? 2u : 1u,
    kWords = BLOCKS * kTeamTileBlockWords,
    kFactorWords = 3u * kTileKeys,
    kFactorSlots = 1u + kSlots,
    kTileWords = 2u * kWords + kFactorWords,  // in device memory
    kKeys = kTeams * 2u * kWords,
    kValues = kKeys + kSlots * kWords,
    kFactors = kValues + kSlots * kWords,
    kFlags = kFactors + kFactorSlots * kFactorWords,  // of keys, then of values
    kNumFlags = 2u * kSlots,
  };
  static MF_FN_MEMBER u32 key_flag(u32 tile) { return kFlags + tile % kSlots * 2u; }
  static MF_FN_MEMBER u32 value_flag(u32 tile) { return kFlags + (kSlots + tile % kSlots) * 2u; }
  static MF_FN_MEMBER void await_keys(MF_T t, u32 tile) {
    TeamCopies::await(t, key_flag(tile), tile / kSlots % 2u);
  }
  static MF_FN_MEMBER void await_values(MF_T t, u32 tile) {
    TeamCopies::await(t, value_flag(tile), tile / kSlots % 2u);
  }
  static MF_FN_MEMBER u32 keys(u32 tile) { return kKeys + tile % kSlots * kWords; }
  static MF_FN_MEMBER u32 values(u32 tile) { return kValues + tile % kSlots * kWords; }
  static MF_FN_MEMBER u32 factors(u32 tile) {
    return kFactors + tile % kFactorSlots * kFactorWords;
  }
};

/// The word of columns c to c + 1, c a multiple of four, of a row in halves; those of c + 2 and
/// c + 3 are a piece further. A lane of a product then has four columns in a row.
MF_FN u32 team_word(u32 row, u32 c, u32 pair) {
  return c / 64u * kTeamTileBlockWords + team_piece(row, c % 64u / 16u * 2u + pair) + c / 4u % 4u;
}

/// Group x: a tile, from the first of p; y: a kv head; z: its keys or its values. 128 threads. A
/// row of values with NaN or infinity becomes zeros, as in bring_values().
MF_FN void bring_team_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) pages,
                           HeadsLayout page, u32 cols, MF_GLOBAL(u32) to, MF_GLOBAL(f32) factors) {
  const bool are_values = t.group.z != 0u;
  const u32 end = p.begin + p.tokens;
  const u32 tile = (p.first_part + t.group.x) * kTileKeys;
  MF_ROLLED
  for (u32 n = t.simd; n < kTileKeys / 8u; n += 4u) {
    const u32 key = n * 8u + t.lane / 4u;
    const bool exists = tile + key >= p.first_key && tile + key < end;
    KeyRows<u16> rows;
    rows.load(t, position_row<u16>(t, p, pages, page, exists ? tile + key : end - 1u, t.group.y),
              cols, exists);
    const u32 exponent = key_exponent<u16>(t, &rows);
    if ((t.lane & 3u) == 0u && !are_values) factors[key] = out_of_halves(exponent);
    if ((t.lane & 3u) == 0u && are_values) {
      factors[kTileKeys + key] = value_shift(exponent);
      factors[2u * kTileKeys + key] = value_inverse(exponent);
    }
    const bool is_clean = !are_values || exponent != kNotFinite;
    MF_UNROLL
    for (u32 s = 0u; s < kTileSteps; ++s) {
      if (s >= (cols + 63u) / 64u * 4u) continue;
      W2 halves = {{0u, 0u}};
      if (is_clean) halves = larger_halves(scaled(rows.numbers(s), into_halves(exponent)));
      const u32 c = s * 16u + (t.lane & 3u) * 4u;
      to[team_word(key, c, 0u)] = halves.v[0];
      to[team_word(key, c, 1u)] = halves.v[1];
    }
  }
}
MF_FITS(128, 2)
MF_KERNEL(mma_attention_team_halves, AttentionParams, MF_READ(0, u64, k_pages),
          MF_READ(1, u64, v_pages), MF_WRITE(2, u32, halves)) {
  MF_THREAD;
  const u32 words = (p.head_dim + 63u) / 64u * kTeamTileBlockWords;
  MF_GLOBAL(u32)
  to = halves +
       static_cast<u64>(t.group.y * p.num_parts + t.group.x) * (2u * words + 3u * kTileKeys);
  MF_GLOBAL(f32) factors = MF_CAST(f32, to + 2u * words);
  if (t.group.z == 0u) {
    bring_team_rows(t, p, k_pages, p.k_page, p.head_dim, to, factors);
  } else {
    bring_team_rows(t, p, v_pages, p.v_page, p.v_head_dim, to + words, factors);
  }
}

/// Begins to copy the keys and factors of a group's tile number `tile`, which lie at `from`.
template <u32 BLOCKS>
MF_FN void copy_team_keys(MF_T t, u32 tile, MF_GLOBAL(const u32) from) {
  typedef TeamTile<BLOCKS> Tile;
  const u32 flag = Tile::key_flag(tile);
  TeamCopies::expect(t, flag, Tile::kWords + Tile::kFactorWords);
  TeamCopies::copy<Tile::kWords>(t, flag, Tile::keys(tile), from);
  TeamCopies::copy<Tile::kFactorWords>(t, flag, Tile::factors(tile), from + 2u * Tile::kWords);
}
template <u32 BLOCKS>
MF_FN void copy_team_values(MF_T t, u32 tile, MF_GLOBAL(const u32) from) {
  typedef TeamTile<BLOCKS> Tile;
  const u32 flag = Tile::value_flag(tile);
  TeamCopies::expect(t, flag, Tile::kWords);
  TeamCopies::copy<Tile::kWords>(t, flag, Tile::values(tile), from + Tile::kWords);
}

/// A SIMD group's 16 queries in halves, among those of its team.
template <u32 BLOCKS>
MF_FN void stage_team_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                           u32 first_row, u32 queries, MF_LOCAL(ManyRow) rows) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    rows[below].factor = 0.0f;
    rows[below].all = no_sum();
  }
  MF_ROLLED
  for (u32 r = 0u; r < 16u; ++r) {
    F4 held[kQueryPieces];
    const u32 exponent = load_query(t, p, q, query_row(t, p, first_row + r), p.head_dim, held);
    MF_UNROLL
    for (u32 u = 0u; u < kQueryPieces; ++u) {
      const u32 c = u * 128u + t.lane * 4u;
      if (c >= BLOCKS * 64u) continue;
      const W4 pairs = split_four(scaled(held[u], into_halves(exponent)));
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 word = queries + i / 2u * TeamTile<BLOCKS>::kWords +
                         team_word((t.simd & 3u) * 16u + r, c, i % 2u);
        MF_SHARED_AT(t, u32, word * 4u)[0] = pairs.v[i];
      }
    }
    const f32 factor = out_of_halves(exponent) * p.scale;
    if (t.lane / 4u == r % 8u && r < 8u) rows[0].factor = factor;
    if (t.lane / 4u == r % 8u && r >= 8u) rows[1].factor = factor;
  }
}

/// Sums of a team's rows and a tile's keys, larger halves of queries and smaller ones apart:
/// number 4 n + i is of key 8 n + 2 quad + i % 2.
struct TeamScores {
  f32 high[kTileKeys / 2];
  f32 low[kTileKeys / 2];
};
template <u32 BLOCKS>
MF_FN void begin_team_scores(MF_T t, u32 queries, u32 keys, MF_LOCAL(TeamScores) sums) {
  const u32 x = queries / 4u;
  const u32 y = keys / 4u;
  const u32 low = x + TeamTile<BLOCKS>::kWords / 4u;
  TeamHalves::begin(t);
  TeamHalves::rows64<true>(t, sums->low, low, y);
  TeamHalves::rows64<true>(t, sums->high, x, y);
  MF_UNROLL
  for (u32 s = 1u; s < BLOCKS * 4u; ++s) {
    const u32 piece = s / 4u * (kTeamTileBlockWords / 4u) + s % 4u * 2u;
    TeamHalves::rows64<false>(t, sums->low, low + piece, y + piece);
    TeamHalves::rows64<false>(t, sums->high, x + piece, y + piece);
  }
  TeamHalves::end(t);
}

/// Scores with their values' exponents, as score_half() has them.
MF_FN void team_scores(MF_T t, u32 factors, MF_LOCAL(TeamScores) sums, MF_LOCAL(const ManyRow) rows,
                       MF_LOCAL(f32) scores) {
  TeamHalves::hold<kTileKeys / 2u>(sums->high);
  TeamHalves::hold<kTileKeys / 2u>(sums->low);
  MF_SHARED(u32) own = MF_SHARED_AT(t, u32, (factors + (t.lane & 3u) * 2u) * 4u);
  MF_UNROLL
  for (u32 n = 0u; n < kTileKeys / 8u; ++n) {
    const W2 key_factors = load2(own + n * 8u);
    const W2 shifts = load2(own + (kTileKeys + n * 8u));
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      // The factor of a key is a power of two, so that its product is exact.
      scores[n * 4u + i] =
          mf_fma((sums->high[n * 4u + i] + sums->low[n * 4u + i]) * rows[i / 2u].factor,
                 as_float(key_factors.v[i % 2u]), as_float(shifts.v[i % 2u]));
    }
  }
}

/// 64 columns of a tile's values times weights: of 16 keys the smaller halves, then the larger
/// ones.
MF_FN void begin_team_values(MF_T t, u32 values, MF_LOCAL(const TileRows) weights,
                             MF_LOCAL(f32) sums) {
  const u32 y = values / 4u;
  TeamHalves::begin(t);
  TeamHalves::columns64<true>(t, sums, weights[0].low, y);
  TeamHalves::columns64<false>(t, sums, weights[0].high, y);
  MF_UNROLL
  for (u32 k = 1u; k < 4u; ++k) {
    TeamHalves::columns64<false>(t, sums, weights[k].low, y + k * (kTeamEightWords / 2u));
    TeamHalves::columns64<false>(t, sums, weights[k].high, y + k * (kTeamEightWords / 2u));
  }
  TeamHalves::end(t);
}

/// Factors of a tile's columns, for both rows of a lane.
MF_FN void merge_team_rows(MF_LOCAL(const PartSum) sums, bool is_seen, MF_LOCAL(ManyRow) rows,
                           MF_LOCAL(PartMerge) merges) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    merges[below] = merge_parts(rows[below].all, sums[below]);
    if (is_seen) rows[below].all = merges[below].all;
  }
}
/// Adds the columns of a block to those of the tiles before. Rows of a SIMD group that sees none of
/// a tile stay as they are.
MF_FN void merge_team_block(MF_LOCAL(f32) block, MF_LOCAL(const PartMerge) merges, bool is_seen,
                            MF_LOCAL(f32) columns) {
  TeamHalves::hold<32u>(block);
  if (!is_seen) return;
  MF_UNROLL
  for (u32 i = 0u; i < 32u; ++i) {
    columns[i] = mf_fma(columns[i], merges[i / 2u % 2u].keep, block[i] * merges[i / 2u % 2u].add);
  }
}

/// Takes up rows where the launch for the tiles before these left them.
template <u32 BLOCKS>
MF_FN void resume_team_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) out,
                            MF_GLOBAL(f32) partials, u32 first_row, MF_LOCAL(ManyRow) rows,
                            MF_LOCAL(f32) columns) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + below * 8u);
    if (row.end == 0u) continue;
    MF_GLOBAL(f32) from = out + row_out(p, row);
    rows[below].all = resume_sum(p, partials, row);
    MF_UNROLL
    for (u32 j = 0u; j < BLOCKS * 4u; ++j) {
      const u32 c = j * 16u + (t.lane & 3u) * 4u;
      F4 four = no_columns();
      if (c < p.v_head_dim) four = load4(MF_CAST(const f32, from + c));
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        columns[(j * 2u + e / 2u) * 4u + below * 2u + e % 2u] = four.v[e];
      }
    }
  }
}

/// Writes rows: finished, or as they are, for the launch that goes on with them.
template <u32 BLOCKS>
MF_FN void leave_team_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) sinks,
                           MF_GLOBAL(const f32) gate, MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials,
                           u32 first_row, MF_LOCAL(const ManyRow) rows,
                           MF_LOCAL(const f32) columns) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + below * 8u);
    if (row.end == 0u) continue;
    const f32 factor = end_row(t, p, sinks, partials, row, rows[below].all);
    MF_GLOBAL(const f32) gates = gates_of(p, gate, row.token, row.head);
    MF_GLOBAL(f32) to = out + row_out(p, row);
    MF_UNROLL
    for (u32 j = 0u; j < BLOCKS * 4u; ++j) {
      const u32 c = j * 16u + (t.lane & 3u) * 4u;
      if (c >= p.v_head_dim) continue;
      F4 four;
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        four.v[e] = columns[(j * 2u + e / 2u) * 4u + below * 2u + e % 2u];
        if (p.finishes != 0u) four.v[e] = finished(p, four.v[e], factor, gates, c + e);
      }
      store4(to + c, four);
    }
  }
}

/// A group's tiles: number 0 is tile `first`.
struct TeamTiles {
  ManyRange range;
  u32 first;
  u32 count;
};

MF_FN bool sees_team_tile(MF_LOCAL(const TeamTiles) tiles, u32 number) {
  const u32 key = (tiles->first + number) * kTileKeys;
  return key < tiles->range.high && key + kTileKeys > tiles->range.low;
}

/// Scores of a tile become weights.
template <u32 BLOCKS>
MF_FN void weigh_team_tile(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const TeamTiles) tiles,
                           u32 number, MF_LOCAL(f32) scores, MF_LOCAL(TileRows) weights,
                           MF_LOCAL(PartSum) sums) {
  const u32 key = (tiles->first + number) * kTileKeys;
  if (key < tiles->range.all_low || key + kTileKeys > tiles->range.all_high) {
    mask_scores(t, p, tiles->range.own_row, key, scores);
  }
  const u32 inverses = TeamTile<BLOCKS>::factors(number) + 2u * kTileKeys;
  weigh_rows(t, MF_SHARED_AT(t, u32, inverses * 4u), scores, weights, sums);
}

/// A team's rows, from tile to tile.
template <u32 BLOCKS>
struct TeamState {
  ManyRow rows[2];
  f32 columns[BLOCKS * 32u];
  f32 scores[kTileKeys / 2u];
  TileRows weights[4];
  PartSum sums[2];
};

/// Scores of tile `number`.
template <u32 BLOCKS>
MF_FN void score_team_tile(MF_T t, u32 queries, u32 number, MF_LOCAL(TeamState<BLOCKS>) state) {
  typedef TeamTile<BLOCKS> Tile;
  TeamScores sums;
  Tile::await_keys(t, number);
  begin_team_scores<BLOCKS>(t, queries, Tile::keys(number), &sums);
  TeamHalves::wait<0u>(t);
  team_scores(t, Tile::factors(number), &sums, state->rows, state->scores);
}

/// Adds values of tile `number` to a team's columns and, if AHEAD, makes scores of the next tile.
template <u32 BLOCKS, bool AHEAD>
MF_FN void add_team_tile(MF_T t, u32 queries, u32 number, bool is_seen,
                         MF_LOCAL(TeamState<BLOCKS>) state) {
  typedef TeamTile<BLOCKS> Tile;
  const u32 values = Tile::values(number);
  TeamScores next;
  f32 blocks[2][32];
  PartMerge merges[2];
  if (AHEAD) {
    Tile::await_keys(t, number + 1u);
    begin_team_scores<BLOCKS>(t, queries, Tile::keys(number + 1u), &next);
  }
  Tile::await_values(t, number);
  begin_team_values(t, values, state->weights, blocks[0]);
  merge_team_rows(state->sums, is_seen, state->rows, merges);
  if (AHEAD) {
    TeamHalves::wait<1u>(t);
    team_scores(t, Tile::factors(number + 1u), &next, state->rows, state->scores);
  }
  MF_UNROLL
  for (u32 b = 0u; b < BLOCKS; ++b) {
    if (b + 1u < BLOCKS) {
      begin_team_values(t, values + (b + 1u) * kTeamTileBlockWords, state->weights,
                        blocks[(b + 1u) % 2u]);
      TeamHalves::wait<1u>(t);
    } else {
      TeamHalves::wait<0u>(t);
    }
    merge_team_block(blocks[b % 2u], merges, is_seen, state->columns + b * 32u);
  }
}

MF_FN void end_team_phase(MF_T t) {
  TeamCopies::finish(t);
  barrier(t);
}

/// Teams take turns: one makes weights while units multiply for the other, whose turns come one
/// phase later. Keys `number` + 1 and values `number` are in use for two phases, while those after
/// them come into the other places.
template <u32 BLOCKS>
MF_FN void walk_team_turns(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const TeamTiles) tiles,
                           u32 team, u32 queries, MF_GLOBAL(const u32) from,
                           MF_LOCAL(TeamState<BLOCKS>) state) {
  typedef TeamTile<BLOCKS> Tile;
  score_team_tile<BLOCKS>(t, queries, 0u, state);
  end_team_phase(t);
  if (team == 1u) end_team_phase(t);
  MF_ROLLED
  for (u32 number = 0u; number < tiles->count; ++number) {
    const bool has_next = number + 1u < tiles->count;
    MF_UNROLL
    for (u32 turn = 0u; turn < 2u; ++turn) {
      // The phase in which team 0 multiplies: all have read the tile before.
      if (turn != team && has_next) {
        copy_team_values<BLOCKS>(t, number + 1u, from + Tile::kTileWords);
        // Keys behind the last ones are any: a branch around their products has all others wait.
        copy_team_keys<BLOCKS>(t, number + 2u,
                               from + (number + 2u < tiles->count ? 2u : 1u) * Tile::kTileWords);
      }
      if (turn == 0u) {
        weigh_team_tile<BLOCKS>(t, p, tiles, number, state->scores, state->weights, state->sums);
      } else {
        add_team_tile<BLOCKS, true>(t, queries, number, sees_team_tile(tiles, number), state);
      }
      end_team_phase(t);
    }
    from = from + Tile::kTileWords;
  }
  if (team == 0u) end_team_phase(t);
}

/// All teams go together, with one place for keys and one for values.
template <u32 BLOCKS>
MF_FN void walk_team_tiles(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const TeamTiles) tiles,
                           u32 queries, MF_GLOBAL(const u32) from,
                           MF_LOCAL(TeamState<BLOCKS>) state) {
  MF_ROLLED
  for (u32 number = 0u; number < tiles->count; ++number) {
    const bool has_next = number + 1u < tiles->count;
    from = from + TeamTile<BLOCKS>::kTileWords;
    score_team_tile<BLOCKS>(t, queries, number, state);
    end_team_phase(t);
    if (has_next) copy_team_keys<BLOCKS>(t, number + 1u, from);
    weigh_team_tile<BLOCKS>(t, p, tiles, number, state->scores, state->weights, state->sums);
    add_team_tile<BLOCKS, false>(t, queries, number, sees_team_tile(tiles, number), state);
    end_team_phase(t);
    if (has_next) copy_team_values<BLOCKS>(t, number + 1u, from);
  }
}

/// Group x: 128 rows, the last ones first, as they take longest; y: a kv head.
template <u32 BLOCKS>
MF_FN void attend_team(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                       MF_GLOBAL(const u32) halves, MF_GLOBAL(const f32) sinks, MF_GLOBAL(f32) out,
                       MF_GLOBAL(f32) partials, MF_GLOBAL(const f32) gate) {
  typedef TeamTile<BLOCKS> Tile;
  TeamTiles tiles;
  tiles.range = many_range<8u, true>(t, p);
  tiles.first = tiles.range.tile;
  tiles.count = tiles.range.stop > tiles.first ? tiles.range.stop - tiles.first : 0u;
  const u32 first_row = tiles.range.own_row;
  const u32 team = simd_shuffle(t, t.simd / 4u, 0u);
  const u32 queries = team * (2u * Tile::kWords);
  MF_GLOBAL(const u32)
  from = halves + (static_cast<u64>(t.group.y) * p.num_parts + tiles.first - p.first_part) *
                      Tile::kTileWords;
  TeamCopies::make(t, Tile::kFlags, Tile::kNumFlags);
  barrier(t);
  if (tiles.count > 0u) {
    copy_team_keys<BLOCKS>(t, 0u, from);
    copy_team_values<BLOCKS>(t, 0u, from);
    if (Tile::kSlots > 1u) {
      copy_team_keys<BLOCKS>(t, 1u, from + (tiles.count > 1u ? Tile::kTileWords : 0u));
    }
  }
  TeamState<BLOCKS> state;
  stage_team_rows<BLOCKS>(t, p, q, first_row, queries, state.rows);
  MF_UNROLL
  for (u32 i = 0u; i < BLOCKS * 32u; ++i) state.columns[i] = 0.0f;
  if (p.resumes != 0u) {
    resume_team_rows<BLOCKS>(t, p, out, partials, first_row, state.rows, state.columns);
  }
  copies_publish(t);
  end_team_phase(t);
  if (tiles.count > 0u) {
    if (Tile::kSlots > 1u) {
      walk_team_turns<BLOCKS>(t, p, &tiles, team, queries, from, &state);
    } else {
      walk_team_tiles<BLOCKS>(t, p, &tiles, queries, from, &state);
    }
  }
  leave_team_rows<BLOCKS>(t, p, sinks, gate, out, partials, first_row, state.rows, state.columns);
}

#define MF_ATTENTION_TEAM(name, BLOCKS)                                                \
  MF_FITS(256, 1)                                                                      \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_READ(1, u32, halves),        \
            MF_READ(2, f32, sinks), MF_WRITE(3, f32, out), MF_WRITE(4, f32, partials), \
            MF_READ(5, f32, gate)) {                                                   \
    MF_THREAD;                                                                         \
    attend_team<BLOCKS>(t, p, q, halves, sinks, out, partials, gate);                  \
  }
MF_ATTENTION_TEAM(mma_attention_team_d64, 1u)
MF_ATTENTION_TEAM(mma_attention_team_d128, 2u)
MF_ATTENTION_TEAM(mma_attention_team_d256, 4u)
#undef MF_ATTENTION_TEAM

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
