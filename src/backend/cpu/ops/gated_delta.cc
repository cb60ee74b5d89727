#include "backend/ops/gated_delta.h"

#include <cmath>

#include "backend/cpu/cpu_context.h"
#include "backend/cpu/portable_gates.h"
#include "backend/cpu/state_rows.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

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
      beta[head * n + t] = static_cast<float>(sigmoid(double{b.row(t)[head]}));
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

void run(CpuContext& context, const ops::GatedDelta& op) {
  const GatedDeltaOptions& o = op.options;
  const KernelTable& kernels = context.kernels;
  const RowsView to(op.out);
  const RowsView rows(op.qkv);
  const int64_t n = rows.rows;
  if (n == 0) return;
  const int64_t row_size = (o.row_decay ? 4 : 2) * o.key_dim;  // of a head's queries and keys
  const StripTasks tasks{o.value_heads, o.key_dim, o.value_dim,
                         4 * n * o.value_heads * o.key_dim * o.value_dim};
  const int64_t strips_size = context.workers.threads() * tasks.strip_size();
  float* strips = context.spaces.floats(strips_size + o.value_heads * n * (row_size + 2));
  float* qk = strips + strips_size;
  float* gates = qk + o.value_heads * n * row_size;
  const DeltaInputs inputs{o,
                           rows,
                           RowsView(op.a),
                           RowsView(op.b),
                           host_ptr<float>(op.a_log),
                           host_ptr<float>(op.dt_bias),
                           gates,
                           gates + o.value_heads * n};
  const std::span<const int64_t> first = first_rows(context, op.sequences);
  const DeltaSteps steps{kernels,           inputs,           op.sequences, first, to,
                         op.qkv.strides[0], op.out.strides[0]};
  if (is_token_each(op.sequences)) {
    // To normalise a key once a value head costs less than a second loop over the pool.
    context.workers.for_tasks(n * o.value_heads, tasks.work, [&](int64_t task) {
      const int64_t row = task / o.value_heads;
      const int64_t head = task % o.value_heads;
      inputs.prepare(kernels, head, row, row + 1, qk + task * row_size);
      steps.run(static_cast<size_t>(row), head, qk + task * row_size, 0, o.value_dim, nullptr);
    });
    return;
  }
  if (o.row_decay) {
    context.workers.for_tasks(
        o.value_heads, n * o.value_heads * (40 * o.key_dim + 128),
        [&](int64_t head) { inputs.prepare(kernels, head, 0, n, qk + head * n * row_size); });
  } else {
    context.workers.for_tasks(o.key_heads, n * (8 * o.key_heads * o.key_dim + 256 * o.value_heads),
                              [&](int64_t key_head) {
                                inputs.normalize(kernels, key_head, 0, n,
                                                 qk + key_head * n * row_size);
                                for (int64_t i = 0; i < o.heads_per_key(); ++i) {
                                  inputs.find_gates(o.value_head_of(key_head, i), 0, n);
                                }
                              });
  }
  run_strips(context, tasks, op.sequences, strips,
             [&](size_t sequence, int64_t head, int64_t begin, int64_t end, float* strip) {
               const int64_t owner = o.row_decay ? head : o.key_head_of(head);
               const float* head_qk = qk + (owner * n + first[sequence]) * row_size;
               steps.run(sequence, head, head_qk, begin, end, strip);
             });
}

}  // namespace moeflux::cpu
