// The choice of keys: scores of all candidates of some rows, then the best of each row.
#include <algorithm>

#include "backend/cpu/cached_pages.h"
#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "backend/sequence_rows.h"

namespace moeflux::cpu {
namespace {

/// Floats of scores that are held at once: more rows go in pieces.
constexpr int64_t kScoresMax = int64_t{2} << 20;

int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

/// One call of the op for one sequence.
class Select {
 public:
  Select(const SelectKernels& kernels, const Tensor& ids, const Tensor& q,
         const Tensor& head_weights, const KvView& kv, const SelectOptions& options,
         const uint8_t* const* k_pages)
      : kernels_(kernels), ids_(ids), q_(q), weights_(head_weights), kv_(kv), options_(options) {
    shared_.q_token_stride = q.strides[0];
    shared_.q_stride = q.strides[1];
    shared_.weight_stride = head_weights.is_null() ? 0 : head_weights.strides[0];
    shared_.heads = q.dim(1);
    shared_.heads_per_group = q.dim(1) / groups();
    shared_.k_pages = k_pages;
    shared_.keys_are_f16 = kv.k_pages[0].dtype == DType::kF16;
    shared_.pages = static_cast<int64_t>(kv.k_pages.size());
    shared_.page_tokens = kv.page_tokens;
    shared_.k_stride = kv.k_pages[0].strides[0] * element_bytes(kv.k_pages[0]);
    shared_.head_dim = q.dim(2);
    MF_CHECK(shared_.keys_are_f16 || kv.k_pages[0].dtype == DType::kF32);
  }

  int64_t groups() const { return ids_.dim(1); }
  /// Whole candidates, and whole panels where candidates are tokens.
  int64_t segment_tokens() const {
    constexpr int64_t kTokens = 512;
    return options_.unit * std::max<int64_t>(1, kTokens / options_.unit);
  }
  int64_t segments(int64_t row, int64_t rows) const {
    return (kv_.length + row + rows - 1) / segment_tokens() + 1;
  }
  /// Floats of a row's candidates of one group.
  int64_t row_size() const {
    return whole_lines((kv_.length + q_.dim(0) - 1) / options_.unit + 1) + kIndexPanelKeys;
  }
  int64_t rows_at_once() const {
    return std::clamp<int64_t>(kScoresMax / (groups() * row_size()), 1, q_.dim(0));
  }
  int64_t panel_size() const { return whole_lines(q_.dim(2)) * kIndexPanelKeys; }
  /// Floats of the scores of tokens, where candidates are more than that.
  int64_t tokens_size(int64_t rows) const {
    return options_.unit == 1 ? 0 : rows * groups() * token_stride();
  }
  int64_t work(int64_t rows) const {
    return rows * q_.dim(1) * q_.dim(2) * (kv_.length + q_.dim(0));
  }

  /// Scores of rows [row, row + rows) over one segment; `scores` is of the first row.
  void score(int64_t row, int64_t rows, int64_t segment, float* scores, float* space) const {
    IndexScoresArgs args = shared_;
    args.q = host_ptr<float>(q_) + row * q_.strides[0];
    args.weights =
        weights_.is_null() ? nullptr : host_ptr<float>(weights_) + row * weights_.strides[0];
    args.tokens = rows;
    args.position = kv_.length + row;
    args.begin = segment * segment_tokens();
    args.end = std::min(args.begin + segment_tokens(), args.position + rows);
    args.workspace = space;
    const bool are_tokens = options_.unit == 1;
    args.out = are_tokens ? scores + args.begin : space + panel_size();
    args.out_group_stride = are_tokens ? row_size() : token_stride();
    args.out_token_stride = groups() * args.out_group_stride;
    kernels_.index_scores(args);
    if (are_tokens) return;
    for (int64_t i = 0; i < rows * groups(); ++i) {
      const int64_t seen = std::min(args.end, args.position + i / groups() + 1) - args.begin;
      if (seen <= 0) continue;
      kernels_.best_of_units(scores + i * row_size() + args.begin / options_.unit,
                             args.out + i * token_stride(), seen, options_.unit);
    }
  }

  /// The choice of a group of a row.
  void choose(int64_t row, int64_t group, const float* scores, int32_t* order) const {
    const int64_t most = ids_.dim(2);
    kernels_.choose_best({.scores = scores,
                          .candidates = (kv_.length + row) / options_.unit + 1,
                          .most = most,
                          .recent = options_.recent,
                          .ids = host_ptr<int32_t>(ids_) + (row * groups() + group) * most,
                          .workspace = order});
  }

 private:
  int64_t token_stride() const { return whole_lines(segment_tokens()) + kIndexPanelKeys; }

  const SelectKernels& kernels_;
  const Tensor ids_;
  const Tensor q_;
  const Tensor weights_;
  const KvView& kv_;
  const SelectOptions options_;
  IndexScoresArgs shared_{};
};

}  // namespace

void CpuEncoder::select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                             std::span<const KvRows> sequences, const SelectOptions& options) {
  flush();
  MF_CHECK(q.dim(1) % ids.dim(1) == 0 && k.dim(1) == 1 && k.dim(2) == q.dim(2) &&
           ids.is_contiguous() && ids.dim(0) == q.dim(0) && q.strides[2] == 1 &&
           (options.unit == 1 || options.recent >= 1) && options.recent <= ids.dim(2));
  MF_CHECK(head_weights.is_null() ||
           (head_weights.dim(0) == q.dim(0) && head_weights.dim(1) == q.dim(1)));
  if (!status_.ok()) return;
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    if (s.rows == 0) return;
    append_to_cache(kernels_, part(k), s.kv.k_pages, s.kv);
    const KeySelection chosen{part(ids), options.unit};
    const int64_t dense = chosen.dense_rows(s.rows, s.kv.length);
    const int64_t rows = s.rows - dense;
    if (rows == 0) return;
    KvView kv = s.kv;
    kv.length += dense;
    const Tensor weights = part(head_weights);
    select(chosen.ids.slice(0, dense, rows), part(q).slice(0, dense, rows),
           weights.is_null() ? weights : weights.slice(0, dense, rows), kv, options);
  });
}

void CpuEncoder::select(const Tensor& ids, const Tensor& q, const Tensor& head_weights,
                        const KvView& kv, const SelectOptions& options) {
  const Select op(select_, ids, q, head_weights, kv, options, page_pointers(kv.k_pages, k_pages_));
  const int64_t groups = op.groups();
  const int64_t at_once = op.rows_at_once();
  const int64_t slot_size = op.panel_size() + op.tokens_size(at_once);
  const int64_t scores_size = at_once * groups * op.row_size();
  float* slots = aligned_workspace(floats_, slot_count() * slot_size + scores_size);
  float* scores = slots + slot_count() * slot_size;
  int32_t* order = workspace(order_, slot_count() * op.row_size());
  for (int64_t row = 0; row < q.dim(0); row += at_once) {
    const int64_t rows = std::min(at_once, q.dim(0) - row);
    for_tasks_in_slots(op.segments(row, rows), op.work(rows), [&](int64_t task, int64_t slot) {
      op.score(row, rows, task, scores, slots + slot * slot_size);
    });
    for_tasks_in_slots(rows * groups, rows * groups * op.row_size() * 8,
                       [&](int64_t task, int64_t slot) {
                         op.choose(row + task / groups, task % groups,
                                   scores + task * op.row_size(), order + slot * op.row_size());
                       });
  }
}

}  // namespace moeflux::cpu
