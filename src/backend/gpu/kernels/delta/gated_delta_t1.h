// The gated delta rule for one token of each sequence, or a few of one. Keys and values have 128.
// The norm of its heads and their gate follow: a group owns a whole value head, as a norm needs it.
// The 64 KiB of state are on their way to registers before the tokens are there, if the host says
// that no launch still writes them, and stay there for all of them. Sums have the order that
// gated_delta.h and norm/sums.h give. There is one shape a rule only: code that runs once is bound
// by instruction fetch.
#pragma once

#include "backend/gpu/kernels/delta/gated_delta.h"
#include "backend/gpu/kernels/delta/params.h"
#include "backend/gpu/kernels/norm/sums.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Four columns a thread, in every 64.
enum : u32 { kDeltaOneRows = 8 };
/// SIMD groups that have work of their own while the others wait.
enum : u32 { kDeltaDecaySimd = 4, kDeltaBetaSimd = 5, kDeltaMatchSimd = 8, kDeltaNormSimd = 15 };

/// The value head of the group.
MF_FN u32 delta_head(MF_T t, MF_PARAMS(DeltaOneParams) p) {
  return t.group.y * p.key_head_step + t.group.x * p.value_head_step;
}

/// The thread's part of the state, which has row i at delta_row(i).
MF_FN u32 delta_cell(MF_T t) { return (t.simd * 4u) * kDeltaOneDim + t.lane * 4u; }
MF_FN u32 delta_row(u32 i) { return i / 4u * 64u + i % 4u; }

/// One SIMD group stages the query, the next one the key, divided by its length and multiplied by
/// `factor`.
MF_FN void stage_delta_row(MF_T t, F4 own, f32 factor) {
  const f32 scale = delta_scale(factor, simd_sum(t, add_products(0.0f, own, own)));
  const u32 to = t.simd == 0u ? kDeltaOneQuery : kDeltaOneKey;
  store4(MF_SHARED_AT(t, f32, to * 4u) + t.lane * 4u, times(own, scale));
}

/// The product of query and key, in one SIMD group.
MF_FN void store_delta_match(MF_T t) {
  const F4 query = load4(MF_SHARED_AT(t, f32, kDeltaOneQuery * 4u) + t.lane * 4u);
  const F4 key = load4(MF_SHARED_AT(t, f32, kDeltaOneKey * 4u) + t.lane * 4u);
  const f32 match = simd_sum(t, add_products(0.0f, query, key));
  if (t.lane == 0u) MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[2] = match;
}

/// A thread's rows of the key or the query.
struct DeltaOneRow {
  F4 v[2];
};
MF_FN DeltaOneRow load_delta_row(MF_T t, u32 words) {
  DeltaOneRow row;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    row.v[i] = load4(MF_SHARED_AT(t, f32, words * 4u) + (i * 64u + t.simd * 4u));
  }
  return row;
}

/// A column's sum over the SIMD groups.
MF_FN f32 sum_of_parts(MF_SHARED(f32) parts) {
  f32 sums[kDeltaOneSimds];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneSimds; ++i) sums[i] = parts[i * kDeltaOneDim];
  MF_UNROLL
  for (u32 step = 1u; step < kDeltaOneSimds; step *= 2u) {
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneSimds; i += 2u * step) sums[i] = sums[i] + sums[i + step];
  }
  return sums[0];
}

/// A thread's part of k s and q s; then s becomes decay s.
template <u32 RULE>
MF_FN void recall_cells(MF_T t, DeltaOneRow key, MF_LOCAL(F4) s) {
  DeltaOneRow query = load_delta_row(t, kDeltaOneQuery);
  const f32 decay = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[0];
  DeltaOneRow decays = query;
  if (RULE == kStateRowDelta) {
    decays = load_delta_row(t, kDeltaOneDecays);
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneRows; ++i) {
      const f32 own = decays.v[i / 4u].v[i % 4u];
      key.v[i / 4u].v[i % 4u] = key.v[i / 4u].v[i % 4u] * own;
      query.v[i / 4u].v[i % 4u] = query.v[i / 4u].v[i % 4u] * own;
    }
  }
  F4 recalls = {{0.0f, 0.0f, 0.0f, 0.0f}};
  F4 outs = recalls;
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) {
      recalls.v[c] = mf_fma(s[i].v[c], key.v[i / 4u].v[i % 4u], recalls.v[c]);
      outs.v[c] = mf_fma(s[i].v[c], query.v[i / 4u].v[i % 4u], outs.v[c]);
    }
    s[i] = times(s[i], RULE == kStateRowDelta ? decays.v[i / 4u].v[i % 4u] : decay);
  }
  const u32 at = t.simd * kDeltaOneDim + t.lane * 4u;
  store4(MF_SHARED_AT(t, f32, kDeltaOneRecalls * 4u) + at, recalls);
  store4(MF_SHARED_AT(t, f32, kDeltaOneSums * 4u) + at, outs);
}

