// Scores of all candidates of some rows, then the best of each row.
#include "backend/ops/select_keys.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cpu/cached_pages.h"
#include "backend/cpu/cpu_context.h"
#include "backend/sequence_rows.h"

namespace moeflux::cpu {
namespace {

/// Floats of scores that are held at once: more rows go in pieces.
constexpr int64_t kScoresMax = int64_t{2} << 20;

int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

/// One call of the op for one sequence, whose keys are in their pages. Rows see more candidates
/// than they choose.
class Select {
 public:
  /// `op` is of tokens from `position` on; `keys` has a row a key.
  Select(const SelectKernels& kernels, const ops::SelectKeys& op, int64_t position,
         const KvView& keys, const uint8_t* const* k_pages)
      : kernels_(kernels),
        op_(op),
        position_(position),
        key_tokens_(op.options.key_tokens()),
        keys_of_candidate_(op.options.unit / op.options.key_tokens()) {
    shared_.q_token_stride = op.q.strides[0];
    shared_.q_stride = op.q.strides[1];
    shared_.weight_stride = op.head_weights.is_null() ? 0 : op.head_weights.strides[0];
    shared_.relu = op.options.relu;
    shared_.heads = op.q.dim(1);
    shared_.heads_per_group = op.q.dim(1) / groups();
    shared_.key_tokens = key_tokens_;
    shared_.k_pages = k_pages;
    shared_.keys_are_f16 = keys.k_pages[0].dtype == DType::kF16;
    shared_.pages = static_cast<int64_t>(keys.k_pages.size());
    shared_.page_keys = keys.page_tokens;
    shared_.k_stride = keys.k_pages[0].strides[0] * element_bytes(keys.k_pages[0]);
    shared_.head_dim = op.q.dim(2);
  }

  int64_t rows() const { return op_.q.dim(0); }
  int64_t groups() const { return op_.ids.dim(1); }
  /// Whole candidates, and whole panels where they have a key each.
  int64_t segment_keys() const {
    constexpr int64_t kKeys = 512;
    return keys_of_candidate_ * std::max<int64_t>(1, kKeys / keys_of_candidate_);
  }
  int64_t keys_seen(int64_t row) const { return (position_ + row + 1) / key_tokens_; }
  /// None is empty: kernels look at a segment's first key.
  int64_t segments(int64_t row, int64_t rows) const {
    return (keys_seen(row + rows - 1) + segment_keys() - 1) / segment_keys();
  }
  /// Floats of a row's candidates of one group.
  int64_t row_size() const {
    return whole_lines(op_.options.candidates_at(position_ + op_.q.dim(0) - 1)) + kIndexPanelKeys;
  }
  int64_t rows_at_once() const {
    return std::clamp<int64_t>(kScoresMax / (groups() * row_size()), 1, op_.q.dim(0));
  }
  int64_t panel_size() const { return whole_lines(op_.q.dim(2)) * kIndexPanelKeys; }
  /// Floats of the scores of keys, where candidates have several.
  int64_t keys_size(int64_t rows) const {
    return keys_of_candidate_ == 1 ? 0 : rows * groups() * key_stride();
  }
  int64_t work(int64_t rows) const {
    return rows * op_.q.dim(1) * op_.q.dim(2) * keys_seen(op_.q.dim(0) - 1);
  }

  /// Scores of rows [row, row + rows) over one segment; `scores` is of the first row.
  void score(int64_t row, int64_t rows, int64_t segment, float* scores, float* space) const {
    IndexScoresArgs args = shared_;
    args.q = host_ptr<float>(op_.q) + row * op_.q.strides[0];
    args.weights = op_.head_weights.is_null()
                       ? nullptr
                       : host_ptr<float>(op_.head_weights) + row * op_.head_weights.strides[0];
    args.tokens = rows;
    args.position = position_ + row;
    args.begin = segment * segment_keys();
    args.end = std::min(args.begin + segment_keys(), keys_seen(row + rows - 1));
    args.workspace = space;
    const bool has_one_each = keys_of_candidate_ == 1;
    args.out = has_one_each ? scores + args.begin : space + panel_size();
    args.out_group_stride = has_one_each ? row_size() : key_stride();
    args.out_token_stride = groups() * args.out_group_stride;
    kernels_.index_scores(args);
    if (has_one_each) return;
    for (int64_t i = 0; i < rows * groups(); ++i) {
      const int64_t seen = std::min(args.end, keys_seen(row + i / groups())) - args.begin;
      if (seen <= 0) continue;
      kernels_.best_of_units(scores + i * row_size() + args.begin / keys_of_candidate_,
                             args.out + i * key_stride(), seen, keys_of_candidate_);
    }
  }

