// The gated delta rule and the selective scan, token after token. A group owns 32 columns of one
// head's state, and sixteen lanes of a SIMD group the rows of a few of them, in registers from the
// first token to the last.
// Other SIMD groups bring the tokens, a block of them while the block before is computed, and
// compute everything that does not depend on the state. So only the sums over the state and its
// update lie between a token and the next.
#pragma once

#include "backend/gpu/kernels/delta/params.h"
#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/segments.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_FN f32 softplus(f32 x) { return x > 20.0f ? x : mf_log1p(mf_exp(x)); }
MF_FN f32 delta_decay(f32 rate, f32 bias, f32 speed, f32 bound) {
  if (bound != 0.0f) return mf_exp(bound * sigmoid(speed * (rate + bias)));
  return mf_exp(-speed * softplus(rate + bias));
}
/// The factor that gives a key, or a query times `factor`, the length 1.
MF_FN f32 delta_scale(f32 factor, f32 squares) { return factor / mf_sqrt(squares + 1e-6f); }

/// Factors of a token's terms:
///   delta = beta v + recall (k s), which is beta (v - k (decay s))
///   out = decay (q s) + match delta, which is q s after
///   s = decay s + k delta
/// where recall is -beta decay, and match q k. So the sums are over the state as it was, and
/// neither waits for the other. Where rows decay by themselves, keys and queries of these sums have
/// been multiplied with the decays, and decay is 1 here. A scan has no recall.
MF_FN f32 delta_recall(f32 decay, f32 beta) { return -(beta * decay); }

/// Four pieces of a key or a query, `step` columns apart; nothing past its end.
struct DeltaRow {
  F4 v[4];

  MF_FN_MEMBER void load(MF_GLOBAL(const f32) row, u32 first, u32 step, u32 cols, u32 wide) {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
      const u32 c = first + i * step;
      v[i] = c < cols ? load_columns(row, c, cols, wide) : nothing;
    }
  }
};

MF_FN f32 add_products(f32 sum, F4 a, F4 b) {
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) sum = mf_fma(a.v[k], b.v[k], sum);
  return sum;
}

/// The sum of the products of what LANES lanes have: as simd_sum has it where a lane has one piece.
template <u32 LANES>
MF_FN f32 delta_product(MF_T t, MF_LOCAL(const DeltaRow) a, MF_LOCAL(const DeltaRow) b) {
  f32 parts[4];
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) parts[i] = add_products(0.0f, a->v[i], b->v[i]);
  f32 sum = (parts[0] + parts[2]) + (parts[1] + parts[3]);
  MF_UNROLL
  for (u32 mask = LANES / 2u; mask > 0u; mask /= 2u) sum = sum + simd_shuffle_xor(t, sum, mask);
  return sum;
}

/// Tokens with keys of up to UNITS * 32, and where a token has its parts, in words.
template <u32 UNITS, u32 RULE>
struct DeltaBlock {
  enum : u32 {
    kHasRows = RULE == kStateRowDelta ? 1u : 0u,
    kStageTokens = kDeltaStageUnits / UNITS,  // that a SIMD group brings
    kStageBlocks = 32u / kStageTokens,        // whose rates it finds together
    kStageLanes = 2u * UNITS,                 // that bring a token
    kKey = 0u,
    kQuery = UNITS * 32u,
    kDecays = UNITS * 64u,  // of rows
    kRecall = UNITS * 96u,  // the key times these
    kValues = UNITS * (64u + 64u * kHasRows),
    kDeltas = kValues + kDeltaColumns,
    kScalars = kDeltas + kDeltaColumns,
    kOuts = kScalars + 8u,
    kWords = kValues + kDeltaTokenWords
  };
};

/// Where a token of a block is: blocks take turns, and have one token more, which is read but not
/// computed.
template <class BLOCK>
MF_FN MF_SHARED(f32) delta_token(MF_T t, MF_PARAMS(DeltaParams) p, u32 block, u32 token) {
  return MF_SHARED_AT(t, f32, 0u) + (block % 2u * (p.block_tokens + 1u) + token) * BLOCK::kWords;
}

