// Every expert's matrices times the tokens routed to it.
#include "backend/ops/expert_ffn.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <vector>

#include "backend/cpu/cpu_context.h"
#include "base/units.h"

namespace moeflux::cpu {
namespace {

constexpr uint64_t kLine = 64;
using MatrixOfExpert = Weight ExpertWeights::*;

/// out[t][r - out_row] += bias[r] for rows [begin, end).
void add_row_bias(const Tensor& bias, int64_t begin, int64_t end, float* const* out, int64_t tokens,
                  int64_t out_row) {
  if (bias.is_null()) return;
  for (int64_t r = begin; r < end; ++r) {
    const float value = load_float(host_ptr<std::byte>(bias), r, bias.dtype);
    for (int64_t t = 0; t < tokens; ++t) out[t][r - out_row] += value;
  }
}

/// The (token, rank) slots of one wave of experts, sorted by expert.
struct SortedSlots {
  std::vector<int32_t> ready_of_expert;  // by expert id: index into `ready`, or -1
  std::vector<int64_t> begin;            // by ready index, one more than there are
  std::vector<int64_t> slots;
  int64_t count = 0;

  int64_t first(int64_t expert) const { return begin[static_cast<size_t>(expert)]; }
  int64_t tokens(int64_t expert) const { return first(expert + 1) - first(expert); }
  void sort(const Routes& routes, int64_t slot_count, std::span<const ExpertWeights> ready) {
    const int32_t* ids = host_ptr<int32_t>(routes.ids);
    int32_t id_max = -1;
    for (const ExpertWeights& expert : ready) id_max = std::max(id_max, index(expert.expert));
    int32_t* ready_of = workspace(ready_of_expert, id_max + 1);
    std::fill_n(ready_of, id_max + 1, -1);
    for (size_t i = 0; i < ready.size(); ++i) {
      ready_of[index(ready[i].expert)] = static_cast<int32_t>(i);
    }
    const auto experts = static_cast<int64_t>(ready.size());
    int64_t* ends = workspace(begin, experts + 2);
    std::fill_n(ends, experts + 2, 0);
    const auto ready_index = [&](int64_t slot) {
      return ids[slot] >= 0 && ids[slot] <= id_max ? ready_of[ids[slot]] : -1;
    };
    // Counting sort; ends[i + 1] is where expert i writes next and ends as where i + 1 begins.
    for (int64_t slot = 0; slot < slot_count; ++slot) {
      if (ready_index(slot) >= 0) ++ends[ready_index(slot) + 2];
    }
    for (int64_t i = 2; i <= experts + 1; ++i) ends[i] += ends[i - 1];
    int64_t* to = workspace(slots, slot_count);
    for (int64_t slot = 0; slot < slot_count; ++slot) {
      if (ready_index(slot) >= 0) to[ends[ready_index(slot) + 1]++] = slot;
    }
    count = ends[experts];
  }
};

/// Activations of the sorted slots in the shapes that weights ask for. Slots of one token share
/// them.
class SlotRows {
 public:
  explicit SlotRows(CpuContext& context) : context_(context) {}

  /// Finds the distinct `rows` of sorted slots: `per_row` slots share one of `tokens`.
  void collect(const SortedSlots& sorted, const float* const* rows, int64_t tokens,
               int64_t per_row) {
    count_ = sorted.count;
    int32_t* of_token = workspace(distinct_of_token_, tokens);
    int32_t* of_slot = workspace(distinct_of_slot_, count_);
    const float** distinct = workspace(distinct_, count_);
    std::fill_n(of_token, tokens, -1);
    distinct_count_ = 0;
    for (int64_t i = 0; i < count_; ++i) {
      int32_t& known = of_token[sorted.slots[static_cast<size_t>(i)] / per_row];
      if (known < 0) {
        known = static_cast<int32_t>(distinct_count_);
        distinct[distinct_count_++] = rows[i];
      }
      of_slot[i] = known;
    }
    for (Shape& shape : shapes_) shape.wanted = false;
  }
  /// Makes room for these rows as `weight`, which uses_tiles(), takes them.
  void want(const Weight& weight) {
    Shape& shape = shapes_[context_.weights.shape_index(weight)];
    if (shape.wanted) return;
    shape.wanted = true;
    shape.rows.reset(context_.weights.tile_shape(weight), distinct_count_);
  }
  /// Fills what is wanted.
  void prepare(int64_t cols) {
    for (Shape& shape : shapes_) {
      if (!shape.wanted) continue;
      context_.workers.for_tasks(distinct_count_, distinct_count_ * cols * 4, [&](int64_t i) {
        shape.rows.fill(i, distinct_[static_cast<size_t>(i)]);
      });
      TileToken* tokens = workspace(shape.tokens, count_);
      for (int64_t i = 0; i < count_; ++i) {
        tokens[i] = shape.rows.tokens()[distinct_of_slot_[static_cast<size_t>(i)]];
      }
    }
  }
  const TileShape& shape(const Weight& weight) const { return of(weight).rows.shape(); }
  /// By sorted slot.
  const TileToken* tokens(const Weight& weight) const { return of(weight).tokens.data(); }

