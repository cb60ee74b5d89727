// Heads on their way to attention as one plan.
#include <algorithm>

#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

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

HeadsPart heads_part(const Heads& heads, std::span<const Tensor> pages) {
  HeadsPart part{};
  part.x = heads_layout(heads.x);
  if (!pages.empty()) {
    part.page = heads_layout(pages.front());
    part.stored = cached_code(pages.front().dtype);
  }
  part.heads = static_cast<u32>(heads.x.dim(1));
  part.cols = static_cast<u32>(heads.x.dim(2));
  part.has_norm = heads.norm.out.is_null() ? 0 : 1;
  part.has_weight = heads.norm.weight.is_null() ? 0 : 1;
  part.turned =
      heads.has_rope
          ? static_cast<u32>((heads.turned.offset_bytes - heads.x.offset_bytes) / sizeof(float))
          : 0;
  part.half = heads.has_rope ? static_cast<u32>(heads.rope.rotary_dim / 2) : 0;
  part.wide = is_wide(heads.x) && is_wide(heads.norm.weight) && part.cols % 4 == 0 &&
                      std::all_of(pages.begin(), pages.end(), is_wide)
                  ? 1
                  : 0;
  part.epsilon = heads.norm.eps;
  return part;
}

}  // namespace

void record_heads(Recorder& recorder, const AllHeads& all) {
  for (const Heads& heads : all) {
    if (!heads.norm.out.is_null()) recorder.record(plan_norm(heads.norm, {}, {}));
    if (!heads.has_rope) continue;
    recorder.record(plan_rope({heads.turned, heads.positions, heads.frequencies, heads.rope}));
  }
}

Plan plan_write_heads(const Recorder& recorder, const AllHeads& waiting, const HeadsOp& op) {
  const auto& [q, k, v, kv, k_table, v_table] = op;
  const Heads queries = q.is_null() ? Heads{} : find_heads(waiting, q);
  const Heads keys = find_heads(waiting, k);
  WriteHeadsParams p{};
  if (!queries.norm.out.is_null() || queries.has_rope) p.parts[0] = heads_part(queries, {});
  p.parts[1] = heads_part(keys, kv.k_pages);
  const Heads values = v.is_null() ? Heads{} : find_heads(waiting, v);
  if (!v.is_null()) p.parts[2] = heads_part(values, kv.v_pages);
  const Heads& turned = keys.has_rope ? keys : queries.has_rope ? queries : values;
  uint32_t heads = 0;
  for (const HeadsPart& part : p.parts) {
    heads += part.heads;
    // In fours, so that every SIMD group's begin on 16 bytes.
    if (part.heads > 0) p.stage_cols = std::max(p.stage_cols, (part.cols + 3) / 4 * 4);
  }
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.interleaved = turned.rope.interleaved ? 1 : 0;
  p.unit = static_cast<u32>(turned.rope.unit);
  p.factor = turned.rope.attention_factor;
  p.early = turned.has_rope && recorder.has_just_written(turned.positions) ? 0 : 1;
  const auto tokens = static_cast<uint32_t>(k.dim(0));
  const auto stage_bytes = 2 * p.stage_cols * static_cast<uint32_t>(sizeof(float));
  const bool together =
      heads * tokens > kAloneMax && kSimdsOfGroup * stage_bytes <= kSharedBytesMax;
  const uint32_t simds = together ? kSimdsOfGroup : 1;
  Plan plan = make_plan(KernelId::write_heads, {groups_for(heads, simds), tokens, 1},
                        simds * kSimdLanes, simds * stage_bytes);
  plan.set_params(p);
  for (const Heads* part : {&queries, &keys, &values}) {
    const bool changes = !part->norm.out.is_null() || part->has_rope;
    plan.bind(range_of(part->x, changes ? Access::kReadWrite : Access::kRead));
  }
  for (const Heads* part : {&queries, &keys, &values}) {
    plan.bind(range_of(part->norm.weight, Access::kRead));
  }
  plan.bind(range_of(turned.positions, Access::kRead));
  plan.bind(range_of(turned.frequencies, Access::kRead));
  plan.bind(k_table);
  plan.bind(v_table);
  return plan;
}

}  // namespace moeflux::gpu
