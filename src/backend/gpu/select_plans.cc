// The choice of keys as plans, and the launch that brings together what a token has chosen.
#include <algorithm>

#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kGatherThreads = 128;

uint32_t bytes_of_words(uint64_t words) { return static_cast<uint32_t>(words * sizeof(u32)); }

/// Enough for a few candidates a thread: who has many waits for memory, who has few for others.
uint32_t choose_threads(uint64_t candidates) {
  const uint64_t wanted = round_up(std::max<uint64_t>(candidates / 8, 1), kSimdLanes);
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, kGroupSizeMax));
}

IndexScoresParams index_params(const SelectOp& op) {
  const Tensor& page = op.keys.k_pages.front();
  IndexScoresParams p{};
  p.q = heads_layout(op.q);
  p.weight_stride = op.head_weights.is_null() ? 0 : static_cast<u64>(op.head_weights.strides[0]);
  p.page_stride = heads_layout(page).token_stride;
  p.groups = static_cast<u32>(op.ids.dim(1));
  p.heads = static_cast<u32>(op.q.dim(1)) / p.groups;
  p.head_dim = static_cast<u32>(op.q.dim(2));
  p.stage_cols = (p.head_dim + 3) / 4 * 4;
  p.page_keys = static_cast<u32>(op.keys.page_tokens);
  p.num_pages = static_cast<u32>(op.keys.k_pages.size());
  p.key_tokens = static_cast<u32>(op.options.key_tokens());
  p.unit = static_cast<u32>(op.options.unit) / p.key_tokens;
  p.span = p.unit * std::max<u32>(1, kIndexThreads / p.unit);
  p.has_weights = op.head_weights.is_null() ? 0 : 1;
  p.relu = op.options.relu ? 1 : 0;
  const bool is_wide_page = p.head_dim % wide_elements(page.dtype) == 0 &&
                            std::all_of(op.keys.k_pages.begin(), op.keys.k_pages.end(), is_wide);
  p.wide = is_wide_page ? 1 : 0;
  return p;
}

}  // namespace

bool fits_select_kernels(const Tensor& q, const SelectOptions& options) {
  return options.unit / options.key_tokens() <= int64_t{kIndexSpanMax} &&
         bytes_of_words(uint64_t{kIndexHeads} * static_cast<uint64_t>((q.dim(2) + 3) / 4 * 4) +
                        uint64_t{kIndexSpanMax}) <= kSharedBytesMax;
}

void record_select(Recorder& recorder, const SelectOp& op) {
  IndexScoresParams p = index_params(op);
  const auto rows = static_cast<uint32_t>(op.q.dim(0));
  const int64_t last = op.position + rows - 1;
  p.score_stride = round_up(static_cast<uint64_t>(op.options.candidates_at(last)), 4);
  const uint64_t row_bytes = p.score_stride * p.groups * sizeof(f32);
  const auto at_once = static_cast<uint32_t>(
      std::clamp<uint64_t>(recorder.platform().workspace_bytes_max() / row_bytes, 1, rows));
  Binding scores;
  if (!recorder.take_workspace(at_once * row_bytes, scores)) return;
  const DType type = op.keys.k_pages.front().dtype;
  for (uint32_t row = 0; row < rows; row += at_once) {
    const uint32_t count = std::min(at_once, rows - row);
    p.tokens = count;
    p.begin = static_cast<u32>(op.position) + row;
    const uint32_t spans = groups_for((uint64_t{p.begin} + count) / p.key_tokens, p.span);
    Plan score = make_plan(
        type == DType::kF16 ? KernelId::index_scores_f16 : KernelId::index_scores,
        {spans, count, p.groups}, kIndexThreads,
        bytes_of_words(uint64_t{kIndexHeads} * p.stage_cols + (p.unit == 1 ? 0 : p.span)));
    score.set_params(p);
    score.bind(range_of(op.q.slice(0, row, count), Access::kRead));
    score.bind(range_of(p.has_weights != 0 ? op.head_weights.slice(0, row, count) : Tensor{},
                        Access::kRead));
    score.bind(op.k_table);
    scores.access = Access::kWrite;
    score.bind(scores);
    recorder.record(score);
    const uint32_t threads = choose_threads((p.begin + count) / op.options.unit);
    Plan choose = make_plan(KernelId::choose_best, {count * p.groups, 1, 1}, threads,
                            bytes_of_words(2 * threads / kSimdLanes));
    choose.set_params(ChooseParams{.score_stride = p.score_stride,
                                   .groups = p.groups,
                                   .begin = op.options.whole ? p.begin + 1 : p.begin,
                                   .unit = static_cast<u32>(op.options.unit),
                                   .last = op.options.has_tail() ? 1U : 0U,
                                   .most = static_cast<u32>(op.ids.dim(2)),
                                   .recent = static_cast<u32>(op.options.recent)});
    scores.access = Access::kRead;
    choose.bind(scores);
    bind_output(choose, op.ids.slice(0, row, count));
    recorder.record(choose);
  }
}

