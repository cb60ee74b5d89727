// expert_ffn(): every expert's matrices times the tokens routed to it.
#include <algorithm>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "base/units.h"

namespace moeflux::cpu {
namespace {

constexpr uint64_t kLine = 64;

/// out[t][r - out_row] += bias[r] for rows [begin, end).
void add_row_bias(const Tensor& bias, int64_t begin, int64_t end, float* const* out, int64_t tokens,
                  int64_t out_row) {
  if (bias.is_null()) return;
  for (int64_t r = begin; r < end; ++r) {
    const float value = load_float(host_ptr<std::byte>(bias), r, bias.dtype);
    for (int64_t t = 0; t < tokens; ++t) out[t][r - out_row] += value;
  }
}

}  // namespace

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
  sorted.count = begin[count];
  return sorted.count;
}

void CpuEncoder::expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                            std::span<const ExpertWeights> ready, const GluOptions& glu) {
  flush();
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

void CpuEncoder::want_slots(const Weight& weight) {
  if (!uses_tiles(weight)) return;
  SlotRows& slots = slot_rows(weight);
  if (slots.wanted) return;
  slots.wanted = true;
  slots.rows.reset(tile_shape(weight), distinct_count_);
}

void CpuEncoder::collect_distinct(std::span<const float* const> rows, int64_t tokens,
                                  int64_t per_row) {
  const int64_t count = expert_slots_.count;
  int32_t* of_token = workspace(distinct_of_token_, tokens);
  int32_t* of_slot = workspace(distinct_of_slot_, count);
  const float** distinct = workspace(distinct_, count);
  std::fill_n(of_token, tokens, -1);
  distinct_count_ = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t& known = of_token[expert_slots_.slots[static_cast<size_t>(i)] / per_row];
    if (known < 0) {
      known = static_cast<int32_t>(distinct_count_);
      distinct[distinct_count_++] = rows[static_cast<size_t>(i)];
    }
    of_slot[i] = known;
  }
}

void CpuEncoder::prepare_slots(int64_t cols) {
  const int64_t count = expert_slots_.count;
  for (SlotRows& slots : slot_rows_) {
    if (!slots.wanted) continue;
    for_tasks(distinct_count_, distinct_count_ * cols * 4,
              [&](int64_t i) { slots.rows.fill(i, distinct_[static_cast<size_t>(i)]); });
    if (slots.tokens.size() < static_cast<size_t>(count)) {
      slots.tokens.resize(static_cast<size_t>(count));
    }
    for (int64_t i = 0; i < count; ++i) {
      slots.tokens[static_cast<size_t>(i)] =
          slots.rows.tokens()[distinct_of_slot_[static_cast<size_t>(i)]];
    }
  }
}

void CpuEncoder::plan_experts(int64_t experts, int64_t rows, int64_t row_bytes) {
  // Reading and unpacking a row costs as much as multiplying it by a few tokens.
  constexpr int64_t kRowCost = 4;
  constexpr int64_t kTasksPerThread = 16;
  constexpr int64_t kFewBytes = 32 * 1024;  // of weights a task reads: some 2 us
  const int64_t* begin = expert_slots_.begin.data();
  int64_t cost = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (begin[e + 1] > begin[e]) cost += rows * (begin[e + 1] - begin[e] + kRowCost);
  }
  const int64_t fair = cost / (kTasksPerThread * pool_.threads()) + 1;
  const int64_t few_rows = std::max<int64_t>(1, kFewBytes / row_bytes);
  expert_tasks_.clear();
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t tokens = begin[e + 1] - begin[e];
    if (tokens == 0) continue;
    const int64_t fair_rows = fair / (tokens + kRowCost);
    const int64_t wanted = TileShape::wants_blocks(tokens) ? fair_rows : few_rows;
    // Whole pairs of panels, and as equal as that allows.
    constexpr int64_t kPair = 2 * kTilePanelRows;
    const int64_t unit = TileShape::wants_blocks(tokens) ? kPair : kTilePanelRows;
    const int64_t parts = std::max<int64_t>(1, rows / std::max(wanted, unit));
    const int64_t step = static_cast<int64_t>(
        round_up(static_cast<uint64_t>((rows + parts - 1) / parts), static_cast<uint64_t>(unit)));
    for (int64_t row = 0; row < rows; row += step) {
      expert_tasks_.push_back({e, row, std::min(rows, row + step)});
    }
  }
}

