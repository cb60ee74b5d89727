// Recurrences over the states of sequences: the gated delta rule and the selective scan.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

double softplus(double x) { return x > 20.0 ? x : portable_log1p(portable_exp(x)); }

bool is_token_each(std::span<const StateRows> sequences) {
  return std::ranges::all_of(sequences, [](const StateRows& s) { return s.rows == 1; });
}

/// The inputs of gated_delta that heads share, and where what is computed of them goes: by row,
/// whosever it is.
struct DeltaInputs {
  const GatedDeltaOptions& o;
  RowsView qkv;
  RowsView a;
  RowsView b;
  const float* log_rates;
  const float* biases;
  float* decay;  // [value_heads, n], unless rows have theirs
  float* beta;   // [value_heads, n]

  /// A token has query | key, and where rows decay by themselves | decays | decayed key.
  int64_t row_size() const { return (o.row_decay ? 4 : 2) * o.key_dim; }

  void find_gates(int64_t head, int64_t begin, int64_t end) const {
    const int64_t n = qkv.rows;
    const double rate = portable_exp(static_cast<double>(log_rates[head]));
    for (int64_t t = begin; t < end; ++t) {
      beta[head * n + t] = static_cast<float>(1.0 / (1.0 + portable_exp(-double{b.row(t)[head]})));
      if (o.row_decay) continue;
      const double input = static_cast<double>(a.row(t)[head]) + biases[head];
      const double log_decay = o.decay_bound != 0.0f
                                   ? o.decay_bound / (1.0 + portable_exp(-rate * input))
                                   : -rate * softplus(input);
      decay[head * n + t] = static_cast<float>(portable_exp(log_decay));
    }
  }

  /// to[t - begin] = query | key of row t, normalised.
  void normalize(const KernelTable& kernels, int64_t key_head, int64_t begin, int64_t end,
                 float* to) const {
    const float q_scale = 1.0f / std::sqrt(static_cast<float>(o.key_dim));
    for (int64_t t = begin; t < end; ++t, to += row_size()) {
      const float* q = qkv.row(t) + key_head * o.key_dim;
      kernels.l2_normalize(to, q, o.key_dim, q_scale);
      kernels.l2_normalize(to + o.key_dim, q + o.key_heads * o.key_dim, o.key_dim, 1.0f);
    }
  }

  /// Fills the workspace behind these arrays where rows decay by themselves.
  void find_row_decays(const KernelTable& kernels, int64_t head, int64_t begin, int64_t end,
                       float* to) const {
    const auto rate = static_cast<float>(portable_exp(static_cast<double>(log_rates[head])));
    for (int64_t t = begin; t < end; ++t, to += row_size()) {
      kernels.row_decays({.a = a.row(t) + head * o.key_dim,
                          .bias = biases + head * o.key_dim,
                          .k = to + o.key_dim,
                          .rate = rate,
                          .bound = o.decay_bound,
                          .n = o.key_dim,
                          .decays = to + 2 * o.key_dim,
                          .recall = to + 3 * o.key_dim});
    }
  }

  /// All of a value head's rows [begin, end).
  void prepare(const KernelTable& kernels, int64_t head, int64_t begin, int64_t end,
               float* to) const {
    find_gates(head, begin, end);
    normalize(kernels, o.key_head_of(head), begin, end, to);
    if (o.row_decay) find_row_decays(kernels, head, begin, end, to);
  }
};

/// The recurrence, sequence by sequence.
struct DeltaSteps {
  const KernelTable& kernels;
  const DeltaInputs& inputs;
  std::span<const StateRows> sequences;
  std::span<const int64_t> first_rows;
  RowsView out;  // [n * value_heads, value_dim]
  int64_t qkv_stride;
  int64_t out_stride;