Plan plan_pool(const PoolOp& op) {
  constexpr uint32_t kThreads = 64;
  constexpr uint32_t kTokens = 8;
  PoolParams p{};
  p.tokens = rows_of(op.x);
  p.cols = static_cast<u32>(op.x.shape.back());
  p.out_cols = static_cast<u32>(op.out.shape.back());
  p.unit = static_cast<u32>(op.unit);
  p.kept = op.gates.overlaps ? 2 * p.unit : p.unit;
  p.weighs = op.gates.gate.is_null() ? 0 : 1;
  p.group_tokens = std::max(kTokens, p.kept - 1);
  Plan plan = make_plan(KernelId::pool_rows,
                        {groups_for(p.out_cols, kThreads), groups_for(p.tokens, p.group_tokens), 1},
                        kThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.gates.gate, Access::kRead));
  plan.bind(range_of(op.gates.bias, Access::kRead));
  plan.bind(range_of(op.positions, Access::kRead));
  plan.bind(range_of(op.state, Access::kReadWrite));
  bind_output(plan, op.out);
  return plan;
}

Plan plan_gather(const GatherOp& op) {
  const auto& [selected, kv, row, pages, has_values, k_table, v_table] = op;
  const Tensor& k = kv.k_pages.front();
  const Tensor& v = kv.v_pages.front();
  const auto bytes = [](const Tensor& page, int64_t elements) {
    return static_cast<uint64_t>(elements * dtype_bits(page.dtype) / 8);
  };
  GatherParams p{};
  p.k_token_bytes = bytes(k, k.strides[0]);
  p.k_head_bytes = bytes(k, k.strides[1]);
  p.v_token_bytes = bytes(v, v.strides[0]);
  p.v_head_bytes = bytes(v, v.strides[1]);
  p.k_row_bytes = static_cast<u32>(bytes(k, k.dim(2)));
  p.v_row_bytes = static_cast<u32>(bytes(v, v.dim(2)));
  p.keys = static_cast<u32>(selected.keys_at(kv.length + row));
  p.most = static_cast<u32>(selected.most());
  p.unit = static_cast<u32>(selected.unit);
  p.kv_heads = static_cast<u32>(k.dim(1));
  p.group_kv_heads = p.kv_heads / static_cast<u32>(selected.groups());
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  const auto is_wide_row = [](const Tensor& page) {
    return is_wide(page) && page.dim(2) % wide_elements(page.dtype) == 0;
  };
  p.wide = std::all_of(kv.k_pages.begin(), kv.k_pages.end(), is_wide_row) &&
                   (!has_values || std::all_of(kv.v_pages.begin(), kv.v_pages.end(), is_wide_row))
               ? 1
               : 0;
  Plan plan =
      make_plan(KernelId::gather_rows,
                {groups_for(p.keys, kGatherThreads / kSimdLanes), p.kv_heads, has_values ? 2U : 1U},
                kGatherThreads);
  plan.set_params(p);
  plan.bind(range_of(selected.ids.slice(0, row, 1), Access::kRead));
  plan.bind(k_table);
  plan.bind(v_table);
  plan.bind(range_of(pages.keys, Access::kWrite));
  plan.bind(has_values ? range_of(pages.values, Access::kWrite) : Binding{});
  return plan;
}

Plan plan_gather_pooled(const GatherPooledOp& op) {
  const Tensor& page = op.kv.k_pages.front();
  const auto bytes = [&](int64_t elements) {
    return static_cast<uint64_t>(elements * dtype_bits(page.dtype) / 8);
  };
  const bool has_ids = op.pooled.chooses_at(op.position);
  GatherPooledParams p{};
  p.token_bytes = bytes(page.strides[0]);
  p.row_bytes = static_cast<u32>(bytes(page.dim(2)));
  p.keys = static_cast<u32>(op.num_keys());
  p.pools = static_cast<u32>(op.pooled.count_at(op.position));
  p.has_ids = has_ids ? 1 : 0;
  p.page_pools = static_cast<u32>(op.pools.page_tokens);
  p.begin = static_cast<u32>(op.begin());
  p.page_tokens = static_cast<u32>(op.kv.page_tokens);
  p.num_pages = static_cast<u32>(op.kv.k_pages.size());
  const auto are_wide = [](std::span<const Tensor> pages) {
    return std::all_of(pages.begin(), pages.end(), [](const Tensor& tensor) {
      return is_wide(tensor) && tensor.dim(2) % wide_elements(tensor.dtype) == 0;
    });
  };
  p.wide = are_wide(op.kv.k_pages) && are_wide(op.pools.k_pages) ? 1 : 0;
  Plan plan = make_plan(KernelId::gather_pooled,
                        {groups_for(p.keys, kGatherThreads / kSimdLanes), 1, 1}, kGatherThreads);
  plan.set_params(p);
  plan.bind(has_ids ? range_of(op.pooled.ids.slice(0, op.row, 1), Access::kRead) : Binding{});
  plan.bind(op.pool_table);
  plan.bind(op.k_table);
  plan.bind(range_of(op.keys, Access::kWrite));
  return plan;
}

}  // namespace moeflux::gpu
