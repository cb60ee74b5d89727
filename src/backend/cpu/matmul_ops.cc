// Ops that read weight matrices: embedding, linear and the experts.
#include <algorithm>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"

namespace moeflux::cpu {
void CpuEncoder::embed(Tensor out, const Weight& table, Tensor token_ids) {
  const RowsView to(out);
  MF_CHECK(to.rows == token_ids.num_elements() && to.cols == table.cols);
  if (!supports("embed", table)) return;
  const int32_t* ids = host_ptr<int32_t>(token_ids);
  for_tasks(to.rows, to.rows * to.cols * 8, [&](int64_t t) {
    MF_CHECK(ids[t] >= 0 && ids[t] < table.rows);
    decode_row(table, ids[t], std::span(to.row(t), static_cast<size_t>(to.cols)));
  });
}

void CpuEncoder::linear(Tensor out, Tensor x, const Weight& weight) {
  const RowsView to(out);
  const RowsView from(x);
  MF_CHECK(to.rows == from.rows && to.cols == weight.rows && from.cols == weight.cols);
  if (!supports("linear", weight) || to.rows == 0 || weight.rows == 0) return;
  const int64_t n = to.rows;
  const float** inputs = workspace(inputs_, n);
  float** outputs = workspace(outputs_, n);
  for (int64_t t = 0; t < n; ++t) {
    inputs[t] = from.row(t);
    outputs[t] = to.row(t);
  }
  const std::span<const float* const> rows(inputs, static_cast<size_t>(n));
  if (wants_int8(weight)) {
    quantize_rows(rows, from.cols, weight.format.group_size);
  } else if (wants_permuted(weight)) {
    permute_rows(rows, from.cols, permuted_, permuted_inputs_);
    inputs = permuted_inputs_.data();
  }
  const MatrixArgs matrix = matrix_args(weight);
  const int64_t step = rows_per_task(weight.rows, 1);
  const bool int8 = wants_int8(weight);
  for_tasks((weight.rows + step - 1) / step, weight.rows * weight.cols * n, [&](int64_t task) {
    if (int8) {
      return int8_matmul(*int8_, {.w = matrix,
                                  .bias = {},
                                  .x = int8_rows(weight.format.group_size).entries.data(),
                                  .out = outputs,
                                  .tokens = n,
                                  .row_begin = task * step,
                                  .row_end = std::min(weight.rows, (task + 1) * step)});
    }
    kernels_.matmul({.w = matrix,
                     .bias = {},
                     .x = inputs,
                     .out = outputs,
                     .tokens = n,
                     .row_begin = task * step,
                     .row_end = std::min(weight.rows, (task + 1) * step),
                     .out_row = 0});
  });
}

int64_t CpuEncoder::sort_slots(const Routes& routes, int64_t slot_count,
                               std::span<const ExpertWeights> ready) {
  ExpertSlots& sorted = expert_slots_;
  const int32_t* ids = host_ptr<int32_t>(routes.ids);
  int32_t id_max = -1;
  for (const ExpertWeights& expert : ready) id_max = std::max(id_max, index(expert.expert));
  int32_t* ready_of = workspace(sorted.ready_of_expert, id_max + 1);
  std::fill_n(ready_of, id_max + 1, -1);
  for (size_t i = 0; i < ready.size(); ++i) {
    ready_of[index(ready[i].expert)] = static_cast<int32_t>(i);
  }
  const auto count = static_cast<int64_t>(ready.size());
  int64_t* begin = workspace(sorted.begin, count + 2);
  std::fill_n(begin, count + 2, 0);
  const auto ready_index = [&](int64_t slot) {
    return ids[slot] >= 0 && ids[slot] <= id_max ? ready_of[ids[slot]] : -1;
  };
  // Counting sort; begin[i + 1] is where expert i writes next and ends as where i + 1 begins.
  for (int64_t slot = 0; slot < slot_count; ++slot) {
    if (ready_index(slot) >= 0) ++begin[ready_index(slot) + 2];
  }
  for (int64_t i = 2; i <= count + 1; ++i) begin[i] += begin[i - 1];
  int64_t* slots = workspace(sorted.slots, slot_count);
  for (int64_t slot = 0; slot < slot_count; ++slot) {
    if (ready_index(slot) >= 0) slots[begin[ready_index(slot) + 1]++] = slot;
  }
  return begin[count];
}

void CpuEncoder::expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                            std::span<const ExpertWeights> ready, const GluOptions& glu) {
  const RowsView from(x);
  const RowsView hidden(intermediate);
  const RowsView to(slots);
  const int64_t top_k = routes.ids.dim(1);
  MF_CHECK(routes.ids.dim(0) == from.rows && hidden.rows == from.rows * top_k &&
           to.rows == hidden.rows);
  if (ready.empty()) return;
  for (const ExpertWeights& e : ready) {
    MF_CHECK(e.gate.cols == from.cols && e.up.cols == from.cols && e.gate.rows == hidden.cols &&
             e.up.rows == hidden.cols && e.down.cols == hidden.cols && e.down.rows == to.cols);
    MF_CHECK(e.gate_bias.is_null() || e.gate_bias.num_elements() == hidden.cols);
    MF_CHECK(e.up_bias.is_null() || e.up_bias.num_elements() == hidden.cols);
    MF_CHECK(e.down_bias.is_null() || e.down_bias.num_elements() == to.cols);
    for (const Weight* w : {&e.gate, &e.up, &e.down}) {
      if (!supports("expert_ffn", *w)) return;
    }
  }
  if (sort_slots(routes, hidden.rows, ready) == 0) return;
  expert_gate_up(hidden, from, top_k, ready, glu);
  expert_down(to, hidden, ready);
}