/// A thread's part of a token on its way.
template <u32 UNITS, u32 RULE>
struct DeltaStage {
  typedef DeltaBlock<UNITS, RULE> Block;
  DeltaRow query;
  DeltaRow key;
  DeltaRow rates;  // of rows, to which the biases are added
  DeltaRow biases;
  F4 values;
  f32 speed;
  f32 decay;  // of a token for each lane
  f32 beta;   // or the step of a scan

  /// Sets the values that do not change from token to token.
  MF_FN_MEMBER void begin(MF_T t, MF_PARAMS(DeltaParams) p, MF_GLOBAL(const f32) a_log,
                          MF_GLOBAL(const f32) dt_bias) {
    speed = mf_exp(a_log[t.group.y]);
    decay = 1.0f;
    beta = 0.0f;
    if (Block::kHasRows != 0u) {
      biases.load(dt_bias + t.group.y * p.key_dim, t.lane % Block::kStageLanes * 4u,
                  Block::kStageLanes * 4u, p.key_dim, p.wide);
    }
  }

  /// Takes tokens of kStageBlocks blocks, from `first` of `block` on.
  MF_FN_MEMBER void find_rates(MF_T t, MF_PARAMS(DeltaParams) p, u32 tokens, MF_GLOBAL(const f32) a,
                               MF_GLOBAL(const f32) b, MF_GLOBAL(const f32) dt_bias, u32 block,
                               u32 first) {
    const u32 token = (block + t.lane / Block::kStageTokens) * p.block_tokens + first +
                      t.lane % Block::kStageTokens;
    if (token >= tokens) return;
    if (RULE == kStateScan) {
      beta = softplus(a[token * p.a_stride + t.group.y] + dt_bias[t.group.y]);
      decay = mf_exp(-speed * beta);
      return;
    }
    if (RULE == kStateDelta) {
      decay =
          delta_decay(a[token * p.a_stride + t.group.y], dt_bias[t.group.y], speed, p.decay_bound);
    }
    beta = sigmoid(b[token * p.b_stride + t.group.y]);
  }

  MF_FN_MEMBER void load(MF_T t, MF_PARAMS(DeltaParams) p, u32 tokens, MF_GLOBAL(const f32) qkv,
                         MF_GLOBAL(const f32) a, u32 token) {
    const bool has_token = token < tokens;
    const u32 own = t.lane % Block::kStageLanes * 4u;
    const u32 head = t.group.y;
    const u32 at = has_token ? token : 0u;
    const u32 cols = has_token ? p.key_dim : 0u;
    MF_GLOBAL(const f32) row = qkv + at * p.qkv_stride;
    MF_GLOBAL(const f32) from = row + head / p.heads_together % p.key_heads * p.key_dim;
    query.load(from + p.query_at, own, Block::kStageLanes * 4u, cols, p.wide);
    key.load(from + p.key_at, own, Block::kStageLanes * 4u, cols, p.wide);
    if (Block::kHasRows != 0u) {
      rates.load(a + at * p.a_stride + head * p.key_dim, own, Block::kStageLanes * 4u, cols,
                 p.wide);
    }
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    values = nothing;
    const u32 col = t.group.x * kDeltaColumns + own;
    if (has_token && own < kDeltaColumns && col < p.value_dim) {
      values = load_columns(row + (p.value_at + head * p.value_dim), col, p.value_dim, p.wide);
    }
  }