/// The head's results in one SIMD group, which go on through the norm and the gate.
MF_FN void store_delta_head(MF_T t, MF_PARAMS(DeltaOneParams) p, F4 deltas, F4 scales, F4 gates,
                            MF_GLOBAL(f32) out) {
  const f32 match = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[2];
  F4 four = load4(MF_SHARED_AT(t, f32, kDeltaOneOuts * 4u) + t.lane * 4u);
  MF_UNROLL
  for (u32 c = 0u; c < 4u; ++c) four.v[c] = mf_fma(match, deltas.v[c], four.v[c]);
  if (p.has_norm != 0u) {
    const f32 squares = simd_sum(t, add_squares(0.0f, four));
    four = times(times(four, norm_factor(squares, kDeltaOneDim, p.epsilon)), scales);
    if (p.has_gate != 0u) four = times(four, gates);
  }
  store4(out + t.lane * 4u, four);
}

/// s += k delta
MF_FN void add_deltas(DeltaOneRow key, F4 deltas, MF_LOCAL(F4) s) {
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) {
      s[i].v[c] = mf_fma(key.v[i / 4u].v[i % 4u], deltas.v[c], s[i].v[c]);
    }
  }
}

/// Stores the decay of a head, in one SIMD group, which knows the head's speed and biases.
template <u32 RULE>
MF_FN void store_decay(MF_T t, MF_PARAMS(DeltaOneParams) p, F4 rates, F4 biases, f32 speed) {
  MF_SHARED(f32) scalars = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u);
  if (RULE == kStateRowDelta) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) {
      rates.v[c] = delta_decay(rates.v[c], biases.v[c], speed, p.decay_bound);
    }
    store4(MF_SHARED_AT(t, f32, kDeltaOneDecays * 4u) + t.lane * 4u, rates);
    if (t.lane == 0u) scalars[0] = 1.0f;
    return;
  }
  const f32 decay = delta_decay(rates.v[0], biases.v[0], speed, p.decay_bound);
  if (t.lane == 0u) scalars[0] = decay;
}

/// The biases of a head's decays: the lane's four, or one.
template <u32 RULE>
MF_FN F4 delta_biases(MF_T t, MF_GLOBAL(const f32) dt_bias, u32 head) {
  if (RULE == kStateRowDelta) return load4(dt_bias + head * kDeltaOneDim + t.lane * 4u);
  const F4 biases = {{dt_bias[head], 0.0f, 0.0f, 0.0f}};
  return biases;
}

/// The operands of all tokens.
struct DeltaOneOperands {
  MF_GLOBAL(const f32) qkv;
  MF_GLOBAL(const f32) a;
  MF_GLOBAL(const f32) b;
  MF_GLOBAL(const f32) gate;
  MF_GLOBAL(f32) out;
};
/// Values of a head that do not depend on the token, in the SIMD groups that need them.
struct DeltaOneHead {
  u32 head;
  u32 key_head;
  F4 scales;  // of the norm
  F4 biases;
  f32 speed;