/// Bytes for the interleaved tokens of one expert's product with `weight`, or for decoded rows.
size_t CpuEncoder::product_space(const Weight& weight, int64_t tokens) const {
  if (!uses_tiles(weight) && !has_kernels(weight)) return decoded_bytes(weight) + kLine;
  if (!uses_tiles(weight) || !TileShape::wants_blocks(tokens)) return 0;
  const TileShape shape = tile_shape(weight);
  const BlockPlan plan = BlockPlan::of(tokens, shape.kernels->block_tokens);
  return static_cast<size_t>(plan.blocks) *
             (shape.block_bytes(shape.kernels->block_tokens) + sizeof(TileBlock)) +
         kLine;
}

std::span<const TileBlock> CpuEncoder::pack_slots(const Weight& weight, const ExpertTask& task,
                                                  std::byte* space) {
  const int64_t first = expert_slots_.begin[static_cast<size_t>(task.expert)];
  const int64_t tokens = expert_slots_.begin[static_cast<size_t>(task.expert) + 1] - first;
  if (!uses_tiles(weight) || !TileShape::wants_blocks(tokens)) return {};
  const SlotRows& slots = slot_rows(weight);
  const TileShape& shape = slots.rows.shape();
  const BlockPlan plan = BlockPlan::of(tokens, shape.kernels->block_tokens);
  const size_t bytes = shape.block_bytes(shape.kernels->block_tokens);
  const std::span<TileBlock> blocks(
      reinterpret_cast<TileBlock*>(space + bytes * static_cast<size_t>(plan.blocks)),
      static_cast<size_t>(plan.blocks));
  for (int64_t b = 0; b < plan.blocks; ++b) {
    blocks[static_cast<size_t>(b)] =
        pack_block(shape, slots.tokens.data() + first + plan.begin(b), plan.size(b),
                   space + bytes * static_cast<size_t>(b));
  }
  return blocks;
}

void CpuEncoder::expert_product(const ExpertProduct& p, const ExpertTask& task) {
  const int64_t first = expert_slots_.begin[static_cast<size_t>(task.expert)];
  const int64_t tokens = expert_slots_.begin[static_cast<size_t>(task.expert) + 1] - first;
  if (uses_tiles(p.weight)) {
    const SlotRows& slots = slot_rows(p.weight);
    multiply({.kernels = slots.rows.shape().kernels,
              .w = tile_matrix(p.weight),
              .tokens = slots.tokens.data() + first,
              .count = tokens,
              .blocks = p.blocks,
              .out = p.out,
              .panel_begin = task.begin / kTilePanelRows,
              .panel_end = task.end / kTilePanelRows,
              .out_row = p.out_row,
              .next = p.next});
  } else {
    const std::vector<const float*>& x = wants_permuted(p.weight) ? permuted_inputs_ : inputs_;
    row_major_product({.weight = p.weight,
                       .x = x.data() + first,
                       .out = p.out,
                       .tokens = tokens,
                       .row_begin = task.begin,
                       .row_end = task.end,
                       .out_row = p.out_row},
                      p.space);
  }
  add_row_bias(p.bias, task.begin, task.end, p.out, tokens, p.out_row);
}