 private:
  struct Shape {
    bool wanted = false;
    TileRows rows;
    std::vector<TileToken> tokens;
  };
  const Shape& of(const Weight& weight) const {
    return shapes_[context_.weights.shape_index(weight)];
  }

  CpuContext& context_;
  Shape shapes_[WeightKernels::kShapes];
  int64_t count_ = 0;
  std::vector<const float*> distinct_;
  int64_t distinct_count_ = 0;
  std::vector<int32_t> distinct_of_token_;
  std::vector<int32_t> distinct_of_slot_;
};

class ExpertProducts {
 public:
  explicit ExpertProducts(CpuContext& context)
      : context_(context), weights_(context.weights), rows_(context) {}

  void run(const ops::ExpertFfn& op) {
    const RowsView hidden(op.intermediate);
    sorted_.sort(op.routes, hidden.rows, op.ready);
    if (sorted_.count == 0) return;
    run_gate_up(hidden, RowsView(op.x), op.routes.ids.dim(1), op.ready, glu_args(op.glu));
    run_down(RowsView(op.slots), hidden, op.ready);
  }

 private:
  /// Rows [begin, end) of one ready expert's matrices.
  struct Task {
    int64_t expert;
    int64_t begin;
    int64_t end;
  };
  /// out[t][r - out_row] = weight[r] . x[t] + bias[r] for the rows of a task.
  struct Product {
    const Weight& weight;
    const Tensor& bias;
    std::span<const TileBlock> blocks;
    float* const* out;
    int64_t out_row;
    const uint8_t* next;  // the rows that are read after this
    std::byte* space;     // of decoded_bytes(), for a weight that has to be decoded
  };

