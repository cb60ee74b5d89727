#include "backend/ops/select_keys.h"

#include <algorithm>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/heads_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/supports.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

uint32_t bytes_of_words(uint64_t words) { return static_cast<uint32_t>(words * sizeof(u32)); }

/// Enough for a few candidates a thread: who has many waits for memory, who has few for others.
uint32_t choose_threads(uint64_t candidates) {
  const uint64_t wanted = round_up(std::max<uint64_t>(candidates / 8, 1), kSimdLanes);
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, kGroupSizeMax));
}

IndexScoresParams index_params(const ops::SelectKeys& op, const KvView& keys) {
  const Tensor& page = keys.k_pages.front();
  IndexScoresParams p{};
  p.q = heads_layout(op.q);
  p.weight_stride = op.head_weights.is_null() ? 0 : static_cast<u64>(op.head_weights.strides[0]);
  p.page_stride = heads_layout(page).token_stride;
  p.groups = static_cast<u32>(op.ids.dim(1));
  p.heads = static_cast<u32>(op.q.dim(1)) / p.groups;
  p.head_dim = static_cast<u32>(op.q.dim(2));
  p.stage_cols = (p.head_dim + 3) / 4 * 4;
  p.page_keys = static_cast<u32>(keys.page_tokens);
  p.num_pages = static_cast<u32>(keys.k_pages.size());
  p.key_tokens = static_cast<u32>(op.options.key_tokens());
  p.unit = static_cast<u32>(op.options.unit) / p.key_tokens;
  p.span = p.unit * std::max<u32>(1, kIndexThreads / p.unit);
  p.has_weights = op.head_weights.is_null() ? 0 : 1;
  p.relu = op.options.relu ? 1 : 0;
  const bool is_wide_page = p.head_dim % wide_elements(page.dtype) == 0 &&
                            std::all_of(keys.k_pages.begin(), keys.k_pages.end(), is_wide);
  p.wide = is_wide_page ? 1 : 0;
  return p;
}

// Takes away the scores of candidates that lie in none of an earlier choice, of `count` rows from
// `row` on, the first of which is at `position`.
void record_mask(Recorder& recorder, const ops::SelectKeys& op, const ChooseParams& choice,
                 uint32_t position, uint32_t row, uint32_t count, const Binding& scores) {
  if (!op.is_within(position + count - 1)) return;
  MaskParams p{};
  p.choice = choice;
  p.position = position;
  p.dense_end = static_cast<u32>(op.within.dense_end());
  p.outer_unit = static_cast<u32>(op.within.unit / op.options.unit);
  p.outer_most = static_cast<u32>(op.within.most());
  Plan plan = make_plan(KernelId::mask_candidates, {count * choice.groups, 1, 1}, kIndexThreads);
  plan.set_params(p);
  Binding updated = scores;
  updated.access = Access::kReadWrite;
  plan.bind(updated);
  plan.bind(range_of(op.within.ids.slice(0, row, count), Access::kRead));
  recorder.record(plan);
}

