#include "backend/gpu/launch/heads_plans.h"

#include <algorithm>
#include <utility>

#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"
#include "backend/pooled_pages.h"

namespace moeflux::gpu {
namespace {

// Up to here every head has a group of its own; more share one.
constexpr uint32_t kAloneMax = 256;
constexpr uint32_t kSimdsOfGroup = 4;

// The waiting operations on x, or null.
Heads find_heads(const AllHeads& all, const Tensor& x) {
  for (const Heads& heads : all) {
    if (are_same(heads.x, x)) return heads;
  }
  Heads nothing;
  nothing.x = x;
  return nothing;
}

u32 cached_code(DType type) {
  return type == DType::kI8 ? kCachedQ8 : type == DType::kF16 ? kCachedF16 : kCachedF32;
}

HeadsPart heads_part(const Heads& heads, std::span<const Tensor> pages, bool are_wide_pages) {
  HeadsPart part{};
  part.x = heads_layout(heads.x);
  if (!pages.empty()) {
    part.page = heads_layout(pages.front());
    part.stored = cached_code(pages.front().dtype);
  }
  part.heads = static_cast<u32>(heads.x.dim(1));
  part.cols = static_cast<u32>(heads.x.dim(2));
  part.has_norm = heads.has_norm() ? 1 : 0;
  part.has_weight = heads.norm.weight.is_null() ? 0 : 1;
  if (heads.has_rope()) {
    const uint64_t bytes = heads.rope.x.offset_bytes - heads.x.offset_bytes;
    part.turned = static_cast<u32>(bytes / sizeof(float));
    part.half = static_cast<u32>(heads.rope.options.rotary_dim / 2);
  }
  part.wide = is_wide(heads.x) && is_wide(heads.norm.weight) && part.cols % 4 == 0 && are_wide_pages
                  ? 1
                  : 0;
  part.epsilon = heads.norm.eps;
  return part;
}

Plan plan_write_heads(const Recorder& recorder, const AllHeads& waiting, const HeadsOp& op) {
  const auto& [q, k, v, kv, tables, key_tokens] = op;
  const Heads queries = q.is_null() ? Heads{} : find_heads(waiting, q);
  const Heads keys = find_heads(waiting, k);
  WriteHeadsParams p{};
  if (queries.has_norm() || queries.has_rope()) p.parts[0] = heads_part(queries, {}, true);
  p.parts[1] = heads_part(keys, kv.k_pages, have_wide_pages(tables, kv, &KvView::k_pages));
  const Heads values = v.is_null() ? Heads{} : find_heads(waiting, v);
  if (!v.is_null()) {
    p.parts[2] = heads_part(values, kv.v_pages, have_wide_pages(tables, kv, &KvView::v_pages));
  }
  const Heads& turned = keys.has_rope() ? keys : queries.has_rope() ? queries : values;
  const ops::Rope& rope = turned.rope;
  uint32_t heads = 0;
  for (const HeadsPart& part : p.parts) {
    heads += part.heads;
    // In fours, so that every SIMD group's begin on 16 bytes.
    if (part.heads > 0) p.stage_cols = std::max(p.stage_cols, (part.cols + 3) / 4 * 4);
  }
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.lengths = tables.lengths;
  p.key_tokens = static_cast<u32>(key_tokens);
  p.interleaved = rope.options.interleaved ? 1 : 0;
  p.unit = static_cast<u32>(rope.options.unit);
  p.factor = rope.options.attention_factor;
  p.early = turned.has_rope() && recorder.has_just_written(rope.positions) ? 0 : 1;
  const auto tokens = static_cast<uint32_t>(k.dim(0));
  const auto stage_bytes = 2 * p.stage_cols * static_cast<uint32_t>(sizeof(float));
  const bool together =
      heads * tokens > kAloneMax && kSimdsOfGroup * stage_bytes <= kSharedBytesMax;
  const uint32_t simds = together ? kSimdsOfGroup : 1;
  Plan plan = make_plan(KernelId::write_heads, {groups_for(heads, simds), tokens, 1},
                        simds * kSimdLanes, simds * stage_bytes);
  plan.set_params(p);
  for (const Heads* part : {&queries, &keys, &values}) {
    const bool changes = part->has_norm() || part->has_rope();
    plan.bind(range_of(part->x, changes ? Access::kReadWrite : Access::kRead));
  }
  for (const Heads* part : {&queries, &keys, &values}) {
    plan.bind(range_of(part->norm.weight, Access::kRead));
  }
  plan.bind(range_of(rope.positions, Access::kRead));
  plan.bind(range_of(rope.inverse_frequencies, Access::kRead));
  plan.bind(tables.keys);
  plan.bind(tables.values);
  return plan;
}

// Keys alone: what waits of other heads goes on waiting.
void write_keys(GpuContext& gpu, const HeadsOp& op) {
  AllHeads own;
  AllHeads others;
  for (const Heads& heads : gpu.waiting().heads) {
    (are_same(heads.x, op.k) ? own : others).push_back(heads);
  }
  if (own.empty() || !can_write_heads(own, op.q, op.k, op.v)) return write_heads(gpu, op);
  gpu.waiting().heads = others;
  gpu.recorder().record(plan_write_heads(gpu.recorder(), own, op));
}

}  // namespace

void record_heads(Recorder& recorder, const AllHeads& all) {
  for (const Heads& heads : all) {
    if (heads.has_norm()) recorder.record(plan_norm(heads.norm, {}, {}));
    if (heads.has_rope()) recorder.record(plan_rope(heads.rope));
  }
}

void write_heads(GpuContext& gpu, const HeadsOp& op) {
  AllHeads waiting;
  if (can_write_heads(gpu.waiting().heads, op.q, op.k, op.v)) {
    waiting = std::exchange(gpu.waiting().heads, {});
  }
  gpu.flush();  // products, so that it is known what the launch before this one writes
  gpu.recorder().record(plan_write_heads(gpu.recorder(), waiting, op));
}

KvView append_index_keys(GpuContext& gpu, const HeadsOp& op, const SelectOptions& options) {
  if (!options.whole) {
    write_heads(gpu, op);
    return op.kv;
  }
  KvView keys = pooled_view(op.kv, options.unit, op.k.dim(2), gpu.pooled_pages());
  if (!op.tables.is_of_one()) {
    write_keys(gpu, {{}, op.k, {}, keys, op.tables, options.unit});
    return keys;
  }
  if (op.k.dim(0) > 1) gpu.flush();  // an operation that waits for all rows is not for some
  for_each_pooled_key(op.k, op.kv.length, options.unit, [&](const Tensor& rows, int64_t at) {
    keys.length = at;
    write_keys(gpu, {{}, rows, {}, keys, op.tables});
  });
  return keys;
}

}  // namespace moeflux::gpu
