// Heads on their way to attention, and keys and values to the pages of their sequence.
#pragma once

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/kv_tables.h"
#include "backend/ops/select_keys.h"

namespace moeflux::gpu {

/// Heads that attention does not follow.
void record_heads(Recorder& recorder, const AllHeads& all);

struct HeadsOp {
  Tensor q;  // null: only keys and values
  Tensor k;
  Tensor v;          // null: values are parts of keys
  const KvView& kv;  // of the first sequence
  const KvTables& tables;
  int64_t key_tokens = 1;  // of several sequences, whose lengths are in tokens
};
/// Appends k and v to the pages, with what waits for them and q.
void write_heads(GpuContext& gpu, const HeadsOp& op);
/// Appends keys by which others are chosen: those of tokens, or of whole candidates. The pages of
/// the first sequence with a row a key.
KvView append_index_keys(GpuContext& gpu, const HeadsOp& op, const SelectOptions& options);

}  // namespace moeflux::gpu