  /// Divides a row by its length.
  MF_FN_MEMBER void normalize(MF_T t, f32 factor, MF_LOCAL(DeltaRow) row) {
    const f32 scale = delta_scale(factor, delta_product<Block::kStageLanes>(t, row, row));
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) row->v[i] = times(row->v[i], scale);
  }
  MF_FN_MEMBER void store_row(MF_T t, MF_LOCAL(const DeltaRow) row, MF_SHARED(f32) to) {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      store4(to + (i * Block::kStageLanes + t.lane % Block::kStageLanes) * 4u, row->v[i]);
    }
  }
  /// The rates of rows become decays, by which queries are multiplied.
  MF_FN_MEMBER void store_decays(MF_T t, MF_PARAMS(DeltaParams) p, MF_SHARED(f32) token) {
    DeltaRow recall;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) {
        const f32 own = delta_decay(rates.v[i].v[k], biases.v[i].v[k], speed, p.decay_bound);
        rates.v[i].v[k] = own;
        recall.v[i].v[k] = key.v[i].v[k] * own;
        query.v[i].v[k] = query.v[i].v[k] * own;
      }
    }
    store_row(t, &rates, token + Block::kDecays);
    store_row(t, &recall, token + Block::kRecall);
  }

  MF_FN_MEMBER void store(MF_T t, MF_PARAMS(DeltaParams) p, u32 block, MF_SHARED(f32) token) {
    if (RULE != kStateScan) {
      normalize(t, p.query_factor, &query);
      normalize(t, 1.0f, &key);
    }
    const f32 match = delta_product<Block::kStageLanes>(t, &query, &key);
    if (Block::kHasRows != 0u) store_decays(t, p, token);
    store_row(t, &query, token + Block::kQuery);
    store_row(t, &key, token + Block::kKey);
    const u32 lane =
        block % Block::kStageBlocks * Block::kStageTokens + t.lane / Block::kStageLanes;
    const f32 own_decay = simd_shuffle(t, decay, lane);
    const f32 own_beta = simd_shuffle(t, beta, lane);
    const u32 own = t.lane % Block::kStageLanes * 4u;
    if (own < kDeltaColumns) store4(token + (Block::kValues + own), times(values, own_beta));
    if (own == 0u) {
      const F4 four = {{own_decay, delta_recall(own_decay, own_beta), match, 0.0f}};
      store4(token + Block::kScalars, four);
    }
  }
};

/// Where a lane's parts of a token are.
struct DeltaPlaces {
  u32 row;
  u32 column;
  u32 out;
  bool has_delta;  // stores its column's
};

/// A token's parts for a lane.
template <u32 UNITS, u32 RULE>
struct DeltaToken {
  typedef DeltaBlock<UNITS, RULE> Block;
  enum : u32 { kRowPieces = Block::kHasRows != 0u ? UNITS / 2u : 1u };
  F4 key[UNITS / 2u];
  F4 query[UNITS / 2u];
  F4 decays[kRowPieces];
  F4 recalls[kRowPieces];
  f32 decay;
  f32 recall;
  f32 value;

  MF_FN_MEMBER void load(MF_SHARED(f32) token, MF_LOCAL(const DeltaPlaces) at) {
    MF_UNROLL
    for (u32 i = 0u; i < UNITS / 2u; ++i) {
      key[i] = load4(token + at->row + (Block::kKey + i * 64u));
      query[i] = load4(token + at->row + (Block::kQuery + i * 64u));
      if (Block::kHasRows != 0u) {
        decays[i % kRowPieces] = load4(token + at->row + (Block::kDecays + i * 64u));
        recalls[i % kRowPieces] = load4(token + at->row + (Block::kRecall + i * 64u));
      }
    }
    const F4 scalars = load4(token + Block::kScalars);
    decay = scalars.v[0];
    recall = scalars.v[1];
    value = (token + at->column)[Block::kValues];
  }
  /// By what a row of the state is multiplied.
  MF_FN_MEMBER f32 decay_of(u32 row) const {
    return Block::kHasRows != 0u ? decays[row / 4u % kRowPieces].v[row % 4u] : decay;
  }
};

/// A lane's part of the state: rows of kDeltaLaneColumns columns. The first column depends on the
/// lane, so that lanes next to each other exchange parts of their sums without choosing: the part
/// of mine that you sum up for the part of yours that I do.
template <u32 UNITS, u32 RULE>
struct DeltaCells {
  typedef DeltaBlock<UNITS, RULE> Block;
  typedef DeltaToken<UNITS, RULE> Token;
  enum : u32 { kRows = UNITS * 2u };
  f32 s[kDeltaLaneColumns][kRows];