// Rows that see more candidates than they choose, and whose keys are in their pages, which have a
// row a key. `position`: of the first row.
void record_select(Recorder& recorder, const ops::SelectKeys& op, const KvView& keys,
                   int64_t position, const Binding& table) {
  IndexScoresParams p = index_params(op, keys);
  const auto rows = static_cast<uint32_t>(op.q.dim(0));
  const int64_t last = position + rows - 1;
  p.score_stride = round_up(static_cast<uint64_t>(op.options.candidates_at(last)), 4);
  const uint64_t row_bytes = p.score_stride * p.groups * sizeof(f32);
  const auto at_once = static_cast<uint32_t>(
      std::clamp<uint64_t>(recorder.platform().workspace_bytes_max() / row_bytes, 1, rows));
  Binding scores;
  if (!recorder.take_workspace(at_once * row_bytes, scores)) return;
  const DType type = keys.k_pages.front().dtype;
  for (uint32_t row = 0; row < rows; row += at_once) {
    const uint32_t count = std::min(at_once, rows - row);
    p.tokens = count;
    p.begin = static_cast<u32>(position) + row;
    const uint32_t spans = groups_for((uint64_t{p.begin} + count) / p.key_tokens, p.span);
    Plan score = make_plan(
        type == DType::kF16 ? KernelId::index_scores_f16 : KernelId::index_scores,
        {spans, count, p.groups}, kIndexThreads,
        bytes_of_words(uint64_t{kIndexHeads} * p.stage_cols + (p.unit == 1 ? 0 : p.span)));
    score.set_params(p);
    score.bind(range_of(op.q.slice(0, row, count), Access::kRead));
    score.bind(range_of(p.has_weights != 0 ? op.head_weights.slice(0, row, count) : Tensor{},
                        Access::kRead));
    score.bind(table);
    scores.access = Access::kWrite;
    score.bind(scores);
    recorder.record(score);
    const ChooseParams choice{.score_stride = p.score_stride,
                              .groups = p.groups,
                              .begin = op.options.whole ? p.begin + 1 : p.begin,
                              .unit = static_cast<u32>(op.options.unit),
                              .last = op.options.has_tail() ? 1U : 0U,
                              .most = static_cast<u32>(op.ids.dim(2)),
                              .recent = static_cast<u32>(op.options.recent)};
    record_mask(recorder, op, choice, p.begin, row, count, scores);
    const uint32_t threads = choose_threads((p.begin + count) / op.options.unit);
    Plan choose = make_plan(KernelId::choose_best, {count * p.groups, 1, 1}, threads,
                            bytes_of_words(2 * threads / kSimdLanes));
    choose.set_params(choice);
    scores.access = Access::kRead;
    choose.bind(scores);
    bind_output(choose, op.ids.slice(0, row, count));
    recorder.record(choose);
  }
}

// `has_keys`: they are in their pages.
void select_keys(GpuContext& gpu, const ops::SelectKeys& op, bool has_keys) {
  const KvRows& s = op.sequences.front();
  if (s.rows == 0) return;
  Recorder& recorder = gpu.recorder();
  gpu.flush_tables();
  KvTables tables;
  if (!recorder.place_addresses(s.kv.k_pages, tables.keys)) return;
  tables.values = tables.keys;
  const KvView keys =
      has_keys ? s.kv : append_index_keys(gpu, {op.q, op.k, {}, s.kv, tables}, op.options);
  gpu.flush();  // of queries, what their keys' launch left
  const int64_t dense = op.options.selection(op.ids).dense_rows(s.rows, s.kv.length);
  if (dense == s.rows) return;
  const auto choosing = [&](const Tensor& x) {
    return x.is_null() ? x : x.slice(0, dense, s.rows - dense);
  };
  record_select(recorder, op.part(0, choosing), keys, s.kv.length + dense, tables.keys);
}

}  // namespace

// Candidates and heads are as large as the kernels take, and pages lie alike.
Status supports(const Platform& /*platform*/, const ops::SelectKeys& op) {
  const SelectOptions& o = op.options;
  const uint64_t cols = static_cast<uint64_t>((op.q.dim(2) + 3) / 4 * 4);
  if (o.unit / o.key_tokens() > int64_t{kIndexSpanMax} ||
      bytes_of_words(uint64_t{kIndexHeads} * cols + uint64_t{kIndexSpanMax}) > kSharedBytesMax) {
    return make_error(ErrorCode::kUnsupported,
                      "select_keys: heads of {} and candidates of {} tokens", op.q.dim(2), o.unit);
  }
  for (const KvRows& s : op.sequences) {
    if (s.rows > 0) MF_RETURN_IF_ERROR(check_pages(op.kName, s.kv.k_pages));
  }
  return {};
}

// Keys of a token of each of several sequences are written by one launch.
void run(GpuContext& gpu, const ops::SelectKeys& op) {
  const bool joins = !op.options.whole;
  for_each_run(op.sequences, op.rows(), joins, [&](std::span<const KvRows> run, const auto& part) {
    ops::SelectKeys own = op.part(static_cast<size_t>(run.data() - op.sequences.data()), part);
    own.sequences = run;
    const bool together = run.size() > 1 && lie_alike(run);
    if (together) {
      gpu.flush_tables();
      KvTables tables;
      if (!place_tables(gpu.recorder(), run, tables)) return;
      write_heads(gpu, {own.q, own.k, {}, run.front().kv, tables});
    }
    for_each_part(own, [&](const ops::SelectKeys& one) { select_keys(gpu, one, together); });
  });
}

}  // namespace moeflux::gpu