  template <u32 RULE>
  MF_FN_MEMBER void load(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_GLOBAL(const f32) a_log,
                         MF_GLOBAL(const f32) dt_bias, MF_GLOBAL(const f32) weight) {
    const F4 ones = {{1.0f, 1.0f, 1.0f, 1.0f}};
    const F4 zeros = {{0.0f, 0.0f, 0.0f, 0.0f}};
    const bool has_decay = t.simd == kDeltaDecaySimd;
    scales = ones;
    biases = zeros;
    if (t.simd == kDeltaNormSimd && p.has_norm != 0u) scales = load4(weight + t.lane * 4u);
    if (has_decay) biases = delta_biases<RULE>(t, dt_bias, head);
    speed = has_decay ? mf_exp(a_log[head]) : 0.0f;
  }
};

/// A thread's part of a head's token on its way.
struct DeltaOneToken {
  F4 piece;   // of the query, the key, rates of decay, the rate of beta or the gate
  f32 value;  // of a column that the thread sums up what is recalled of

  template <u32 RULE>
  MF_FN_MEMBER void load(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_LOCAL(const DeltaOneHead) own,
                         MF_LOCAL(const DeltaOneOperands) all, u32 row) {
    const u32 head = own->head;
    const u32 col = t.lane * 4u;
    MF_GLOBAL(const f32) qkv = all->qkv + row * p.qkv_stride;
    if (t.index < kDeltaOneDim) value = (qkv + (2u * p.key_heads + head) * kDeltaOneDim)[t.index];
    if (t.simd < 2u) {
      piece = load4(qkv + (own->key_head + t.simd * p.key_heads) * kDeltaOneDim + col);
    } else if (t.simd == kDeltaDecaySimd) {
      MF_GLOBAL(const f32) rates = all->a + row * p.a_stride;
      if (RULE == kStateRowDelta) {
        piece = load4(rates + head * kDeltaOneDim + col);
      } else {
        piece.v[0] = rates[head];
      }
    } else if (t.simd == kDeltaBetaSimd) {
      piece.v[0] = (all->b + row * p.b_stride)[head];
    } else if (t.simd == kDeltaNormSimd && p.has_gate != 0u) {
      piece = load4(all->gate + row * p.gate_stride + (head * p.gate_head_stride + col));
    }
  }
};

/// The token of a head with state `s`, which goes on.
template <u32 RULE>
MF_FN void delta_of_head(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_LOCAL(const DeltaOneHead) own,
                         DeltaOneToken token, MF_LOCAL(F4) s, MF_GLOBAL(f32) out) {
  const u32 col = t.lane * 4u;
  const bool has_head = t.simd == kDeltaNormSimd;
  MF_SHARED(f32) scalars = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u);
  if (t.simd < 2u) stage_delta_row(t, token.piece, t.simd == 0u ? p.query_factor : 1.0f);
  if (t.simd == kDeltaDecaySimd) {
    store_decay<RULE>(t, p, token.piece, own->biases, own->speed);
  } else if (t.simd == kDeltaBetaSimd) {
    const f32 beta = sigmoid(token.piece.v[0]);
    if (t.lane == 0u) scalars[1] = beta;
  }
  barrier(t);
  const DeltaOneRow keys = load_delta_row(t, kDeltaOneKey);
  recall_cells<RULE>(t, keys, s);
  barrier(t);
  if (t.index < 2u * kDeltaOneDim) {
    // Sums over the recalled values, then over the results.
    const u32 column = t.index % kDeltaOneDim;
    const bool is_column = t.index < kDeltaOneDim;
    const u32 parts = is_column ? kDeltaOneRecalls : kDeltaOneSums;
    const f32 sum = sum_of_parts(MF_SHARED_AT(t, f32, parts * 4u) + column);
    const u32 to = is_column ? kDeltaOneDeltas : kDeltaOneOuts;
    const f32 decay = scalars[0];
    const f32 beta = scalars[1];
    MF_SHARED_AT(t, f32, to * 4u)
    [column] = is_column ? mf_fma(delta_recall(decay, beta), sum, token.value * beta) : decay * sum;
  } else if (t.simd == kDeltaMatchSimd) {
    store_delta_match(t);
  } else if (has_head && p.has_gate != 0u) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) {
      token.piece.v[c] =
          p.gate_activation == 0u ? silu(token.piece.v[c]) : sigmoid(token.piece.v[c]);
    }
  }
  barrier(t);
  const F4 deltas = load4(MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u) + col);
  if (has_head) {
    store_delta_head(t, p, deltas, own->scales, token.piece, out + own->head * p.out_head_stride);
  }
  add_deltas(keys, deltas, s);
}

