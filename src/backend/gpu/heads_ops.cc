// Heads on their way to attention as one plan: norms and rotary positions wait until it is known
// whether attention follows.
#include <algorithm>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

// Up to here every head has a group of its own; more share one.
constexpr uint32_t kAloneMax = 256;
constexpr uint32_t kSimdsOfGroup = 4;

bool is_apart(const WaitingHeads& heads, const Tensor& tensor) {
  return !have_overlap(heads.x, tensor) && !have_overlap(heads.norm.x, tensor);
}

bool share_rope(const WaitingHeads& a, const WaitingHeads& b) {
  return !a.has_rope || !b.has_rope ||
         (are_same(a.positions, b.positions) && are_same(a.frequencies, b.frequencies) &&
          a.rope.rotary_dim == b.rope.rotary_dim && a.rope.interleaved == b.rope.interleaved &&
          a.rope.attention_factor == b.rope.attention_factor);
}

// What waits for x, or nothing.
WaitingHeads find_heads(const AllHeads& waiting, const Tensor& x) {
  for (const WaitingHeads& heads : waiting) {
    if (are_same(heads.x, x)) return heads;
  }
  WaitingHeads nothing;
  nothing.x = x;
  return nothing;
}

HeadsPart heads_part(const WaitingHeads& heads, std::span<const Tensor> pages) {
  HeadsPart part{};
  part.x = heads_layout(heads.x);
  if (!pages.empty()) part.page = heads_layout(pages.front());
  part.heads = static_cast<u32>(heads.x.dim(1));
  part.cols = static_cast<u32>(heads.x.dim(2));
  part.has_norm = heads.norm.out.is_null() ? 0 : 1;
  part.has_weight = heads.norm.weight.is_null() ? 0 : 1;
  part.half = heads.has_rope ? static_cast<u32>(heads.rope.rotary_dim / 2) : 0;
  part.wide = is_wide(heads.x) && is_wide(heads.norm.weight) && part.cols % 4 == 0 &&
                      std::all_of(pages.begin(), pages.end(), is_wide)
                  ? 1
                  : 0;
  part.epsilon = heads.norm.eps;
  return part;
}

}  // namespace

void GpuEncoder::add_heads(const WaitingHeads& heads) {
  AllHeads& waiting = waiting_.heads;
  const bool joins = !waiting.empty() && waiting.size() < 3 &&
                     std::all_of(waiting.begin(), waiting.end(), [&](const WaitingHeads& other) {
                       return is_apart(other, heads.x) &&
                              (heads.norm.x.is_null() || is_apart(other, heads.norm.x));
                     });
  if (!joins) flush_waiting();
  waiting.push_back(heads);
}

bool GpuEncoder::join_rope(const Tensor& x, const Tensor& positions, const Tensor& frequencies,
                           const RopeOptions& options) {
  for (WaitingHeads& heads : waiting_.heads) {
    if (!are_same(heads.x, x) || heads.has_rope) continue;
    heads.has_rope = true;
    heads.positions = positions;
    heads.frequencies = frequencies;
    heads.rope = options;
    return true;
  }
  if (x.dim(2) > int64_t{kNormNarrowCols}) return false;
  add_heads({.x = x,
             .norm = {},
             .has_rope = true,
             .positions = positions,
             .frequencies = frequencies,
             .rope = options});
  return true;
}

void GpuEncoder::record_each(const AllHeads& all) {
  for (const WaitingHeads& heads : all) {
    if (!heads.norm.out.is_null()) record_norm(heads.norm, {}, {});
    if (heads.has_rope) record_rope(heads.x, heads.positions, heads.frequencies, heads.rope);
  }
}

void GpuEncoder::place_heads(const Tensor& q, const Tensor& k, const Tensor& v, const KvView& kv,
                             const Binding& k_table, const Binding& v_table) {
  const AllHeads& all = waiting_.heads;
  const bool fits = std::all_of(all.begin(), all.end(), [&](const WaitingHeads& heads) {
    return (are_same(heads.x, q) || are_same(heads.x, k) ||
            (!v.is_null() && are_same(heads.x, v))) &&
           (heads.norm.out.is_null() || are_same(heads.norm.x, heads.x)) &&
           std::all_of(all.begin(), all.end(),
                       [&](const WaitingHeads& other) { return share_rope(heads, other); });
  });
  if (!fits || have_overlap(q, k) || have_overlap(q, v) || have_overlap(k, v)) flush_waiting();
  const AllHeads waiting = waiting_.heads;
  waiting_.heads.clear();
  flush_waiting();  // products, so that it is known what the launch before this one writes
  const WaitingHeads queries = find_heads(waiting, q);
  const WaitingHeads keys = find_heads(waiting, k);
  WriteHeadsParams p{};
  p.parts[0] = heads_part(queries, {});
  if (queries.norm.out.is_null() && !queries.has_rope) p.parts[0].heads = 0;
  p.parts[1] = heads_part(keys, kv.k_pages);
  const WaitingHeads values = v.is_null() ? WaitingHeads{} : find_heads(waiting, v);
  if (!v.is_null()) p.parts[2] = heads_part(values, kv.v_pages);
  const WaitingHeads& turned = keys.has_rope ? keys : queries.has_rope ? queries : values;
  uint32_t heads = 0;
  for (const HeadsPart& part : p.parts) {
    heads += part.heads;
    // In units of four, so that every SIMD group's begin on 16 bytes.
    if (part.heads > 0) p.stage_cols = std::max(p.stage_cols, (part.cols + 3) / 4 * 4);
  }
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.interleaved = turned.rope.interleaved ? 1 : 0;
  p.factor = turned.rope.attention_factor;
  p.early = turned.has_rope && has_just_written(turned.positions) ? 0 : 1;
  const auto tokens = static_cast<uint32_t>(q.dim(0));
  const auto stage_bytes = 2 * p.stage_cols * static_cast<uint32_t>(sizeof(float));
  const bool together =
      heads * tokens > kAloneMax && kSimdsOfGroup * stage_bytes <= kSharedBytesMax;
  const uint32_t simds = together ? kSimdsOfGroup : 1;
  Plan plan = make_plan(KernelId::write_heads, {groups_for(heads, simds), tokens, 1},
                        simds * kSimdLanes, simds * stage_bytes);
  plan.set_params(p);
  for (const WaitingHeads* part : {&queries, &keys, &values}) {
    const bool changes = !part->norm.out.is_null() || part->has_rope;
    plan.bind(range_of(part->x, changes ? Access::kReadWrite : Access::kRead));
  }
  for (const WaitingHeads* part : {&queries, &keys, &values}) {
    plan.bind(range_of(part->norm.weight, Access::kRead));
  }
  plan.bind(range_of(turned.positions, Access::kRead));
  plan.bind(range_of(turned.frequencies, Access::kRead));
  plan.bind(k_table);
  plan.bind(v_table);
  record(plan);
}

}  // namespace moeflux::gpu