  /// Columns [begin, end) of a head, given its queries and keys.
  void run(size_t sequence, int64_t head, const float* qk, int64_t begin, int64_t end,
           float* strip) const {
    const GatedDeltaOptions& o = inputs.o;
    const StateRows& s = sequences[sequence];
    const int64_t row = first_rows[sequence];
    const int64_t gates = head * inputs.qkv.rows + row;
    kernels.recurrence({.rule = o.row_decay ? StateRule::kRowDelta : StateRule::kDelta,
                        .q = qk,
                        .k = qk + o.key_dim,
                        .decays = o.row_decay ? qk + 2 * o.key_dim : nullptr,
                        .recall = o.row_decay ? qk + 3 * o.key_dim : nullptr,
                        .key_stride = inputs.row_size(),
                        .v = inputs.qkv.row(row) + 2 * o.key_heads * o.key_dim + head * o.value_dim,
                        .v_stride = qkv_stride,
                        .out = out.row(row * o.value_heads + head),
                        .out_stride = out_stride,
                        .decay = inputs.decay + gates,
                        .beta = inputs.beta + gates,
                        .skip = 0.0f,
                        .state = host_ptr<float>(s.state) + head * o.key_dim * o.value_dim,
                        .n = s.rows,
                        .key_dim = o.key_dim,
                        .value_dim = o.value_dim,
                        .begin = begin,
                        .end = end,
                        .workspace = strip});
  }
};

}  // namespace

template <typename Run>
void CpuEncoder::run_strips(const StripTasks& tasks, std::span<const StateRows> sequences,
                            float* strips, const Run& run) {
  const int64_t strip_size = tasks.key_dim * kDeltaColumns;
  const int64_t blocks = (tasks.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  const auto count = static_cast<int64_t>(sequences.size());
  for_tasks_in_slots(count * tasks.heads * blocks, tasks.work, [&](int64_t task, int64_t slot) {
    // Threads side by side take different heads: halves of one head share pairs of lines.
    const int64_t head = task % tasks.heads;
    const int64_t begin = task / tasks.heads % blocks * kDeltaColumns;
    const auto sequence = static_cast<size_t>(task / tasks.heads / blocks);
    if (sequences[sequence].rows == 0) return;
    run(sequence, head, begin, std::min(tasks.value_dim, begin + kDeltaColumns),
        strips + slot * strip_size);
  });
}

void CpuEncoder::gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log,
                             Tensor dt_bias, std::span<const StateRows> sequences,
                             const GatedDeltaOptions& o) {
  flush();
  const RowsView to(out);
  const RowsView rows(qkv);
  const int64_t n = rows.rows;
  MF_CHECK(rows.cols == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && RowsView(a).rows == n && RowsView(b).rows == n &&
           to.rows == n * o.value_heads && qkv.shape.rank() == 2);
  MF_CHECK(a.shape.back() == o.decays() && dt_bias.num_elements() == o.decays());
  MF_CHECK(list_first_rows(sequences) == n);
  if (!status_.ok() || n == 0) return;
  const int64_t row_size = (o.row_decay ? 4 : 2) * o.key_dim;  // of a head's queries and keys
  const int64_t strip_size = o.key_dim * kDeltaColumns;
  float* strips =
      aligned_workspace(floats_, slot_count() * strip_size + o.value_heads * n * (row_size + 2));
  float* qk = strips + slot_count() * strip_size;
  float* gates = qk + o.value_heads * n * row_size;
  const DeltaInputs inputs{o,
                           rows,
                           RowsView(a),
                           RowsView(b),
                           host_ptr<float>(a_log),
                           host_ptr<float>(dt_bias),
                           gates,
                           gates + o.value_heads * n};
  const DeltaSteps steps{kernels_, inputs,         sequences,     first_rows_,
                         to,       qkv.strides[0], out.strides[0]};
  const int64_t work = 4 * n * o.value_heads * o.key_dim * o.value_dim;
  if (is_token_each(sequences)) {
    // To normalise a key once a value head costs less than a second loop over the pool.
    for_tasks(n * o.value_heads, work, [&](int64_t task) {
      const int64_t row = task / o.value_heads;
      const int64_t head = task % o.value_heads;
      inputs.prepare(kernels_, head, row, row + 1, qk + task * row_size);
      steps.run(static_cast<size_t>(row), head, qk + task * row_size, 0, o.value_dim, nullptr);
    });
    return;
  }
  if (o.row_decay) {
    for_tasks(o.value_heads, n * o.value_heads * (40 * o.key_dim + 128), [&](int64_t head) {
      inputs.prepare(kernels_, head, 0, n, qk + head * n * row_size);
    });
  } else {
    for_tasks(o.key_heads, n * (8 * o.key_heads * o.key_dim + 256 * o.value_heads),
              [&](int64_t key_head) {
                inputs.normalize(kernels_, key_head, 0, n, qk + key_head * n * row_size);
                for (int64_t i = 0; i < o.heads_per_key(); ++i) {
                  inputs.find_gates(o.value_head_of(key_head, i), 0, n);
                }
              });
  }
  run_strips({o.value_heads, o.key_dim, o.value_dim, work}, sequences, strips,
             [&](size_t sequence, int64_t head, int64_t begin, int64_t end, float* strip) {
               const int64_t owner = o.row_decay ? head : o.key_head_of(head);
               const float* head_qk = qk + (owner * n + first_rows_[sequence]) * row_size;
               steps.run(sequence, head, head_qk, begin, end, strip);
             });
}

