#include "backend/gpu/launch/wide_many_plans.h"

#include <algorithm>

#include "backend/gpu/launch/attention_rows.h"
#include "backend/gpu/launch/plan_building.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kWideManyThreads = 384;
constexpr uint32_t kWideHalvesThreads = 256;

/// Rows of keys in larger halves, in blocks of 64 columns, and in shared memory, where two teams
/// have 256 columns of results each.
uint32_t wide_many_key_words(const AttentionParams& p) { return (p.head_dim + 63) / 64 * 32; }
uint32_t wide_many_value_words(const AttentionParams& p) {
  return std::max(wide_many_key_words(p), (p.v_head_dim + 255) / 256 * 128);
}
uint64_t wide_many_split_bytes(const AttentionParams& p) {
  return bytes_of(uint64_t{kWideSplit} * (wide_many_key_words(p) + 3)) * uint64_t{kv_heads_of(p)};
}
uint32_t wide_many_bytes(const AttentionParams& p) {
  // A query in both halves, its weights, six numbers; two tiles and three factors of their keys.
  const uint64_t row_words = 2 * wide_many_key_words(p) + kWideKeys + 6;
  return bytes_of(kWideManyRows * row_words + 2 * kWideKeys * (wide_many_value_words(p) + 3));
}

}  // namespace

bool fits_wide_many(const AttentionParams& p, DType type, const Platform& platform) {
  const uint64_t groups = row_groups(p, kWideManyRows) * kv_heads_of(p);
  return type == DType::kF16 && p.shares_rows != 0 && p.lengths == 0 &&
         groups >= std::max<uint64_t>(platform.cores() * 3 / 4, 1) &&
         rows_of_kv_head(p) >= kWideManyRows && wide_many_bytes(p) <= platform.shared_bytes_max();
}

bool record_wide_many(Recorder& recorder, const AttentionHeads& heads, AttentionResult& result) {
  AttentionParams& p = result.params;
  p.walks = 1;
  p.key_words = wide_many_key_words(p);
  p.value_words = wide_many_value_words(p);
  // As in record_many(), but a piece has one split at least.
  const uint64_t split = wide_many_split_bytes(p);
  const u32 parts = static_cast<u32>(
      std::clamp<uint64_t>(recorder.platform().workspace_bytes_max() / split, 1, p.num_parts));
  const u32 first = p.first_part;
  const u32 end = first + p.num_parts;
  const uint64_t halves_end = round_up(split * parts, 256);
  const uint64_t sums = uint64_t{p.tokens} * p.heads * 2 * sizeof(float);
  Binding& partials = result.partials;
  if (!recorder.take_workspace(halves_end + sums, partials)) return false;
  Binding halves{partials.buffer, partials.offset_bytes, halves_end, Access::kWrite};
  partials.offset_bytes += halves_end;
  partials.size_bytes -= halves_end;
  partials.access = Access::kReadWrite;
  for (u32 begin = first; begin < end; begin += parts) {
    p.first_part = begin;
    p.num_parts = std::min(parts, end - begin);
    Plan bring =
        make_plan(KernelId::mma_attention_wide_halves_f16,
                  {p.num_parts * (kWideSplit / kWideKeys), kv_heads_of(p), 1}, kWideHalvesThreads);
    bring.set_params(p);
    bring.bind(heads.tables.keys);
    halves.access = Access::kWrite;
    bring.bind(halves);
    recorder.record(bring);
    Plan plan = make_plan(KernelId::mma_attention_wide_many_f16_r64,
                          {static_cast<uint32_t>(row_groups(p, kWideManyRows)), kv_heads_of(p), 1},
                          kWideManyThreads);
    plan.shared_bytes = wide_many_bytes(p);
    plan.set_params(p);
    plan.bind(range_of(heads.q, Access::kRead));
    halves.access = Access::kRead;
    plan.bind(halves);
    plan.bind(range_of(heads.options.sinks, Access::kRead));
    if (parts >= end - first) {
      bind_output(plan, heads.out);
    } else {
      plan.bind(range_of(heads.out, Access::kReadWrite));
    }
    plan.bind(partials);
    recorder.record(plan);
  }
  return true;
}

}  // namespace moeflux::gpu