  /// The choice of a group of a row.
  void choose(int64_t row, int64_t group, float* scores, int32_t* order) const {
    const int64_t most = op_.ids.dim(2);
    if (op_.is_within(position_ + row)) mask(row, scores);
    kernels_.choose_best({.scores = scores,
                          .candidates = op_.options.candidates_at(position_ + row),
                          .most = most,
                          .recent = op_.options.recent,
                          .ids = host_ptr<int32_t>(op_.ids) + (row * groups() + group) * most,
                          .workspace = order});
  }

 private:
  /// Leaves the scores of candidates that lie in those of an earlier choice.
  void mask(int64_t row, float* scores) const {
    const KeySelection& within = op_.within;
    const int64_t unit = within.unit / op_.options.unit;
    const int32_t* chosen = host_ptr<int32_t>(within.ids) + row * within.most();
    const int64_t all = op_.options.candidates_at(position_ + row);
    int64_t done = 0;
    for (int64_t i = 0; i <= within.most(); ++i) {
      const int64_t next = i < within.most() ? std::min(chosen[i] * unit, all) : all;
      std::fill(scores + done, scores + std::max(done, next),
                -std::numeric_limits<float>::infinity());
      done = std::max(done, next + unit);
    }
  }
  int64_t key_stride() const { return whole_lines(segment_keys()) + kIndexPanelKeys; }

  const SelectKernels& kernels_;
  const ops::SelectKeys& op_;
  const int64_t position_;
  const int64_t key_tokens_;
  const int64_t keys_of_candidate_;
  IndexScoresArgs shared_{};
};

struct SelectSpaces {
  std::vector<Tensor> pages;
  std::vector<const uint8_t*> page_pointers;
  std::vector<int32_t> order;  // of candidates
};

void choose_keys(CpuContext& context, const Select& op, std::vector<int32_t>& order_space) {
  const int64_t threads = context.workers.threads();
  const int64_t groups = op.groups();
  const int64_t at_once = op.rows_at_once();
  const int64_t slot_size = op.panel_size() + op.keys_size(at_once);
  const int64_t scores_size = at_once * groups * op.row_size();
  float* slots = context.spaces.floats(threads * slot_size + scores_size);
  float* scores = slots + threads * slot_size;
  int32_t* order = workspace(order_space, threads * op.row_size());
  for (int64_t row = 0; row < op.rows(); row += at_once) {
    const int64_t rows = std::min(at_once, op.rows() - row);
    context.workers.for_tasks(op.segments(row, rows), op.work(rows),
                              [&](int64_t task, int64_t thread) {
                                op.score(row, rows, task, scores, slots + thread * slot_size);
                              });
    context.workers.for_tasks(
        rows * groups, rows * groups * op.row_size() * 8, [&](int64_t task, int64_t thread) {
          op.choose(row + task / groups, task % groups, scores + task * op.row_size(),
                    order + thread * op.row_size());
        });
  }
}

/// The choices of one sequence.
void select_of_one(CpuContext& context, const ops::SelectKeys& op) {
  const KvRows& s = op.sequences.front();
  if (s.rows == 0) return;
  SelectSpaces& spaces = context.spaces.of<SelectSpaces>();
  const KvView keys = append_index_keys(context.kernels, op.k, s.kv, op.options, spaces.pages);
  const int64_t dense = op.options.selection(op.ids).dense_rows(s.rows, s.kv.length);
  const int64_t rows = s.rows - dense;
  if (rows == 0) return;
  ops::SelectKeys own = op;
  own.ids = op.ids.slice(0, dense, rows);
  own.q = op.q.slice(0, dense, rows);
  if (!own.head_weights.is_null()) own.head_weights = own.head_weights.slice(0, dense, rows);
  own.within = own.within.slice(dense, rows);
  choose_keys(context,
              {context.select, own, s.kv.length + dense, keys,
               page_pointers(keys.k_pages, spaces.page_pointers)},
              spaces.order);
}

}  // namespace

void run(CpuContext& context, const ops::SelectKeys& op) {
  for_each_part(op, [&](const ops::SelectKeys& one) { select_of_one(context, one); });
}

}  // namespace moeflux::cpu
