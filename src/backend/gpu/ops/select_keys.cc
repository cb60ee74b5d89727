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

/// Rows that see more candidates than they choose, of one sequence; or a row of each of several, of
/// which some may not. Their keys are in their pages.
struct Choosing {
  const ops::SelectKeys& op;
  const KvView& keys;  // of the first sequence, with a row a key
  const KvTables& tables;
  int64_t position;  // of the first row of one sequence

  /// The position of the last of `count` rows from `row` on, or the largest of those of several.
  int64_t last_position(uint32_t row, uint32_t count) const {
    if (tables.is_of_one()) return position + row + count - 1;
    int64_t last = 0;
    for (const KvRows& s : tables.sequences.subspan(row, count)) {
      last = std::max(last, s.kv.length);
    }
    return last;
  }
  int64_t dense_end() const { return op.options.selection(op.ids).dense_end(); }
};

/// Rows whose scores are there at the same time.
struct Block {
  uint32_t row;
  uint32_t count;
  int64_t last_position;
  Binding scores;

  Binding scores_for(Access access) const {
    Binding own = scores;
    own.access = access;
    return own;
  }
  /// In a table with so many words for each row.
  uint64_t offset_bytes(uint32_t words) const { return uint64_t{row} * words * sizeof(u64); }
  uint64_t lengths(const KvTables& tables) const {
    return tables.is_of_one() ? 0 : tables.lengths + offset_bytes(1);
  }
};

IndexScoresParams index_params(const Choosing& all, uint64_t score_stride) {
  const ops::SelectKeys& op = all.op;
  const KvView& keys = all.keys;
  const Tensor& page = keys.k_pages.front();
  IndexScoresParams p{};
  p.q = heads_layout(op.q);
  p.weight_stride = op.head_weights.is_null() ? 0 : static_cast<u64>(op.head_weights.strides[0]);
  p.page_stride = heads_layout(page).token_stride;
  p.score_stride = score_stride;
  p.groups = static_cast<u32>(op.ids.dim(1));
  p.heads = static_cast<u32>(op.q.dim(1)) / p.groups;
  p.head_dim = static_cast<u32>(op.q.dim(2));
  p.stage_cols = (p.head_dim + 3) / 4 * 4;
  p.key_steps = (p.head_dim + 15) / 16;
  p.page_keys = static_cast<u32>(keys.page_tokens);
  p.num_pages = static_cast<u32>(keys.k_pages.size());
  p.dense_end = static_cast<u32>(all.dense_end());
  p.key_tokens = static_cast<u32>(op.options.key_tokens());
  p.unit = static_cast<u32>(op.options.unit) / p.key_tokens;
  p.span = p.unit * std::max<u32>(1, kIndexThreads / p.unit);
  p.has_weights = op.head_weights.is_null() ? 0 : 1;
  p.relu = op.options.relu ? 1 : 0;
  p.wide = have_wide_rows(all.tables, keys, &KvView::k_pages) ? 1 : 0;
  return p;
}

/// Words of shared memory of a group of mma_index_scores.
uint64_t tile_words(const IndexScoresParams& p) {
  const uint64_t rows = round_up(uint64_t{p.heads}, 16);
  return rows * (p.key_steps * 16 + 2) + (p.unit == 1 ? 0 : p.span);
}

/// Whether matrix units score: a matter of shapes and of where a model's tensors lie, not of the
/// number of rows, as bits depend on it.
bool fits_tiles(IndexScoresParams p, const ops::SelectKeys& op, const Platform& platform) {
  p.span = kIndexSpanMax;
  return platform.has_matrix_units() && p.wide != 0 && is_wide(op.q) && p.head_dim % 4 == 0 &&
         p.head_dim <= kTileSteps * 16 && p.page_keys % 8 == 0 &&
         bytes_of_words(tile_words(p)) <= platform.shared_bytes_max();
}

/// Groups stage their queries once: as many keys as leave no core idle.
uint32_t keys_of_group(const IndexScoresParams& p, uint64_t seen, const Platform& platform) {
  constexpr uint32_t kKeysMax = 512;
  const uint64_t wanted = 4 * uint64_t{platform.cores()};
  const uint64_t keys = seen * p.tokens * p.groups / std::max<uint64_t>(wanted, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(keys / 64 * 64, 64, kKeysMax));
}

void record_scores(Recorder& recorder, const Choosing& all, const Block& block,
                   IndexScoresParams p) {
  const ops::SelectKeys& op = all.op;
  p.tokens = block.count;
  p.begin = static_cast<u32>(all.position + block.row);
  p.lengths = block.lengths(all.tables);
  const auto seen = static_cast<uint64_t>(block.last_position + 1) / p.key_tokens;
  const bool is_f16 = all.keys.k_pages.front().dtype == DType::kF16;
  KernelId kernel = is_f16 ? KernelId::index_scores_f16 : KernelId::index_scores;
  uint64_t words = uint64_t{kIndexHeads} * p.stage_cols + (p.unit == 1 ? 0 : p.span);
  if (fits_tiles(p, op, recorder.platform())) {
    kernel = is_f16 ? KernelId::mma_index_scores_f16 : KernelId::mma_index_scores;
    p.span = p.unit * std::max<u32>(1, keys_of_group(p, seen, recorder.platform()) / p.unit);
    words = tile_words(p);
  }
  Plan plan = make_plan(kernel, {groups_for(seen, p.span), block.count, p.groups}, kIndexThreads);
  plan.shared_bytes = bytes_of_words(words);
  plan.set_params(p);
  plan.bind(range_of(op.q.slice(0, block.row, block.count), Access::kRead));
  plan.bind(
      range_of(p.has_weights != 0 ? op.head_weights.slice(0, block.row, block.count) : Tensor{},
               Access::kRead));
  Binding table = all.tables.keys;
  if (!all.tables.is_of_one()) {
    table.offset_bytes += block.offset_bytes(kSequenceWords);
    table.size_bytes -= block.offset_bytes(kSequenceWords);
  }
  plan.bind(table);
  plan.bind(block.scores_for(Access::kWrite));
  recorder.record(plan);
}