MF_FN void store_cells(MF_GLOBAL(f32) cells, MF_LOCAL(const F4) s) {
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) store4(cells + delta_row(i) * kDeltaOneDim, s[i]);
}

template <u32 RULE>
MF_FN void delta_of_one(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_LOCAL(const DeltaOneOperands) all,
                        MF_GLOBAL(const f32) a_log, MF_GLOBAL(const f32) dt_bias,
                        MF_GLOBAL(const f32) weight, MF_GLOBAL(f32) state,
                        MF_GLOBAL(const u64) states) {
  DeltaOneHead own;
  own.head = delta_head(t, p);
  own.key_head = t.group.y;
  if (p.early == 0u) await_inputs(t);
  MF_GLOBAL(f32) own_state = p.has_states != 0u ? MF_AT(t, f32, states[t.group.z]) : state;
  MF_GLOBAL(f32) cells = own_state + (own.head * (kDeltaOneDim * kDeltaOneDim) + delta_cell(t));
  F4 s[kDeltaOneRows];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    s[i] = load4(MF_CAST(const f32, cells) + delta_row(i) * kDeltaOneDim);
  }
  own.load<RULE>(t, p, a_log, dt_bias, weight);
  if (p.early != 0u) await_inputs(t);
  // Nobody still reads what a token's turn has in shared memory when the next one's writes it:
  // between two writes of a place are two barriers at least.
  const u32 end = (t.group.z + 1u) * p.tokens;
  u32 row = end - p.tokens;
  DeltaOneToken token = {{{0.0f, 0.0f, 0.0f, 0.0f}}, 0.0f};
  token.load<RULE>(t, p, &own, all, row);
  MF_ROLLED
  for (; row + 1u < end; ++row) {
    DeltaOneToken next = token;
    next.load<RULE>(t, p, &own, all, row + 1u);
    delta_of_head<RULE>(t, p, &own, token, s, all->out + row * p.out_stride);
    token = next;
  }
  delta_of_head<RULE>(t, p, &own, token, s, all->out + row * p.out_stride);
  store_cells(cells, s);
}

/// The heads of all sequences, one after another in each group. A thread brings its part of the
/// state of heads to come to shared memory, so that memory is busy while others are computed.
template <u32 RULE>
struct DeltaWalk {
  u32 unit;  // a head of a sequence: of those that are brought
  u32 into;  // the place that it is brought to

  /// Where a unit's part of the state is.
  static MF_FN_MEMBER MF_GLOBAL(f32)
      cells_of(MF_T t, MF_PARAMS(DeltaOneParams) p, u32 unit, MF_GLOBAL(const u64) states) {
    const u32 heads = p.key_heads * p.heads_per_key;
    const u32 own = unit % heads;
    const u32 head =
        own / p.heads_per_key * p.key_head_step + own % p.heads_per_key * p.value_head_step;
    return MF_AT(t, f32, states[unit / heads]) +
           (head * (kDeltaOneDim * kDeltaOneDim) + delta_cell(t));
  }
  static MF_FN_MEMBER MF_SHARED(u32) place_of(MF_T t, u32 place) {
    return MF_SHARED_AT(
        t, u32, (kDeltaListBegin + (place * kDeltaOneRows * kDeltaOneThreads + t.index) * 4u) * 4u);
  }
  MF_FN_MEMBER void issue(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_GLOBAL(const u64) states) {
    if (unit < p.units) {
      MF_GLOBAL(const f32) cells = MF_CAST(const f32, cells_of(t, p, unit, states));
      MF_SHARED(u32) to = place_of(t, into);
      MF_UNROLL
      for (u32 i = 0u; i < kDeltaOneRows; ++i) {
        copy_async4(t, to + i * (kDeltaOneThreads * 4u),
                    MF_CAST(const u32, cells + delta_row(i) * kDeltaOneDim));
      }
    }
    copies_commit(t);
    unit += p.groups;
    into = into + 1u == kDeltaListPlaces ? 0u : into + 1u;
  }
};