  /// Sums of a row's products with the state. The first is the lane's own, without the other lanes
  /// that sum up the same column.
  MF_FN_MEMBER f32 sum(MF_T t, MF_LOCAL(const F4) row) const {
    f32 sums[kDeltaLaneColumns];
    MF_UNROLL
    for (u32 j = 0u; j < kDeltaLaneColumns; ++j) sums[j] = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < kRows; ++i) {
      MF_UNROLL
      for (u32 j = 0u; j < kDeltaLaneColumns; ++j) {
        sums[j] = mf_fma(s[j][i], row[i / 4u].v[i % 4u], sums[j]);
      }
    }
    MF_UNROLL
    for (u32 mask = 1u; mask < kDeltaLaneColumns; mask *= 2u) {
      MF_UNROLL
      for (u32 j = 0u; j < kDeltaLaneColumns; j += 2u * mask) {
        sums[j] = sums[j] + simd_shuffle_xor(t, sums[j + mask], mask);
      }
    }
    return sums[0];
  }

  MF_FN_MEMBER f32 delta(MF_T t, MF_LOCAL(const Token) token) const {
    if (RULE == kStateScan) return token->value;
    f32 recall = sum(t, RULE == kStateRowDelta ? token->recalls : token->key);
    MF_UNROLL
    for (u32 mask = kDeltaLaneColumns; mask < kDeltaParts; mask *= 2u) {
      recall = recall + simd_shuffle_xor(t, recall, mask);
    }
    return mf_fma(token->recall, recall, token->value);
  }

  MF_FN_MEMBER void apply(MF_T t, MF_LOCAL(const Token) token, MF_SHARED(f32) shared,
                          MF_LOCAL(const DeltaPlaces) at) {
    f32 deltas[kDeltaLaneColumns];
    deltas[0] = delta(t, token);
    MF_UNROLL
    for (u32 j = 1u; j < kDeltaLaneColumns; ++j) deltas[j] = simd_shuffle_xor(t, deltas[0], j);
    (shared + at->out)[Block::kOuts] = sum(t, token->query);
    if (at->has_delta) (shared + at->column)[Block::kDeltas] = deltas[0];
    MF_UNROLL
    for (u32 i = 0u; i < kRows; ++i) {
      MF_UNROLL
      for (u32 j = 0u; j < kDeltaLaneColumns; ++j) {
        s[j][i] = mf_fma(token->key[i / 4u].v[i % 4u], deltas[j], s[j][i] * token->decay_of(i));
      }
    }
  }
};

/// A column's result, of a lane each.
template <u32 UNITS, u32 RULE>
MF_FN f32 delta_out(MF_T t, MF_SHARED(f32) token) {
  typedef DeltaBlock<UNITS, RULE> Block;
  f32 sums[kDeltaOutParts];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOutParts; ++i) {
    sums[i] = (token + t.lane)[Block::kOuts + i * kDeltaOutPart];
  }
  MF_UNROLL
  for (u32 step = 1u; step < kDeltaOutParts; step *= 2u) {
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOutParts; i += 2u * step) sums[i] = sums[i] + sums[i + step];
  }
  const F4 scalars = load4(token + Block::kScalars);
  return mf_fma(scalars.v[2], (token + t.lane)[Block::kDeltas], scalars.v[0] * sums[0]);
}

/// The results of tokens from `first` of a block on to device memory, by the SIMD group that
/// brought them.
template <u32 UNITS, u32 RULE>
MF_FN void take_delta_results(MF_T t, MF_PARAMS(DeltaParams) p, u32 tokens, u32 block, u32 first,
                              MF_GLOBAL(const f32) qkv, f32 skip, MF_GLOBAL(f32) out) {
  typedef DeltaBlock<UNITS, RULE> Block;
  const u32 col = t.group.x * kDeltaColumns + t.lane;
  MF_UNROLL
  for (u32 i = 0u; i < Block::kStageTokens; ++i) {
    const u32 token = block * p.block_tokens + first + i;
    if (token >= tokens) continue;
    f32 value = delta_out<UNITS, RULE>(t, delta_token<Block>(t, p, block, first + i));
    if (col < p.value_dim) {
      if (RULE == kStateScan) {
        const u32 at = p.value_at + t.group.y * p.value_dim + col;
        value = mf_fma(skip, qkv[token * p.qkv_stride + at], value);
      }
      out[token * p.out.token_stride + t.group.y * p.out.head_stride + col] = value;
    }
  }
  simd_barrier(t);
}

