// The choice of keys: scores of all candidates of some rows, then the best of each row.
#include <algorithm>

#include "backend/cpu/cached_pages.h"
#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "backend/pooled_pages.h"
#include "backend/sequence_rows.h"

namespace moeflux::cpu {
namespace {

/// Floats of scores that are held at once: more rows go in pieces.
constexpr int64_t kScoresMax = int64_t{2} << 20;

int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

/// One call of the op for one sequence, whose keys are in their pages. Rows see more candidates
/// than they choose.
class Select {
 public:
  struct Rows {
    const Tensor& ids;
    const Tensor& q;
    const Tensor& weights;  // of heads, or null
    int64_t position;       // of the first one
  };
  /// `keys` has a row a key.
  Select(const SelectKernels& kernels, const Rows& rows, const KvView& keys,
         const SelectOptions& options, const uint8_t* const* k_pages)
      : kernels_(kernels),
        ids_(rows.ids),
        q_(rows.q),
        weights_(rows.weights),
        position_(rows.position),
        options_(options),
        key_tokens_(options.key_tokens()),
        keys_of_candidate_(options.unit / options.key_tokens()) {
    const Tensor& q = rows.q;
    shared_.q_token_stride = q.strides[0];
    shared_.q_stride = q.strides[1];
    shared_.weight_stride = weights_.is_null() ? 0 : weights_.strides[0];
    shared_.relu = options.relu;
    shared_.heads = q.dim(1);
    shared_.heads_per_group = q.dim(1) / groups();
    shared_.key_tokens = key_tokens_;
    shared_.k_pages = k_pages;
    shared_.keys_are_f16 = keys.k_pages[0].dtype == DType::kF16;
    shared_.pages = static_cast<int64_t>(keys.k_pages.size());
    shared_.page_keys = keys.page_tokens;
    shared_.k_stride = keys.k_pages[0].strides[0] * element_bytes(keys.k_pages[0]);
    shared_.head_dim = q.dim(2);
    MF_CHECK(shared_.keys_are_f16 || keys.k_pages[0].dtype == DType::kF32);
  }

  int64_t rows() const { return q_.dim(0); }
  int64_t groups() const { return ids_.dim(1); }
  /// Whole candidates, and whole panels where they have a key each.
  int64_t segment_keys() const {
    constexpr int64_t kKeys = 512;
    return keys_of_candidate_ * std::max<int64_t>(1, kKeys / keys_of_candidate_);
  }
  /// Keys that the token of a row sees.
  int64_t keys_seen(int64_t row) const { return (position_ + row + 1) / key_tokens_; }
  /// None is empty: kernels look at a segment's first key.
  int64_t segments(int64_t row, int64_t rows) const {
    return (keys_seen(row + rows - 1) + segment_keys() - 1) / segment_keys();
  }
  /// Floats of a row's candidates of one group.
  int64_t row_size() const {
    return whole_lines(options_.candidates_at(position_ + q_.dim(0) - 1)) + kIndexPanelKeys;
  }
  int64_t rows_at_once() const {
    return std::clamp<int64_t>(kScoresMax / (groups() * row_size()), 1, q_.dim(0));
  }
  int64_t panel_size() const { return whole_lines(q_.dim(2)) * kIndexPanelKeys; }
  /// Floats of the scores of keys, where candidates have several.
  int64_t keys_size(int64_t rows) const {
    return keys_of_candidate_ == 1 ? 0 : rows * groups() * key_stride();
  }
  int64_t work(int64_t rows) const {
    return rows * q_.dim(1) * q_.dim(2) * keys_seen(q_.dim(0) - 1);
  }

  /// Scores of rows [row, row + rows) over one segment; `scores` is of the first row.
  void score(int64_t row, int64_t rows, int64_t segment, float* scores, float* space) const {
    IndexScoresArgs args = shared_;
    args.q = host_ptr<float>(q_) + row * q_.strides[0];
    args.weights =
        weights_.is_null() ? nullptr : host_ptr<float>(weights_) + row * weights_.strides[0];
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
  void choose(int64_t row, int64_t group, const float* scores, int32_t* order) const {
    const int64_t most = ids_.dim(2);
    kernels_.choose_best({.scores = scores,
                          .candidates = options_.candidates_at(position_ + row),
                          .most = most,
                          .recent = options_.recent,
                          .ids = host_ptr<int32_t>(ids_) + (row * groups() + group) * most,
                          .workspace = order});
  }

 private:
  int64_t key_stride() const { return whole_lines(segment_keys()) + kIndexPanelKeys; }

  const SelectKernels& kernels_;
  const Tensor ids_;
  const Tensor q_;
  const Tensor weights_;
  const int64_t position_;
  const SelectOptions options_;
  const int64_t key_tokens_;
  const int64_t keys_of_candidate_;
  IndexScoresArgs shared_{};
};

void CpuEncoder::select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                             std::span<const KvRows> sequences, const SelectOptions& options) {
  flush();
  MF_CHECK(q.dim(1) % ids.dim(1) == 0 && k.dim(1) == 1 && k.dim(2) == q.dim(2) &&
           ids.is_contiguous() && ids.dim(0) == q.dim(0) && q.strides[2] == 1 &&
           (options.unit == 1 || options.whole || options.recent >= 1) &&
           options.recent <= ids.dim(2) && (!options.whole || options.recent <= 1));
  MF_CHECK(head_weights.is_null() ||
           (head_weights.dim(0) == q.dim(0) && head_weights.dim(1) == q.dim(1)));
  if (!status_.ok()) return;
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    if (s.rows == 0) return;
    const KvView keys = append_index_keys(part(k), s.kv, options);
    const KeySelection chosen = options.selection(part(ids));
    const int64_t dense = chosen.dense_rows(s.rows, s.kv.length);
    const int64_t rows = s.rows - dense;
    if (rows == 0) return;
    const Tensor weights = part(head_weights);
    const Tensor own_ids = chosen.ids.slice(0, dense, rows);
    const Tensor own_q = part(q).slice(0, dense, rows);
    const Tensor own_weights = weights.is_null() ? weights : weights.slice(0, dense, rows);
    select({select_,
            {own_ids, own_q, own_weights, s.kv.length + dense},
            keys,
            options,
            page_pointers(keys.k_pages, k_pages_)});
  });
}

KvView CpuEncoder::append_index_keys(const Tensor& k, const KvView& kv,
                                     const SelectOptions& options) {
  if (!options.whole) {
    append_to_cache(kernels_, k, kv.k_pages, kv);
    return kv;
  }
  KvView keys = pooled_view(kv, options.unit, k.dim(2), pooled_pages_);
  for_each_pooled_key(k, kv.length, options.unit, [&](const Tensor& rows, int64_t at) {
    keys.length = at;
    append_to_cache(kernels_, rows, keys.k_pages, keys);
  });
  return keys;
}

void CpuEncoder::select(const Select& op) {
  const int64_t groups = op.groups();
  const int64_t at_once = op.rows_at_once();
  const int64_t slot_size = op.panel_size() + op.keys_size(at_once);
  const int64_t scores_size = at_once * groups * op.row_size();
  float* slots = aligned_workspace(floats_, slot_count() * slot_size + scores_size);
  float* scores = slots + slot_count() * slot_size;
  int32_t* order = workspace(order_, slot_count() * op.row_size());
  for (int64_t row = 0; row < op.rows(); row += at_once) {
    const int64_t rows = std::min(at_once, op.rows() - row);
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