void CpuEncoder::selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                                std::span<const StateRows> sequences, const ScanOptions& o) {
  flush();
  const RowsView to(out);
  const RowsView rows(xbc);
  const RowsView steps(dt);
  const int64_t n = rows.rows;
  MF_CHECK(rows.cols == o.row_width() && o.heads % o.groups == 0 && steps.rows == n &&
           steps.cols == o.heads && to.rows == n * o.heads && to.cols == o.head_dim &&
           xbc.shape.rank() == 2);
  MF_CHECK(list_first_rows(sequences) == n);
  if (!status_.ok() || n == 0) return;
  const int64_t strip_size = o.state_dim * kDeltaColumns;
  float* strips = aligned_workspace(floats_, slot_count() * strip_size + 2 * o.heads * n);
  float* decay = strips + slot_count() * strip_size;  // [heads, n]
  float* step = decay + o.heads * n;                  // [heads, n]
  const auto find_steps = [&](int64_t head, int64_t begin, int64_t end) {
    const double rate = portable_exp(static_cast<double>(host_ptr<float>(weights.a_log)[head]));
    const double bias = host_ptr<float>(weights.dt_bias)[head];
    for (int64_t t = begin; t < end; ++t) {
      const double own = softplus(static_cast<double>(steps.row(t)[head]) + bias);
      step[head * n + t] = static_cast<float>(own);
      decay[head * n + t] = static_cast<float>(portable_exp(-rate * own));
    }
  };
  const auto run = [&](size_t sequence, int64_t head, int64_t begin, int64_t end, float* strip) {
    const StateRows& s = sequences[sequence];
    const int64_t row = first_rows_[sequence];
    const float* b = rows.row(row) + o.heads * o.head_dim + o.group_of(head) * o.state_dim;
    kernels_.recurrence({.rule = StateRule::kScan,
                         .q = b + o.groups * o.state_dim,
                         .k = b,
                         .decays = nullptr,
                         .recall = nullptr,
                         .key_stride = xbc.strides[0],
                         .v = rows.row(row) + head * o.head_dim,
                         .v_stride = xbc.strides[0],
                         .out = to.row(row * o.heads + head),
                         .out_stride = out.strides[0],
                         .decay = decay + head * n + row,
                         .beta = step + head * n + row,
                         .skip = host_ptr<float>(weights.skip)[head],
                         .state = host_ptr<float>(s.state) + head * o.state_dim * o.head_dim,
                         .n = s.rows,
                         .key_dim = o.state_dim,
                         .value_dim = o.head_dim,
                         .begin = begin,
                         .end = end,
                         .workspace = strip});
  };
  const int64_t work = 3 * n * o.heads * o.state_dim * o.head_dim;
  if (is_token_each(sequences)) {
    for_tasks(n * o.heads, work, [&](int64_t task) {
      const int64_t row = task / o.heads;
      const int64_t head = task % o.heads;
      find_steps(head, row, row + 1);
      run(static_cast<size_t>(row), head, 0, o.head_dim, nullptr);
    });
    return;
  }
  for_tasks(o.heads, 128 * n * o.heads, [&](int64_t head) { find_steps(head, 0, n); });
  run_strips({o.heads, o.state_dim, o.head_dim, work}, sequences, strips, run);
}

}  // namespace moeflux::cpu