/// The tokens of a block, two a turn. The compiler moves what a token reads among what the one
/// before computes.
template <class CELLS>
MF_FN void apply_delta_block(MF_T t, MF_PARAMS(DeltaParams) p, u32 tokens, MF_LOCAL(CELLS) cells,
                             u32 block, MF_LOCAL(const DeltaPlaces) at) {
  typedef typename CELLS::Block Block;
  MF_SHARED(f32) token = delta_token<Block>(t, p, block, 0u);
  typename CELLS::Token even;
  typename CELLS::Token odd;
  even.load(token, at);
  const u32 behind = tokens - block * p.block_tokens;
  u32 left = behind < p.block_tokens ? behind : p.block_tokens;
  MF_ROLLED
  for (; left >= 2u; left -= 2u) {
    cells->apply(t, &even, token, at);
    odd.load(token + Block::kWords, at);
    even.load(token + 2u * Block::kWords, at);
    cells->apply(t, &odd, token + Block::kWords, at);
    token = token + 2u * Block::kWords;
  }
  if (left == 1u) cells->apply(t, &even, token, at);
}

/// b: of a scan, what heads skip.
template <u32 UNITS, u32 RULE>
MF_FN void delta_columns(MF_T t, MF_PARAMS(DeltaParams) p, u32 tokens, MF_GLOBAL(const f32) qkv,
                         MF_GLOBAL(const f32) a, MF_GLOBAL(const f32) b, MF_GLOBAL(const f32) a_log,
                         MF_GLOBAL(const f32) dt_bias, MF_GLOBAL(f32) state, MF_GLOBAL(f32) out) {
  typedef DeltaBlock<UNITS, RULE> Block;
  typedef DeltaCells<UNITS, RULE> Cells;
  const u32 head = t.group.y;
  const bool has_cells = simd_shuffle(t, t.simd, 0u) < kDeltaSimds;
  const u32 part = t.lane % kDeltaParts;
  const u32 column = (t.simd * (32u / kDeltaParts) + t.lane / kDeltaParts) * kDeltaLaneColumns;
  const u32 own = part % kDeltaLaneColumns;
  const DeltaPlaces at = {part * 4u, column + own,
                          part / kDeltaLaneColumns * kDeltaOutPart + column + own,
                          part < kDeltaLaneColumns};
  MF_GLOBAL(f32) rows = state + static_cast<u64>(head) * p.key_dim * p.value_dim;
  const u32 first_row = part * 4u;
  const u32 first_col = t.group.x * kDeltaColumns + column;
  Cells cells;
  MF_UNROLL
  for (u32 i = 0u; i < Cells::kRows; ++i) {
    const u32 row = i / 4u * 64u + first_row + i % 4u;
    MF_UNROLL
    for (u32 j = 0u; j < kDeltaLaneColumns; ++j) {
      const u32 col = first_col + (j ^ own);
      const bool is_inside = has_cells && row < p.key_dim && col < p.value_dim;
      cells.s[j][i] = is_inside ? rows[row * p.value_dim + col] : 0.0f;
    }
  }
  const u32 first = (t.simd - kDeltaSimds) * Block::kStageTokens;
  const u32 brought = first + t.lane / Block::kStageLanes;
  const bool brings = !has_cells && first < p.block_tokens;
  const f32 skip = RULE == kStateScan ? b[head] : 0.0f;
  DeltaStage<UNITS, RULE> stage;
  stage.begin(t, p, a_log, dt_bias);
  if (brings) stage.load(t, p, tokens, qkv, a, brought);
  for (u32 i = t.index; i < Block::kOuts; i += t.threads) {
    delta_token<Block>(t, p, 0u, p.block_tokens)[i] = 0.0f;
    delta_token<Block>(t, p, 1u, p.block_tokens)[i] = 0.0f;
  }
  const u32 blocks = (tokens + p.block_tokens - 1u) / p.block_tokens;
  for (u32 round = 0u; round < blocks + 2u; ++round) {
    // A block comes in one round, is computed in the next and taken in the one after.
    if (has_cells && round > 0u && round <= blocks) {
      apply_delta_block<Cells>(t, p, tokens, &cells, round - 1u, &at);
    }
    if (brings && round >= 2u) {
      take_delta_results<UNITS, RULE>(t, p, tokens, round - 2u, first, qkv, skip, out);
    }
    if (brings && round < blocks) {
      if (round % Block::kStageBlocks == 0u) {
        stage.find_rates(t, p, tokens, a, b, dt_bias, round, first);
      }
      stage.store(t, p, round, delta_token<Block>(t, p, round, brought));
      stage.load(t, p, tokens, qkv, a, (round + 1u) * p.block_tokens + brought);
    }
    barrier(t);
  }
  if (!has_cells) return;
  MF_UNROLL
  for (u32 i = 0u; i < Cells::kRows; ++i) {
    const u32 row = i / 4u * 64u + first_row + i % 4u;
    MF_UNROLL
    for (u32 j = 0u; j < kDeltaLaneColumns; ++j) {
      const u32 col = first_col + (j ^ own);
      if (row < p.key_dim && col < p.value_dim) rows[row * p.value_dim + col] = cells.s[j][i];
    }
  }
}

