// Attention as plans, once its keys and values are in their pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "backend/gpu/launch/kv_tables.h"
#include "backend/gpu/launch/operations.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/ops/attention.h"
#include "backend/sequence_rows.h"

namespace moeflux::gpu {

struct AttentionHeads {
  Tensor out;
  Tensor q;
  int64_t kv_heads = 0;
  const KvView& kv;  // of the first sequence
  AttentionOptions options;
  KvTables tables;
  bool may_leave_tiles = false;  // the next launch merges tiles of splits, too
  bool are_all_new = false;      // the last launch has written keys before the queries' own, too

  /// Whether test(kv) is true of every sequence.
  template <typename Test>
  bool all_kv(const Test& test) const {
    if (tables.is_of_one()) return test(kv);
    return std::all_of(tables.sequences.begin(), tables.sequences.end(),
                       [&](const KvRows& s) { return test(s.kv); });
  }
};
/// The result of the launches of attention, before a gate.
struct AttentionResult {
  AttentionParams params{};
  Binding partials;                 // unless a group walks all parts: what has to be merged
  std::optional<AttentionOp> last;  // a launch that is not recorded yet, as a gate may join it
};
/// Records all launches but one that a gate may join. False if the recorder fails.
bool record_attention(Recorder& recorder, const AttentionHeads& heads, AttentionResult& result);
/// The launch that merges parts.
AttentionOp merge_op(const AttentionHeads& heads, const AttentionResult& result);
/// With the gate, which joins the last launch.
Plan plan_gated(const AttentionOp& attention, const Tensor& gate);

}  // namespace moeflux::gpu
