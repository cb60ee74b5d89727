// Ops along the sequence: rotary embedding and the recurrences of gated DeltaNet.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"

namespace moeflux::cpu {
namespace {

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

}  // namespace

void CpuEncoder::rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                      const RopeOptions& options) {
  flush();
  const RowsView rows(x);
  const int64_t half = options.rotary_dim / 2;
  MF_CHECK(x.shape.rank() == 3 && options.rotary_dim <= rows.cols &&
           inverse_frequencies.num_elements() == half && positions.num_elements() == x.dim(0));
  const int64_t n = x.dim(0);
  const int64_t heads = x.dim(1);
  if (!status_.ok() || n == 0 || heads == 0 || half == 0) return;
  const int32_t* position = host_ptr<int32_t>(positions);
  const float* frequencies = host_ptr<float>(inverse_frequencies);
  float* space = workspace(floats_, n * 2 * half);
  for_tasks(n, n * (heads * rows.cols + 16 * half), [&](int64_t t) {
    float* cosines = space + t * 2 * half;
    float* sines = cosines + half;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position[t]) * frequencies[i];
      cosines[i] = std::cos(angle) * options.attention_factor;
      sines[i] = std::sin(angle) * options.attention_factor;
    }
    kernels_.rope({.x = rows.row(t * heads),
                   .head_stride = x.strides[1],
                   .heads = heads,
                   .cosines = cosines,
                   .sines = sines,
                   .rotary_dim = options.rotary_dim,
                   .interleaved = options.interleaved});
  });
}

int64_t CpuEncoder::list_first_rows(std::span<const StateRows> sequences) {
  first_rows_.clear();
  int64_t row = 0;
  for (const StateRows& s : sequences) {
    MF_CHECK(s.state.is_contiguous());
    first_rows_.push_back(row);
    row += s.rows;
  }
  return row;
}

void CpuEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, Activation activation,
                             std::span<const StateRows> sequences) {
  flush();
  const RowsView to(out);
  const RowsView from(x);
  const int64_t channels = to.cols;
  const int64_t taps = weight.dim(1);
  constexpr int64_t kTapsMax = 8;  // of the kernels
  MF_CHECK(from.cols == channels && from.rows == to.rows && weight.dim(0) == channels &&
           weight.is_contiguous() && taps >= 1 && taps <= kTapsMax && out.shape.rank() == 2);
  MF_CHECK(list_first_rows(sequences) == to.rows);
  if (!status_.ok() || to.rows == 0) return;
  constexpr int64_t kChannelsPerTask = 512;
  const int64_t blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const auto count = static_cast<int64_t>(sequences.size());
  for_tasks(count * blocks, to.rows * channels * (taps + 8), [&](int64_t task) {
    const auto sequence = static_cast<size_t>(task / blocks);
    const StateRows& s = sequences[sequence];
    if (s.rows == 0) return;
    MF_CHECK(s.state.dim(0) == taps - 1 && s.state.dim(1) == channels);
    const int64_t begin = task % blocks * kChannelsPerTask;
    kernels_.causal_conv({.x = from.row(first_rows_[sequence]),
                          .x_stride = x.strides[0],
                          .out = to.row(first_rows_[sequence]),
                          .out_stride = out.strides[0],
                          .weight = host_ptr<float>(weight),
                          .state = host_ptr<float>(s.state),
                          .channels = channels,
                          .taps = taps,
                          .activation = kernel_activation(activation),
                          .n = s.rows,
                          .begin = begin,
                          .end = std::min(channels, begin + kChannelsPerTask)});
  });
}

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
  float* decay;  // [value_heads, n]
  float* beta;   // [value_heads, n]

  void find_gates(int64_t head, int64_t begin, int64_t end) const {
    const int64_t n = qkv.rows;
    const double rate = std::exp(static_cast<double>(log_rates[head]));
    for (int64_t t = begin; t < end; ++t) {
      const double step = softplus(static_cast<double>(a.row(t)[head]) + biases[head]);
      decay[head * n + t] = static_cast<float>(std::exp(-rate * step));
      beta[head * n + t] = static_cast<float>(1.0 / (1.0 + std::exp(-double{b.row(t)[head]})));
    }
  }

  /// to[t - begin] = query | key of row t, normalised.
  void normalize(const KernelTable& kernels, int64_t key_head, int64_t begin, int64_t end,
                 float* to) const {
    const float q_scale = 1.0f / std::sqrt(static_cast<float>(o.key_dim));
    for (int64_t t = begin; t < end; ++t, to += 2 * o.key_dim) {
      const float* q = qkv.row(t) + key_head * o.key_dim;
      kernels.l2_normalize(to, q, o.key_dim, q_scale);
      kernels.l2_normalize(to + o.key_dim, q + o.key_heads * o.key_dim, o.key_dim, 1.0f);
    }
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
    kernels.gated_delta(
        {.qk = qk,
         .v = inputs.qkv.row(row) + 2 * o.key_heads * o.key_dim + head * o.value_dim,
         .v_stride = qkv_stride,
         .out = out.row(row * o.value_heads + head),
         .out_stride = out_stride,
         .decay = inputs.decay + gates,
         .beta = inputs.beta + gates,
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
  MF_CHECK(list_first_rows(sequences) == n);
  if (!status_.ok() || n == 0) return;
  const int64_t row_size = 2 * o.key_dim;  // of a head's queries and keys
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
  if (std::ranges::all_of(sequences, [](const StateRows& s) { return s.rows == 1; })) {
    // To normalise a key once a value head costs less than a second loop over the pool.
    for_tasks(n * o.value_heads, work, [&](int64_t task) {
      const int64_t row = task / o.value_heads;
      const int64_t head = task % o.value_heads;
      inputs.find_gates(head, row, row + 1);
      inputs.normalize(kernels_, o.key_head_of(head), row, row + 1, qk + task * row_size);
      steps.run(static_cast<size_t>(row), head, qk + task * row_size, 0, o.value_dim, nullptr);
    });
    return;
  }
  for_tasks(o.key_heads, n * (8 * o.key_heads * o.key_dim + 256 * o.value_heads),
            [&](int64_t key_head) {
              inputs.normalize(kernels_, key_head, 0, n, qk + key_head * n * row_size);
              for (int64_t i = 0; i < o.heads_per_key(); ++i) {
                inputs.find_gates(o.value_head_of(key_head, i), 0, n);
              }
            });
  const int64_t blocks = (o.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  const auto count = static_cast<int64_t>(sequences.size());
  for_tasks_in_slots(count * o.value_heads * blocks, work, [&](int64_t task, int64_t slot) {
    // Threads side by side take different heads: halves of one head share pairs of lines.
    const int64_t head = task % o.value_heads;
    const int64_t begin = task / o.value_heads % blocks * kDeltaColumns;
    const auto sequence = static_cast<size_t>(task / o.value_heads / blocks);
    if (sequences[sequence].rows == 0) return;
    const float* head_qk = qk + (o.key_head_of(head) * n + first_rows_[sequence]) * row_size;
    steps.run(sequence, head, head_qk, begin, std::min(o.value_dim, begin + kDeltaColumns),
              strips + slot * strip_size);
  });
}

}  // namespace moeflux::cpu