void CpuEncoder::expert_gate_up(const RowsView& hidden, const RowsView& from, int64_t top_k,
                                std::span<const ExpertWeights> ready, const GluOptions& glu) {
  const auto experts = static_cast<int64_t>(ready.size());
  const int64_t* order = expert_slots_.slots.data();
  const int64_t* begin = expert_slots_.begin.data();
  const int64_t count = begin[experts];
  const float** inputs = workspace(inputs_, count);
  float** outputs = workspace(outputs_, count);
  for (int64_t i = 0; i < count; ++i) {
    inputs[i] = from.row(order[i] / top_k);
    outputs[i] = hidden.row(order[i]);
  }
  const std::span<const float* const> rows(inputs, static_cast<size_t>(count));
  bool any_permuted = false;
  bool any_int8[kInt8GroupSizes] = {};
  for (const ExpertWeights& e : ready) {
    if (wants_int8(e)) {
      any_int8[int8_index(e.gate.format.group_size)] = true;
    } else {
      any_permuted = any_permuted || wants_permuted(e.gate) || wants_permuted(e.up);
    }
  }
  quantize_for(any_int8, rows, from.cols);
  const float** permuted = inputs;
  if (any_permuted) {
    permute_rows(rows, from.cols, permuted_, permuted_inputs_);
    permuted = permuted_inputs_.data();
  }
  const GluArgs unit = glu_args(glu);
  const int64_t step = rows_per_task(2 * hidden.cols, experts);
  const int64_t blocks = (hidden.cols + step - 1) / step;
  for_tasks(experts * blocks, 2 * count * hidden.cols * from.cols, [&](int64_t task) {
    const int64_t e = task / blocks;
    const int64_t row = task % blocks * step;
    const int64_t row_end = std::min(hidden.cols, row + step);
    const ExpertWeights& expert = ready[static_cast<size_t>(e)];
    if (begin[e] == begin[e + 1]) return;
    if (wants_int8(expert)) {
      return int8_glu_matmul(
          *int8_, kernels_,
          {.gate = matrix_args(expert.gate),
           .up = matrix_args(expert.up),
           .gate_bias = expert.gate_bias,
           .up_bias = expert.up_bias,
           .x = int8_rows(expert.gate.format.group_size).entries.data() + begin[e],
           .out = outputs + begin[e],
           .tokens = begin[e + 1] - begin[e],
           .row_begin = row,
           .row_end = row_end,
           .glu = unit});
    }
    kernels_.glu_matmul({.gate = matrix_args(expert.gate),
                         .up = matrix_args(expert.up),
                         .gate_bias = bias_args(expert.gate_bias),
                         .up_bias = bias_args(expert.up_bias),
                         .x_gate = (wants_permuted(expert.gate) ? permuted : inputs) + begin[e],
                         .x_up = (wants_permuted(expert.up) ? permuted : inputs) + begin[e],
                         .out = outputs + begin[e],
                         .tokens = begin[e + 1] - begin[e],
                         .row_begin = row,
                         .row_end = row_end,
                         .glu = unit});
  });
}

void CpuEncoder::expert_down(const RowsView& to, const RowsView& hidden,
                             std::span<const ExpertWeights> ready) {
  const auto experts = static_cast<int64_t>(ready.size());
  const int64_t* order = expert_slots_.slots.data();
  const int64_t* begin = expert_slots_.begin.data();
  const int64_t count = begin[experts];
  bool any_permuted = false;
  bool any_int8[kInt8GroupSizes] = {};
  for (const ExpertWeights& e : ready) {
    if (wants_int8(e.down)) {
      any_int8[int8_index(e.down.format.group_size)] = true;
    } else {
      any_permuted = any_permuted || wants_permuted(e.down);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    inputs_[static_cast<size_t>(i)] = hidden.row(order[i]);
    outputs_[static_cast<size_t>(i)] = to.row(order[i]);
  }
  const std::span<const float* const> rows(inputs_.data(), static_cast<size_t>(count));
  quantize_for(any_int8, rows, hidden.cols);
  if (any_permuted) permute_rows(rows, hidden.cols, permuted_, permuted_inputs_);
  const int64_t step = rows_per_task(to.cols, experts);
  const int64_t blocks = (to.cols + step - 1) / step;
  for_tasks(experts * blocks, count * hidden.cols * to.cols, [&](int64_t task) {
    const int64_t e = task / blocks;
    const int64_t row = task % blocks * step;
    const ExpertWeights& expert = ready[static_cast<size_t>(e)];
    const Weight& down = expert.down;
    if (begin[e] == begin[e + 1]) return;
    if (wants_int8(down)) {
      return int8_matmul(*int8_, {.w = matrix_args(down),
                                  .bias = expert.down_bias,
                                  .x = int8_rows(down.format.group_size).entries.data() + begin[e],
                                  .out = outputs_.data() + begin[e],
                                  .tokens = begin[e + 1] - begin[e],
                                  .row_begin = row,
                                  .row_end = std::min(to.cols, row + step)});
    }
    const std::vector<const float*>& x = wants_permuted(down) ? permuted_inputs_ : inputs_;
    kernels_.matmul({.w = matrix_args(down),
                     .bias = bias_args(expert.down_bias),
                     .x = x.data() + begin[e],
                     .out = outputs_.data() + begin[e],
                     .tokens = begin[e + 1] - begin[e],
                     .row_begin = row,
                     .row_end = std::min(to.cols, row + step),
                     .out_row = 0});
  });
}

}  // namespace moeflux::cpu