void CpuEncoder::run_gate_up(const ExpertWeights& expert, const ExpertTask& task, std::byte* space,
                             const uint8_t* next, const GluArgs& unit) {
  const int64_t first = expert_slots_.begin[static_cast<size_t>(task.expert)];
  const int64_t tokens = expert_slots_.begin[static_cast<size_t>(task.expert) + 1] - first;
  float* const* out = outputs_.data() + first;
  const bool is_own_gate = expert.gate == expert.up;
  if (!is_own_gate && is_direct(expert.gate) && is_direct(expert.up)) {
    const auto x = [&](const Weight& weight) {
      return (wants_permuted(weight) ? permuted_inputs_ : inputs_).data() + first;
    };
    return kernels_.glu_matmul({.gate = matrix_args(expert.gate),
                                .up = matrix_args(expert.up),
                                .gate_bias = bias_args(expert.gate_bias),
                                .up_bias = bias_args(expert.up_bias),
                                .x_gate = x(expert.gate),
                                .x_up = x(expert.up),
                                .out = out,
                                .tokens = tokens,
                                .row_begin = task.begin,
                                .row_end = task.end,
                                .glu = unit});
  }
  const int64_t rows = task.end - task.begin;
  auto* gates = reinterpret_cast<float*>(space);
  auto** gate_rows = reinterpret_cast<float**>(gates + tokens * rows);
  auto* blocks = reinterpret_cast<std::byte*>(gate_rows + tokens);
  blocks += (kLine - reinterpret_cast<uintptr_t>(blocks) % kLine) % kLine;
  for (int64_t t = 0; t < tokens; ++t) gate_rows[t] = gates + t * rows;
  const std::span<const TileBlock> gate_blocks = pack_slots(expert.gate, task, blocks);
  if (!is_own_gate) {
    expert_product({.weight = expert.gate,
                    .bias = expert.gate_bias,
                    .blocks = gate_blocks,
                    .out = gate_rows,
                    .out_row = task.begin,
                    .next = panel_at(expert.up, task.begin),
                    .space = blocks},
                   task);
  }
  const bool alike = uses_tiles(expert.gate) && uses_tiles(expert.up) &&
                     tile_shape(expert.gate) == tile_shape(expert.up);
  expert_product({.weight = expert.up,
                  .bias = expert.up_bias,
                  .blocks = alike ? gate_blocks : pack_slots(expert.up, task, blocks),
                  .out = out,
                  .out_row = 0,
                  .next = next,
                  .space = blocks},
                 task);
  for (int64_t t = 0; t < tokens; ++t) {
    float* up = out[t] + task.begin;
    gated_unit(up, is_own_gate ? up : gate_rows[t], up, rows, unit);
  }
}

const uint8_t* CpuEncoder::next_tiles(int64_t task, std::span<const ExpertWeights> ready,
                                      Weight ExpertWeights::*matrix) const {
  const auto next = static_cast<size_t>(task) + 1;
  if (next >= expert_tasks_.size()) return nullptr;
  const ExpertTask& t = expert_tasks_[next];
  return panel_at(ready[static_cast<size_t>(t.expert)].*matrix, t.begin);
}

size_t CpuEncoder::gate_up_space(std::span<const ExpertWeights> ready) const {
  size_t most = 0;
  for (const ExpertTask& task : expert_tasks_) {
    const ExpertWeights& expert = ready[static_cast<size_t>(task.expert)];
    const auto e = static_cast<size_t>(task.expert);
    const int64_t tokens = expert_slots_.begin[e + 1] - expert_slots_.begin[e];
    const auto gates = static_cast<size_t>(tokens * (task.end - task.begin)) * sizeof(float) +
                       static_cast<size_t>(tokens) * sizeof(float*) + kLine;
    most = std::max(most, gates + std::max(product_space(expert.gate, tokens),
                                           product_space(expert.up, tokens)));
  }
  return round_up(most, kLine);
}

