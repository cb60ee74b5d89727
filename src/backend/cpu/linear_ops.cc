// embed() and linear(). Products with tiled weights are collected and run together, others run at
// once.
#include <algorithm>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"

namespace moeflux::cpu {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  const std::byte* a_begin = host_ptr<std::byte>(a);
  const std::byte* b_begin = host_ptr<std::byte>(b);
  return a_begin < b_begin + b.size_bytes() && b_begin < a_begin + a.size_bytes();
}

}  // namespace

void CpuEncoder::embed(Tensor out, const Weight& table, Tensor token_ids) {
  flush();
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
  if (!uses_tiles(weight)) {
    flush();
    return linear_row_major(to, from, weight);
  }
  MF_CHECK(out.is_contiguous() && x.is_contiguous());
  if (pending_.size() == kPendingMax || depends_on_pending(out, x)) flush();
  if (pending_.capacity() == 0) pending_.reserve(kPendingMax);
  pending_.push_back({.out = out, .x = x, .weight = weight});
}

void CpuEncoder::linear_row_major(const RowsView& to, const RowsView& from, const Weight& weight) {
  const int64_t n = to.rows;
  const float** inputs = workspace(inputs_, n);
  float** outputs = workspace(outputs_, n);
  for (int64_t t = 0; t < n; ++t) {
    inputs[t] = from.row(t);
    outputs[t] = to.row(t);
  }
  if (wants_permuted(weight)) {
    permute_rows({inputs, static_cast<size_t>(n)}, from.cols, permuted_, permuted_inputs_);
    inputs = permuted_inputs_.data();
  }
  const size_t space = has_kernels(weight) ? 0 : decoded_bytes(weight);
  std::byte* spaces = decode_spaces(space);
  const int64_t step = rows_per_task(weight.rows, 1);
  for_tasks((weight.rows + step - 1) / step, weight.rows * weight.cols * n,
            [&](int64_t task, int thread) {
              row_major_product({.weight = weight,
                                 .x = inputs,
                                 .out = outputs,
                                 .tokens = n,
                                 .row_begin = task * step,
                                 .row_end = std::min(weight.rows, (task + 1) * step),
                                 .out_row = 0},
                                spaces + space * static_cast<size_t>(thread));
            });
}

bool CpuEncoder::depends_on_pending(const Tensor& out, const Tensor& x) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const PendingLinear& item) {
    return overlap(item.out, x) || overlap(item.out, out) || overlap(item.x, out);
  });
}

size_t CpuEncoder::input_of(const PendingLinear& item) {
  const float* x = host_ptr<float>(item.x);
  const TileShape shape = tile_shape(item.weight);
  const int64_t n = RowsView(item.x).rows;
  for (size_t i = 0; i < linear_input_count_; ++i) {
    const LinearInput& known = linear_inputs_[i];
    if (known.x == x && known.plan.tokens == n && known.rows.shape() == shape) return i;
  }
  LinearInput& input = linear_inputs_[linear_input_count_];
  input.x = x;
  input.plan = BlockPlan::of(n, shape.kernels->block_tokens);
  input.rows.reset(shape, n);
  if (TileShape::wants_blocks(n)) {
    input.packed.get(shape.block_bytes(shape.kernels->block_tokens) *
                     static_cast<size_t>(input.plan.blocks));
    input.blocks.resize(static_cast<size_t>(input.plan.blocks));
  } else {
    input.blocks.clear();
  }
  return linear_input_count_++;
}