// Takes away the scores of candidates that lie in none of an earlier choice.
void record_mask(Recorder& recorder, const Choosing& all, const Block& block,
                 const ChooseParams& choice) {
  const ops::SelectKeys& op = all.op;
  if (!op.is_within(block.last_position)) return;
  MaskParams p{};
  p.choice = choice;
  p.dense_end = static_cast<u32>(op.within.dense_end());
  p.outer_unit = static_cast<u32>(op.within.unit / op.options.unit);
  p.outer_most = static_cast<u32>(op.within.most());
  Plan plan =
      make_plan(KernelId::mask_candidates, {block.count * choice.groups, 1, 1}, kIndexThreads);
  plan.set_params(p);
  plan.bind(block.scores_for(Access::kReadWrite));
  plan.bind(range_of(op.within.ids.slice(0, block.row, block.count), Access::kRead));
  recorder.record(plan);
}

void record_choice(Recorder& recorder, const Choosing& all, const Block& block,
                   const ChooseParams& choice) {
  const uint32_t threads = choose_threads((block.last_position + 1) / all.op.options.unit);
  Plan plan = make_plan(KernelId::choose_best, {block.count * choice.groups, 1, 1}, threads,
                        bytes_of_words(2 * threads / kSimdLanes));
  plan.set_params(choice);
  plan.bind(block.scores_for(Access::kRead));
  const Tensor ids = all.op.ids.slice(0, block.row, block.count);
  if (all.tables.is_of_one()) {
    bind_output(plan, ids);
  } else {
    plan.bind(range_of(ids, Access::kReadWrite));  // rows that do not choose stay as they are
  }
  recorder.record(plan);
}

void record_select(Recorder& recorder, const Choosing& all) {
  const ops::SelectKeys& op = all.op;
  const auto rows = static_cast<uint32_t>(op.q.dim(0));
  const int64_t last = all.last_position(0, rows);
  if (last < all.dense_end()) return;
  const uint64_t score_stride = round_up(static_cast<uint64_t>(op.options.candidates_at(last)), 4);
  const IndexScoresParams p = index_params(all, score_stride);
  const uint64_t row_bytes = score_stride * p.groups * sizeof(f32);
  const auto at_once = static_cast<uint32_t>(
      std::clamp<uint64_t>(recorder.platform().workspace_bytes_max() / row_bytes, 1, rows));
  Binding scores;
  if (!recorder.take_workspace(at_once * row_bytes, scores)) return;
  for (uint32_t row = 0; row < rows; row += at_once) {
    const uint32_t count = std::min(at_once, rows - row);
    const Block block{row, count, all.last_position(row, count), scores};
    record_scores(recorder, all, block, p);
    const ChooseParams choice{.score_stride = score_stride,
                              .lengths = block.lengths(all.tables),
                              .groups = p.groups,
                              .begin = static_cast<u32>(all.position + row),
                              .dense_end = p.dense_end,
                              .whole = op.options.whole ? 1U : 0U,
                              .unit = static_cast<u32>(op.options.unit),
                              .last = op.options.has_tail() ? 1U : 0U,
                              .most = static_cast<u32>(op.ids.dim(2)),
                              .recent = static_cast<u32>(op.options.recent)};
    record_mask(recorder, all, block, choice);
    record_choice(recorder, all, block, choice);
  }
}

// The rows of a sequence, or one of each of several.
void select_keys(GpuContext& gpu, const ops::SelectKeys& op) {
  const KvRows& first = op.sequences.front();
  if (first.rows == 0) return;
  Recorder& recorder = gpu.recorder();
  gpu.flush_tables();
  KvTables tables;
  if (!place_tables(recorder, op.sequences, tables)) return;
  const KvView keys = append_index_keys(gpu, {op.q, op.k, {}, first.kv, tables}, op.options);
  gpu.flush();  // of queries, what their keys' launch left
  if (!tables.is_of_one()) return record_select(recorder, {op, keys, tables, 0});
  const int64_t dense = op.options.selection(op.ids).dense_rows(first.rows, first.kv.length);
  if (dense == first.rows) return;
  const ops::SelectKeys own = op.part(
      0, [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, dense, first.rows - dense); });
  record_select(recorder, {own, keys, tables, first.kv.length + dense});
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

void run(GpuContext& gpu, const ops::SelectKeys& op) {
  for_each_run(op.sequences, op.rows(), true, [&](std::span<const KvRows> run, const auto& part) {
    ops::SelectKeys own = op.part(static_cast<size_t>(run.data() - op.sequences.data()), part);
    own.sequences = run;
    if (run.size() == 1 || lie_alike(run)) return select_keys(gpu, own);
    for_each_part(own, [&](const ops::SelectKeys& one) { select_keys(gpu, one); });
  });
}

}  // namespace moeflux::gpu