void CpuEncoder::expert_gate_up(const RowsView& hidden, const RowsView& from, int64_t top_k,
                                std::span<const ExpertWeights> ready, const GluOptions& glu) {
  const auto experts = static_cast<int64_t>(ready.size());
  const int64_t* order = expert_slots_.slots.data();
  const int64_t count = expert_slots_.count;
  const float** inputs = workspace(inputs_, count);
  float** outputs = workspace(outputs_, count);
  for (int64_t i = 0; i < count; ++i) {
    inputs[i] = from.row(order[i] / top_k);
    outputs[i] = hidden.row(order[i]);
  }
  collect_distinct({inputs, static_cast<size_t>(count)}, from.rows, top_k);
  bool any_permuted = false;
  for (SlotRows& slots : slot_rows_) slots.wanted = false;
  for (const ExpertWeights& e : ready) {
    for (const Weight* w : {&e.gate, &e.up}) {
      want_slots(*w);
      any_permuted = any_permuted || (!uses_tiles(*w) && wants_permuted(*w));
    }
  }
  prepare_slots(from.cols);
  if (any_permuted) {
    permute_rows({inputs, static_cast<size_t>(count)}, from.cols, permuted_, permuted_inputs_);
  }
  const ExpertWeights& some = ready.front();
  plan_experts(experts, hidden.cols,
               static_cast<int64_t>(some.gate.size_bytes() + some.up.size_bytes()) / hidden.cols);
  const size_t space = gate_up_space(ready);
  std::byte* spaces = worker_space_.get(space * static_cast<size_t>(pool_.threads()));
  const GluArgs unit = glu_args(glu);
  for_tasks(static_cast<int64_t>(expert_tasks_.size()), 2 * count * hidden.cols * from.cols,
            [&](int64_t i, int thread) {
              const ExpertTask& task = expert_tasks_[static_cast<size_t>(i)];
              run_gate_up(ready[static_cast<size_t>(task.expert)], task,
                          spaces + space * static_cast<size_t>(thread),
                          next_tiles(i, ready, &ExpertWeights::gate), unit);
            });
}

void CpuEncoder::expert_down(const RowsView& to, const RowsView& hidden,
                             std::span<const ExpertWeights> ready) {
  const auto experts = static_cast<int64_t>(ready.size());
  const int64_t* order = expert_slots_.slots.data();
  const int64_t* begin = expert_slots_.begin.data();
  const int64_t count = expert_slots_.count;
  for (int64_t i = 0; i < count; ++i) {
    inputs_[static_cast<size_t>(i)] = hidden.row(order[i]);
    outputs_[static_cast<size_t>(i)] = to.row(order[i]);
  }
  collect_distinct({inputs_.data(), static_cast<size_t>(count)}, hidden.rows, 1);
  bool any_permuted = false;
  size_t space = 0;
  for (SlotRows& slots : slot_rows_) slots.wanted = false;
  for (int64_t e = 0; e < experts; ++e) {
    const Weight& down = ready[static_cast<size_t>(e)].down;
    want_slots(down);
    any_permuted = any_permuted || (!uses_tiles(down) && wants_permuted(down));
    space = std::max(space, product_space(down, begin[e + 1] - begin[e]));
  }
  prepare_slots(hidden.cols);
  if (any_permuted) {
    permute_rows({inputs_.data(), static_cast<size_t>(count)}, hidden.cols, permuted_,
                 permuted_inputs_);
  }
  plan_experts(experts, to.cols, static_cast<int64_t>(ready.front().down.size_bytes()) / to.cols);
  space = round_up(space, kLine);
  std::byte* spaces = worker_space_.get(space * static_cast<size_t>(pool_.threads()));
  for_tasks(static_cast<int64_t>(expert_tasks_.size()), count * hidden.cols * to.cols,
            [&](int64_t i, int thread) {
              const ExpertTask& task = expert_tasks_[static_cast<size_t>(i)];
              const ExpertWeights& expert = ready[static_cast<size_t>(task.expert)];
              std::byte* own = spaces + space * static_cast<size_t>(thread);
              expert_product({.weight = expert.down,
                              .bias = expert.down_bias,
                              .blocks = pack_slots(expert.down, task, own),
                              .out = outputs_.data() + begin[task.expert],
                              .out_row = 0,
                              .next = next_tiles(i, ready, &ExpertWeights::down),
                              .space = own},
                             task);
            });
}

}  // namespace moeflux::cpu