/// Group x: 32 columns; y: a value head; z: the sequence, of several with a token each.
/// kDeltaThreads threads. For keys of up to UNITS * 32.
#define MF_DELTA_HEADS(name, UNITS, RULE, b)                                                   \
  MF_FITS(kDeltaThreads, 1u)                                                                   \
  MF_KERNEL(name, DeltaParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a), MF_READ(2, f32, b),   \
            MF_READ(3, f32, a_log), MF_READ(4, f32, dt_bias), MF_WRITE(5, f32, state),         \
            MF_WRITE(6, f32, out), MF_CONST(7, u64, states)) {                                 \
    MF_THREAD;                                                                                 \
    const u32 row = t.group.z;                                                                 \
    MF_GLOBAL(f32) own = state;                                                                \
    if (p.has_states != 0u) own = MF_AT(t, f32, states[row]);                                  \
    delta_columns<UNITS, RULE>(t, p, p.tokens, qkv + row * p.qkv_stride, a + row * p.a_stride, \
                               b + row * p.b_stride, a_log, dt_bias, own,                      \
                               out + row * p.out.token_stride);                                \
  }
MF_DELTA_HEADS(gated_delta_heads, 4u, kStateDelta, b)
MF_DELTA_HEADS(gated_delta_heads_wide, 8u, kStateDelta, b)
MF_DELTA_HEADS(gated_delta_row_heads, 4u, kStateRowDelta, b)
MF_DELTA_HEADS(selective_scan_heads, 4u, kStateScan, skip)
#undef MF_DELTA_HEADS

/// Groups of sequences that run on a multiprocessor at once, as a group waits for its tokens one by
/// one. Where shared memory has no room for two, each has the registers of both.
#if defined(MF_HAS_LARGE_SHARED)
enum : u32 { kDeltaSegmentGroups = 2 };
#else
enum : u32 { kDeltaSegmentGroups = 1 };
#endif

/// The same of sequences with several tokens each, which group z chooses one of.
#define MF_DELTA_SEGMENTS(name, UNITS, RULE, GROUPS, b)                                       \
  MF_FITS(kDeltaThreads, GROUPS)                                                              \
  MF_KERNEL(name, DeltaParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a), MF_READ(2, f32, b),  \
            MF_READ(3, f32, a_log), MF_READ(4, f32, dt_bias), MF_WRITE(5, f32, out),          \
            MF_CONST(6, u64, states), MF_CONST(7, u64, segments)) {                           \
    MF_THREAD;                                                                                \
    const Segment own = segment_of(segments[t.group.z]);                                      \
    delta_columns<UNITS, RULE>(t, p, own.number, qkv + own.first * p.qkv_stride,              \
                               a + own.first * p.a_stride, b + own.first * p.b_stride, a_log, \
                               dt_bias, MF_AT(t, f32, states[t.group.z]),                     \
                               out + own.first * p.out.token_stride);                         \
  }
MF_DELTA_SEGMENTS(gated_delta_segments, 4u, kStateDelta, kDeltaSegmentGroups, b)
MF_DELTA_SEGMENTS(gated_delta_segments_wide, 8u, kStateDelta, 1u, b)
MF_DELTA_SEGMENTS(gated_delta_row_segments, 4u, kStateRowDelta, 1u, b)
MF_DELTA_SEGMENTS(selective_scan_segments, 4u, kStateScan, kDeltaSegmentGroups, skip)
#undef MF_DELTA_SEGMENTS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