  void run_gate_up(const RowsView& hidden, const RowsView& from, int64_t top_k,
                   std::span<const ExpertWeights> ready, const GluArgs& unit) {
    prepare(hidden, from, top_k, ready, {&ExpertWeights::gate, &ExpertWeights::up});
    const ExpertWeights& some = ready.front();
    plan(static_cast<int64_t>(ready.size()), hidden.cols,
         static_cast<int64_t>(some.gate.size_bytes() + some.up.size_bytes()) / hidden.cols);
    for_tasks(gate_up_space(ready), 2 * sorted_.count * hidden.cols * from.cols,
              [&](const Task& task, int64_t i, std::byte* space) {
                multiply_gate_up(ready[static_cast<size_t>(task.expert)], task, space,
                                 next_tiles(i, ready, &ExpertWeights::gate), unit);
              });
  }
  void run_down(const RowsView& to, const RowsView& hidden, std::span<const ExpertWeights> ready) {
    prepare(to, hidden, 1, ready, {&ExpertWeights::down});
    const auto experts = static_cast<int64_t>(ready.size());
    plan(experts, to.cols, static_cast<int64_t>(ready.front().down.size_bytes()) / to.cols);
    size_t space = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const Weight& down = ready[static_cast<size_t>(e)].down;
      space = std::max(space, product_space(down, sorted_.tokens(e)));
    }
    for_tasks(space, sorted_.count * hidden.cols * to.cols,
              [&](const Task& task, int64_t i, std::byte* own) {
                const ExpertWeights& expert = ready[static_cast<size_t>(task.expert)];
                multiply_one({.weight = expert.down,
                              .bias = expert.down_bias,
                              .blocks = pack_slots(expert.down, task, own),
                              .out = outputs_ + sorted_.first(task.expert),
                              .out_row = 0,
                              .next = next_tiles(i, ready, &ExpertWeights::down),
                              .space = own},
                             task);
              });
  }
  /// Has the slots' inputs, of which `per_row` share a row of `from`, as these matrices take them.
  void prepare(const RowsView& to, const RowsView& from, int64_t per_row,
               std::span<const ExpertWeights> ready,
               std::initializer_list<MatrixOfExpert> matrices) {
    const int64_t count = sorted_.count;
    const float** inputs = context_.rows.inputs(count);
    float** outputs = context_.rows.outputs(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = sorted_.slots[static_cast<size_t>(i)];
      inputs[i] = from.row(slot / per_row);
      outputs[i] = to.row(slot);
    }
    rows_.collect(sorted_, inputs, from.rows, per_row);
    bool any_permuted = false;
    for (const ExpertWeights& e : ready) {
      for (const MatrixOfExpert matrix : matrices) {
        if (weights_.uses_tiles(e.*matrix)) {
          rows_.want(e.*matrix);
        } else {
          any_permuted = any_permuted || wants_permuted(e.*matrix);
        }
      }
    }
    rows_.prepare(from.cols);
    inputs_ = inputs;
    outputs_ = outputs;
    permuted_ = any_permuted ? context_.rows.permuted(count, from.cols) : nullptr;
  }
  /// Cuts `rows` rows of each expert that has slots into tasks of similar cost.
  void plan(int64_t experts, int64_t rows, int64_t row_bytes) {
    // Reading and unpacking a row costs as much as multiplying it by a few tokens.
    constexpr int64_t kRowCost = 4;
    constexpr int64_t kTasksPerThread = 16;
    constexpr int64_t kFewBytes = 32 * 1024;  // of weights a task reads: some 2 us
    int64_t cost = 0;
    for (int64_t e = 0; e < experts; ++e) {
      if (sorted_.tokens(e) > 0) cost += rows * (sorted_.tokens(e) + kRowCost);
    }
    const int64_t fair = cost / (kTasksPerThread * context_.workers.threads()) + 1;
    const int64_t few_rows = std::max<int64_t>(1, kFewBytes / row_bytes);
    tasks_.clear();
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t tokens = sorted_.tokens(e);
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
        tasks_.push_back({e, row, std::min(rows, row + step)});
      }
    }
  }
  /// run(task, its index, `space` bytes of the thread) for all of them.
  template <typename Run>
  void for_tasks(size_t space, int64_t work, const Run& run) {
    space = round_up(space, kLine);
    std::byte* spaces = context_.rows.thread_spaces(space);
    context_.workers.for_tasks(
        static_cast<int64_t>(tasks_.size()), work, [&](int64_t i, int thread) {
          run(tasks_[static_cast<size_t>(i)], i, spaces + space * static_cast<size_t>(thread));
        });
  }
  /// Bytes for the interleaved tokens of one expert's product with `weight`, or for decoded rows.
  size_t product_space(const Weight& weight, int64_t tokens) const {
    if (!weights_.uses_tiles(weight) && !has_kernels(weight)) return decoded_bytes(weight) + kLine;
    if (!weights_.uses_tiles(weight) || !TileShape::wants_blocks(tokens)) return 0;
    const TileShape shape = weights_.tile_shape(weight);
    const BlockPlan plan = BlockPlan::of(tokens, shape.kernels->block_tokens);
    return static_cast<size_t>(plan.blocks) *
               (shape.block_bytes(shape.kernels->block_tokens) + sizeof(TileBlock)) +
           kLine;
  }
  size_t gate_up_space(std::span<const ExpertWeights> ready) const {
    size_t most = 0;
    for (const Task& task : tasks_) {
      const ExpertWeights& expert = ready[static_cast<size_t>(task.expert)];
      const int64_t tokens = sorted_.tokens(task.expert);
      const auto gates = static_cast<size_t>(tokens * (task.end - task.begin)) * sizeof(float) +
                         static_cast<size_t>(tokens) * sizeof(float*) + kLine;
      most = std::max(most, gates + std::max(product_space(expert.gate, tokens),
                                             product_space(expert.up, tokens)));
    }
    return most;
  }
  /// Where the task after number `task` will begin to read.
  const uint8_t* next_tiles(int64_t task, std::span<const ExpertWeights> ready,
                            MatrixOfExpert matrix) const {
    const auto next = static_cast<size_t>(task) + 1;
    if (next >= tasks_.size()) return nullptr;
    const Task& t = tasks_[next];
    return weights_.panel_at(ready[static_cast<size_t>(t.expert)].*matrix, t.begin);
  }
  void multiply_gate_up(const ExpertWeights& expert, const Task& task, std::byte* space,
                        const uint8_t* next, const GluArgs& unit) {
    const int64_t tokens = sorted_.tokens(task.expert);
    float* const* out = outputs_ + sorted_.first(task.expert);
    const bool is_own_gate = expert.gate == expert.up;
    if (!is_own_gate && weights_.is_direct(expert.gate) && weights_.is_direct(expert.up)) {
      return context_.kernels.glu_matmul({.gate = matrix_args(expert.gate),
                                          .up = matrix_args(expert.up),
                                          .gate_bias = bias_args(expert.gate_bias),
                                          .up_bias = bias_args(expert.up_bias),
                                          .x_gate = inputs_of(expert.gate, task.expert),
                                          .x_up = inputs_of(expert.up, task.expert),
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
      multiply_one({.weight = expert.gate,
                    .bias = expert.gate_bias,
                    .blocks = gate_blocks,
                    .out = gate_rows,
                    .out_row = task.begin,
                    .next = weights_.panel_at(expert.up, task.begin),
                    .space = blocks},
                   task);
    }
    const bool alike = weights_.uses_tiles(expert.gate) && weights_.uses_tiles(expert.up) &&
                       weights_.tile_shape(expert.gate) == weights_.tile_shape(expert.up);
    multiply_one({.weight = expert.up,
                  .bias = expert.up_bias,
                  .blocks = alike ? gate_blocks : pack_slots(expert.up, task, blocks),
                  .out = out,
                  .out_row = 0,
                  .next = next,
                  .space = blocks},
                 task);
    for (int64_t t = 0; t < tokens; ++t) {
      float* up = out[t] + task.begin;
      context_.gated_unit(up, is_own_gate ? up : gate_rows[t], up, rows, unit);
    }
  }
  /// The task's tokens interleaved for `weight` in `space` of product_space(), if it wants that.
  std::span<const TileBlock> pack_slots(const Weight& weight, const Task& task,
                                        std::byte* space) const {
    const int64_t tokens = sorted_.tokens(task.expert);
    if (!weights_.uses_tiles(weight) || !TileShape::wants_blocks(tokens)) return {};
    const TileToken* own = rows_.tokens(weight) + sorted_.first(task.expert);
    const TileShape& shape = rows_.shape(weight);
    const BlockPlan plan = BlockPlan::of(tokens, shape.kernels->block_tokens);
    const size_t bytes = shape.block_bytes(shape.kernels->block_tokens);
    const std::span<TileBlock> blocks(
        reinterpret_cast<TileBlock*>(space + bytes * static_cast<size_t>(plan.blocks)),
        static_cast<size_t>(plan.blocks));
    for (int64_t b = 0; b < plan.blocks; ++b) {
      blocks[static_cast<size_t>(b)] = pack_block(shape, own + plan.begin(b), plan.size(b),
                                                  space + bytes * static_cast<size_t>(b));
    }
    return blocks;
  }
  void multiply_one(const Product& p, const Task& task) {
    const int64_t tokens = sorted_.tokens(task.expert);
    if (weights_.uses_tiles(p.weight)) {
      multiply({.kernels = rows_.shape(p.weight).kernels,
                .w = weights_.tile_matrix(p.weight),
                .tokens = rows_.tokens(p.weight) + sorted_.first(task.expert),
                .count = tokens,
                .blocks = p.blocks,
                .out = p.out,
                .panel_begin = task.begin / kTilePanelRows,
                .panel_end = task.end / kTilePanelRows,
                .out_row = p.out_row,
                .next = p.next});
    } else {
      context_.rows.multiply({.weight = p.weight,
                              .x = inputs_of(p.weight, task.expert),
                              .out = p.out,
                              .tokens = tokens,
                              .row_begin = task.begin,
                              .row_end = task.end,
                              .out_row = p.out_row},
                             p.space);
    }
    add_row_bias(p.bias, task.begin, task.end, p.out, tokens, p.out_row);
  }
  /// The inputs of an expert's tokens for a weight that has no tiles.
  const float* const* inputs_of(const Weight& weight, int64_t expert) const {
    return (wants_permuted(weight) ? permuted_ : inputs_) + sorted_.first(expert);
  }

  CpuContext& context_;
  const WeightKernels& weights_;
  SortedSlots sorted_;
  SlotRows rows_;
  std::vector<Task> tasks_;
  // By sorted slot, while the operation runs.
  const float* const* inputs_ = nullptr;
  const float* const* permuted_ = nullptr;
  float* const* outputs_ = nullptr;
};

}  // namespace

void run(CpuContext& context, const ops::ExpertFfn& op) {
  if (op.ready.empty()) return;
  context.spaces.of<ExpertProducts>(context).run(op);
}

}  // namespace moeflux::cpu