void CpuEncoder::prepare_inputs() {
  linear_input_count_ = 0;
  int64_t tasks = 0;
  int64_t elements = 0;
  for (PendingLinear& item : pending_) {
    const size_t before = linear_input_count_;
    item.input = input_of(item);
    if (linear_input_count_ == before) continue;
    LinearInput& input = linear_inputs_[item.input];
    input.task_begin = tasks;
    tasks += input.plan.blocks;
    elements += input.plan.tokens * item.weight.cols;
  }
  // Few tokens are one block: its preparation takes less time than a thread needs to join.
  for_tasks(tasks, elements * 4, [&](int64_t task) {
    size_t i = linear_input_count_ - 1;
    while (linear_inputs_[i].task_begin > task) --i;
    LinearInput& input = linear_inputs_[i];
    const TileShape& shape = input.rows.shape();
    const int64_t block = task - input.task_begin;
    const int64_t begin = input.plan.begin(block);
    const int64_t count = input.plan.size(block);
    for (int64_t t = begin; t < begin + count; ++t) {
      input.rows.fill(t, input.x + t * shape.cols);
    }
    if (input.blocks.empty()) return;
    const size_t bytes = shape.block_bytes(shape.kernels->block_tokens);
    input.blocks[static_cast<size_t>(block)] =
        pack_block(shape, input.rows.tokens() + begin, count,
                   input.packed.data() + bytes * static_cast<size_t>(block));
  });
}

int64_t CpuEncoder::plan_pending() {
  // Few tokens read weights as fast as memory gives them: tasks of a few microseconds, so that
  // threads finish together. Many tokens compute for longer: the kernels' pairs of panels.
  constexpr int64_t kBytesMin = 32 * 1024;
  constexpr int64_t kBytesMax = 256 * 1024;
  constexpr int64_t kTasksPerThread = 32;
  int64_t tasks = 0;
  int64_t outs = 0;
  for (PendingLinear& item : pending_) {
    const auto bytes = static_cast<int64_t>(item.weight.size_bytes());
    const int64_t panels = item.weight.rows / kTilePanelRows;
    const int64_t share =
        std::clamp(bytes / (kTasksPerThread * pool_.threads()), kBytesMin, kBytesMax);
    const bool few = linear_inputs_[item.input].blocks.empty();
    item.task_panels = few ? std::max<int64_t>(1, share * panels / bytes) : 2;
    item.task_begin = tasks;
    item.out_begin = outs;
    tasks += (panels + item.task_panels - 1) / item.task_panels;
    outs += linear_inputs_[item.input].plan.tokens;
  }
  float** outputs = workspace(outputs_, outs);
  for (const PendingLinear& item : pending_) {
    float* out = host_ptr<float>(item.out);
    for (int64_t t = 0; t < linear_inputs_[item.input].plan.tokens; ++t) {
      *outputs++ = out + t * item.weight.rows;
    }
  }
  return tasks;
}

void CpuEncoder::run_pending(const PendingLinear& item, int64_t task) {
  const bool is_last = &item == &pending_.back();
  const uint8_t* after = is_last ? nullptr : bytes_of((&item + 1)->weight.parts.codes);
  const LinearInput& input = linear_inputs_[item.input];
  const int64_t panels = item.weight.rows / kTilePanelRows;
  const int64_t end = std::min(panels, (task + 1) * item.task_panels);
  multiply({.kernels = input.rows.shape().kernels,
            .w = tile_matrix(item.weight),
            .tokens = input.rows.tokens(),
            .count = input.plan.tokens,
            .blocks = input.blocks,
            .out = outputs_.data() + item.out_begin,
            .panel_begin = task * item.task_panels,
            .panel_end = end,
            .out_row = 0,
            .next = end < panels ? panel_at(item.weight, end * kTilePanelRows) : after});
}

void CpuEncoder::flush() {
  if (pending_.empty()) return;
  prepare_inputs();
  const int64_t tasks = plan_pending();
  int64_t work = 0;
  for (const PendingLinear& item : pending_) {
    work += item.weight.rows * item.weight.cols * linear_inputs_[item.input].plan.tokens;
  }
  for_tasks(tasks, work, [&](int64_t task) {
    size_t i = pending_.size() - 1;
    while (pending_[i].task_begin > task) --i;
    run_pending(pending_[i], task - pending_[i].task_begin);
  });
  pending_.clear();
}

}  // namespace moeflux::cpu
