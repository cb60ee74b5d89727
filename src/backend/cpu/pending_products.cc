#include "backend/cpu/pending_products.h"

#include <algorithm>

namespace moeflux::cpu {

void PendingProducts::add(const ops::Linear& op) {
  if (products_.size() == kProductsMax || depends_on_pending(op)) flush();
  if (products_.capacity() == 0) products_.reserve(kProductsMax);
  products_.push_back({.op = op});
}

bool PendingProducts::depends_on_pending(const ops::Linear& op) const {
  return std::any_of(products_.begin(), products_.end(), [&](const Product& item) {
    return have_overlap(item.op.out, op.x) || have_overlap(item.op.out, op.out) ||
           have_overlap(item.op.x, op.out);
  });
}

size_t PendingProducts::input_of(const Product& item) {
  const float* x = host_ptr<float>(item.op.x);
  const TileShape shape = weights_.tile_shape(item.op.weight);
  const int64_t n = RowsView(item.op.x).rows;
  for (size_t i = 0; i < input_count_; ++i) {
    const Input& known = inputs_[i];
    if (known.x == x && known.plan.tokens == n && known.rows.shape() == shape) return i;
  }
  Input& input = inputs_[input_count_];
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
  return input_count_++;
}

void PendingProducts::prepare_inputs() {
  input_count_ = 0;
  int64_t tasks = 0;
  int64_t elements = 0;
  for (Product& item : products_) {
    const size_t before = input_count_;
    item.input = input_of(item);
    if (input_count_ == before) continue;
    Input& input = inputs_[item.input];
    input.task_begin = tasks;
    tasks += input.plan.blocks;
    elements += input.plan.tokens * item.op.weight.cols;
  }
  // Few tokens are one block: its preparation takes less time than a thread needs to join.
  workers_.for_tasks(tasks, elements * 4, [&](int64_t task) {
    size_t i = input_count_ - 1;
    while (inputs_[i].task_begin > task) --i;
    Input& input = inputs_[i];
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

int64_t PendingProducts::plan() {
  // Few tokens read weights as fast as memory gives them: tasks of a few microseconds, so that
  // threads finish together. Many tokens compute for longer: the kernels' pairs of panels.
  constexpr int64_t kBytesMin = 32 * 1024;
  constexpr int64_t kBytesMax = 256 * 1024;
  constexpr int64_t kTasksPerThread = 32;
  int64_t tasks = 0;
  int64_t outs = 0;
  for (Product& item : products_) {
    const auto bytes = static_cast<int64_t>(item.op.weight.size_bytes());
    const int64_t panels = item.op.weight.rows / kTilePanelRows;
    const int64_t share =
        std::clamp(bytes / (kTasksPerThread * workers_.threads()), kBytesMin, kBytesMax);
    const bool few = inputs_[item.input].blocks.empty();
    item.task_panels = few ? std::max<int64_t>(1, share * panels / bytes) : 2;
    item.task_begin = tasks;
    item.out_begin = outs;
    tasks += (panels + item.task_panels - 1) / item.task_panels;
    outs += inputs_[item.input].plan.tokens;
  }
  float** outputs = workspace(outputs_, outs);
  for (const Product& item : products_) {
    float* out = host_ptr<float>(item.op.out);
    for (int64_t t = 0; t < inputs_[item.input].plan.tokens; ++t) {
      *outputs++ = out + t * item.op.weight.rows;
    }
  }
  return tasks;
}

void PendingProducts::run(const Product& item, int64_t task) {
  const bool is_last = &item == &products_.back();
  const uint8_t* after = is_last ? nullptr : bytes_of((&item + 1)->op.weight.parts.codes);
  const Input& input = inputs_[item.input];
  const int64_t panels = item.op.weight.rows / kTilePanelRows;
  const int64_t end = std::min(panels, (task + 1) * item.task_panels);
  multiply(
      {.kernels = input.rows.shape().kernels,
       .w = weights_.tile_matrix(item.op.weight),
       .tokens = input.rows.tokens(),
       .count = input.plan.tokens,
       .blocks = input.blocks,
       .out = outputs_.data() + item.out_begin,
       .panel_begin = task * item.task_panels,
       .panel_end = end,
       .out_row = 0,
       .next = end < panels ? weights_.panel_at(item.op.weight, end * kTilePanelRows) : after});
}

void PendingProducts::flush() {
  if (products_.empty()) return;
  prepare_inputs();
  const int64_t tasks = plan();
  int64_t work = 0;
  for (const Product& item : products_) {
    work += item.op.weight.rows * item.op.weight.cols * inputs_[item.input].plan.tokens;
  }
  workers_.for_tasks(tasks, work, [&](int64_t task) {
    size_t i = products_.size() - 1;
    while (products_[i].task_begin > task) --i;
    run(products_[i], task - products_[i].task_begin);
  });
  products_.clear();
}

}  // namespace moeflux::cpu