template <u32 RULE>
MF_FN void delta_of_list(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_LOCAL(const DeltaOneOperands) all,
                         MF_GLOBAL(const f32) a_log, MF_GLOBAL(const f32) dt_bias,
                         MF_GLOBAL(const f32) weight, MF_GLOBAL(const u64) states) {
  await_inputs(t);
  DeltaWalk<RULE> walk = {t.group.x, 0u};
  MF_UNROLL
  for (u32 i = 0u; i + 1u < kDeltaListPlaces; ++i) walk.issue(t, p, states);
  u32 place = 0u;
  MF_ROLLED
  for (u32 unit = t.group.x; unit < p.units; unit += p.groups) {
    const u32 heads = p.key_heads * p.heads_per_key;
    const u32 sequence = unit / heads;
    DeltaOneHead own;
    own.key_head = unit % heads / p.heads_per_key;
    own.head = own.key_head * p.key_head_step + unit % p.heads_per_key * p.value_head_step;
    own.load<RULE>(t, p, a_log, dt_bias, weight);
    walk.issue(t, p, states);
    copies_wait<kDeltaListPlaces - 1u>(t);
    F4 s[kDeltaOneRows];
    MF_SHARED(u32) held = DeltaWalk<RULE>::place_of(t, place);
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneRows; ++i) {
      const W4 four = load4(held + i * (kDeltaOneThreads * 4u));
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) s[i].v[c] = as_float(four.v[c]);
    }
    place = place + 1u == kDeltaListPlaces ? 0u : place + 1u;
    DeltaOneToken token = {{{0.0f, 0.0f, 0.0f, 0.0f}}, 0.0f};
    token.load<RULE>(t, p, &own, all, sequence);
    delta_of_head<RULE>(t, p, &own, token, s, all->out + sequence * p.out_stride);
    store_cells(DeltaWalk<RULE>::cells_of(t, p, unit, states), s);
  }
}

/// Group z: a sequence of p.tokens tokens; y: a key head; x: one of its value heads.
/// kDeltaOneThreads threads. All rows begin on 16-byte boundaries.
#define MF_DELTA_ONE(name, RULE)                                                                \
  MF_FITS(kDeltaOneThreads, 1)                                                                  \
  MF_KERNEL(name, DeltaOneParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a), MF_READ(2, f32, b), \
            MF_CONST(3, f32, a_log), MF_CONST(4, f32, dt_bias), MF_CONST(5, f32, weight),       \
            MF_READ(6, f32, gate), MF_WRITE(7, f32, state), MF_WRITE(8, f32, out),              \
            MF_CONST(9, u64, states)) {                                                         \
    MF_THREAD_EARLY;                                                                            \
    const DeltaOneOperands all = {qkv, a, b, gate, out};                                        \
    delta_of_one<RULE>(t, p, &all, a_log, dt_bias, weight, state, states);                      \
  }
MF_DELTA_ONE(gated_delta_t1_d128, kStateDelta)
MF_DELTA_ONE(gated_delta_rows_t1_d128, kStateRowDelta)
#undef MF_DELTA_ONE

/// Group x of p.groups: heads of any sequence. Otherwise as above, with p.has_states.
#define MF_DELTA_LIST(name, RULE)                                                               \
  MF_FITS(kDeltaOneThreads, 1)                                                                  \
  MF_KERNEL(name, DeltaOneParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a), MF_READ(2, f32, b), \
            MF_CONST(3, f32, a_log), MF_CONST(4, f32, dt_bias), MF_CONST(5, f32, weight),       \
            MF_READ(6, f32, gate), MF_WRITE(7, f32, state), MF_WRITE(8, f32, out),              \
            MF_CONST(9, u64, states)) {                                                         \
    MF_THREAD_EARLY;                                                                            \
    static_cast<void>(state);                                                                   \
    const DeltaOneOperands all = {qkv, a, b, gate, out};                                        \
    delta_of_list<RULE>(t, p, &all, a_log, dt_bias, weight, states);                            \
  }
MF_DELTA_LIST(gated_delta_list_t1_d128, kStateDelta)
MF_DELTA_LIST(gated_delta_rows_list_t1_d128, kStateRowDelta)
#undef MF_DELTA_LIST

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
