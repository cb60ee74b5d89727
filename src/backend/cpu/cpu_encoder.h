// The Encoder of the CPU: executes each op in the call, spread over its thread pool.
//
// Work is cut so that every output element is computed by one task with a fixed order of
// operations: bits depend neither on the cut nor on who runs which task. After the first steps no
// op allocates: workspaces only ever grow.
//
// Products with tiled weights are put off until the next op that is not one, and those that do not
// depend on one another run together: activations are prepared once, threads start once. Every
// other op begins with flush().
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa_choice.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/row_decoder.h"
#include "backend/cpu/tile_products.h"
#include "backend/encoder.h"
#include "backend/host_buffer.h"
#include "base/thread_pool.h"

namespace moeflux::cpu {

class Select;

class CpuEncoder : public Encoder {
 public:
  /// `precision` is not kAuto.
  CpuEncoder(const KernelSet& kernels, Precision precision, int threads, ThreadPlacement placement,
             std::chrono::microseconds look, ScratchArena arena)
      : kernels_(*kernels.ops),
        select_(*kernels.select),
        precision_(precision),
        rounded_(rounded_tiles(kernels, precision)),
        f32_(*kernels.f32_tiles),
        arena_(std::move(arena)),
        pool_(threads, placement, look) {}

  Tensor scratch(const Shape& shape, DType dtype) override { return arena_.take(shape, dtype); }
  size_t scratch_mark() const override { return arena_.mark(); }
  void scratch_release(size_t mark) override { arena_.release(mark); }
  void keep_alive(std::unique_ptr<Retained>) override {}  // everything recorded has run already

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

  void copy(Tensor out, Tensor x) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) override;
  void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) override;
  void layer_norm(Tensor out, Tensor x, Tensor weight, float eps) override;

  void add_bias(Tensor x, Tensor bias) override;
  void scale(Tensor out, Tensor x, float factor) override;
  void soft_cap(Tensor x, float cap) override;
  void top_rows(Tensor values, Tensor ids, Tensor x) override;
  void read_streams(Tensor out, const StreamGates& gates, Tensor x, Tensor logits,
                    const StreamGateOptions& options) override;
  void expand_streams(Tensor out, Tensor x, Tensor branch, const StreamGates& gates) override;
  void sum_gated(Tensor out, Tensor x, Tensor gates) override;
  void root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions& options) override;

  void embed(Tensor out, const Weight& table, Tensor token_ids) override;
  void linear(Tensor out, Tensor x, const Weight& weight) override;
  void head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) override;
  void head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                              const HeadRows& rows) override;

  void rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
            const RopeOptions& options) override;
  void attention(Tensor out, Tensor q, Tensor k, Tensor v, std::span<const KvRows> sequences,
                 const AttentionOptions& options) override;
  void select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                   std::span<const KvRows> sequences, const SelectOptions& options) override;
  void pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor positions,
                 std::span<const StateRows> sequences, int64_t unit) override;
  void causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                   std::span<const StateRows> sequences) override;
  void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                   std::span<const StateRows> sequences, const GatedDeltaOptions& options) override;
  void selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                      std::span<const StateRows> sequences, const ScanOptions& options) override;

  void route(const Routes& out, Tensor logits, const RouterOptions& options) override;
  void expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                  std::span<const ExpertWeights> ready, const GluOptions& glu) override;
  void combine_experts(Tensor out, Tensor slots, const Routes& routes) override;
  void glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) override;

  void run_on_host(int64_t count, const std::function<void(int64_t)>& fn) override {
    pool_.parallel_for(count, fn);
  }
  EventId submit() override {
    flush();
    return EventId{++events_};
  }
  Status wait(EventId) override { return status_; }

 private:
  /// The (token, rank) slots of one wave of experts, sorted by expert.
  struct ExpertSlots {
    std::vector<int32_t> ready_of_expert;  // by expert id: index into `ready`, or -1
    std::vector<int64_t> begin;            // by ready index, one more than there are
    std::vector<int64_t> slots;
    int64_t count = 0;
  };

  /// A product that has been put off.
  struct PendingLinear {
    Tensor out;
    Tensor x;
    Weight weight;
    size_t input = 0;         // of linear_inputs_
    int64_t task_panels = 0;  // of one task
    int64_t task_begin = 0;
    int64_t out_begin = 0;  // in outputs_
  };
  /// Activations of pending products, prepared.
  struct LinearInput {
    const float* x = nullptr;  // contiguous rows
    BlockPlan plan;
    int64_t task_begin = 0;
    TileRows rows;
    AlignedSpace packed;
    std::vector<TileBlock> blocks;
  };
  /// Rows [begin, end) of one ready expert's matrices.
  struct ExpertTask {
    int64_t expert;
    int64_t begin;
    int64_t end;
  };
  /// out[t][r - out_row] = weight[r] . x[t] + bias[r] for the rows of a task.
  struct ExpertProduct {
    const Weight& weight;
    const Tensor& bias;
    std::span<const TileBlock> blocks;
    float* const* out;
    int64_t out_row;
    const uint8_t* next;  // the rows that are read after this
    std::byte* space;     // of decoded_bytes(), for a weight that has to be decoded
  };
  /// out[t][r - out_row] = weight[r] . x[t] for rows [row_begin, row_end) of a row-major weight.
  struct RowMajorProduct {
    const Weight& weight;
    const float* const* x;  // in permuted order where wants_permuted(weight)
    float* const* out;
    int64_t tokens;
    int64_t row_begin;
    int64_t row_end;
    int64_t out_row;
  };
  /// Activations of the sorted slots in one TileShape.
  struct SlotRows {
    bool wanted = false;
    TileRows rows;
    std::vector<TileToken> tokens;  // by sorted slot
  };
  static constexpr size_t kPendingMax = 8;
  static constexpr size_t kSlotShapes = 8;  // two kinds, four group sizes

  // The part that operations along the sequence have for each sequence.
  void append_and_attend(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                         const KvView& kv, const AttentionOptions& options);
  void attend(const Tensor& out, const Tensor& q, int64_t kv_heads, const KvView& kv,
              const AttentionOptions& options);
  /// The pages with a row a key.
  KvView append_index_keys(const Tensor& k, const KvView& kv, const SelectOptions& options);
  void select(const Select& op);
  /// The states of all heads of all sequences, some columns of one of them a task.
  struct StripTasks {
    int64_t heads;
    int64_t key_dim;
    int64_t value_dim;
    int64_t work;
  };
  /// run(sequence, head, begin, end, strip) for columns [begin, end) of every head's state;
  /// `strips` has room for key_dim rows of kDeltaColumns for each of slot_count().
  template <typename Run>
  void run_strips(const StripTasks& tasks, std::span<const StateRows> sequences, float* strips,
                  const Run& run);
  /// Fills first_rows_ in; gives the rows of all.
  int64_t list_first_rows(std::span<const StateRows> sequences);
  bool supports(const char* op, const Weight& weight);
  /// Runs the products put off so far. Every op but linear() begins with it.
  void flush();
  /// Runs fn(task) or fn(task, thread) for every task: on the pool when `work` (multiply-adds or
  /// so) is worth waking it.
  template <typename Fn>
  void for_tasks(int64_t count, int64_t work, Fn&& fn) {
    constexpr int64_t kWorthThreads = 32 * 1024;  // about 3 us of one core
    if (work >= kWorthThreads && count > 1) {
      pool_.parallel_for(count, fn);
      return;
    }
    for (int64_t task = 0; task < count; ++task) {
      if constexpr (std::is_invocable_v<Fn&, int64_t, int>) {
        fn(task, 0);
      } else {
        fn(task);
      }
    }
  }
  /// Like for_tasks, for tasks that need room: fn(task, slot) with slot < slot_count(), and no two
  /// at a time in one slot.
  template <typename Fn>
  void for_tasks_in_slots(int64_t count, int64_t work, Fn&& fn) {
    for_tasks(count, work, [&](int64_t task, int thread) { fn(task, int64_t{thread}); });
  }
  int64_t slot_count() const { return pool_.threads(); }
  /// Rows of a weight matrix one task computes, when `matrices` like it are computed at once.
  int64_t rows_per_task(int64_t rows, int64_t matrices) const;
  /// Fills `permuted` with rows x[i] in the order of 4-bit codes and points into it.
  void permute_rows(std::span<const float* const> x, int64_t cols, std::vector<float>& permuted,
                    std::vector<const float*>& pointers);
  int64_t sort_slots(const Routes& routes, int64_t slot_count,
                     std::span<const ExpertWeights> ready);
  /// Points inputs_ and outputs_ [heads, n] at rows of [n, heads, cols] tensors.
  void collect_heads(const RowsView& from, const RowsView& to, int64_t n, int64_t heads);

  /// By the format's kernels, or by those of plain numbers after decoding into `space` of
  /// decoded_bytes().
  void row_major_product(const RowMajorProduct& product, std::byte* space);
  /// `bytes` of workspace for each thread, `bytes` apart.
  std::byte* decode_spaces(size_t bytes);
  void linear_row_major(const RowsView& to, const RowsView& from, const Weight& weight);
  bool depends_on_pending(const Tensor& out, const Tensor& x) const;
  size_t input_of(const PendingLinear& item);
  void prepare_inputs();
  int64_t plan_pending();
  void run_pending(const PendingLinear& item, int64_t task);

  void expert_gate_up(const RowsView& hidden, const RowsView& from, int64_t top_k,
                      std::span<const ExpertWeights> ready, const GluOptions& glu);
  void expert_down(const RowsView& to, const RowsView& hidden,
                   std::span<const ExpertWeights> ready);
  /// Finds the distinct `rows` of sorted slots: `per_row` slots share one of `tokens`.
  void collect_distinct(std::span<const float* const> rows, int64_t tokens, int64_t per_row);
  /// Makes room for these rows as `weight` takes them.
  void want_slots(const Weight& weight);
  /// Fills what is wanted.
  void prepare_slots(int64_t cols);
  /// Cuts `rows` rows of each expert that has slots into tasks of similar cost.
  void plan_experts(int64_t experts, int64_t rows, int64_t row_bytes);
  size_t product_space(const Weight& weight, int64_t tokens) const;
  size_t gate_up_space(std::span<const ExpertWeights> ready) const;
  /// Where the task after `task` will begin to read.
  const uint8_t* next_tiles(int64_t task, std::span<const ExpertWeights> ready,
                            Weight ExpertWeights::*matrix) const;
  void run_gate_up(const ExpertWeights& expert, const ExpertTask& task, std::byte* space,
                   const uint8_t* next, const GluArgs& unit);
  /// The task's tokens interleaved for `weight` in `space` of product_space(), if it wants that.
  std::span<const TileBlock> pack_slots(const Weight& weight, const ExpertTask& task,
                                        std::byte* space);
  void expert_product(const ExpertProduct& product, const ExpertTask& task);
  /// The bits of q16's gated units are those of GPU kernels.
  void gated_unit(float* out, const float* gate, const float* up, int64_t n,
                  const GluArgs& args) const {
    const auto unit = precision_ == Precision::kQ16 ? kernels_.glu_fused : kernels_.glu;
    unit(out, gate, up, n, args);
  }
  static const TileKernels* rounded_tiles(const KernelSet& kernels, Precision precision) {
    if (precision == Precision::kQ16) return kernels.q16_tiles;
    return precision == Precision::kInt8 ? kernels.int8_tiles : nullptr;
  }

  /// How a weight of blocks is multiplied as it is stored; null: not so. Depends on the weight
  /// alone.
  const BlockKernel* block_kernel(const Weight& weight) const;
  /// Whether products of a weight are those of TileKernels.
  bool uses_tiles(const Weight& weight) const {
    return weight.format.order == WeightOrder::kTiled || block_kernel(weight) != nullptr;
  }
  /// Whether the kernels of row-major numbers multiply it.
  bool is_direct(const Weight& weight) const { return !uses_tiles(weight) && has_kernels(weight); }
  TileMatrix tile_matrix(const Weight& weight) const {
    return cpu::tile_matrix(weight, block_kernel(weight));
  }
  /// Where row `row`'s panel begins; null where uses_tiles() is false.
  const uint8_t* panel_at(const Weight& weight, int64_t row) const;
  /// Columns whose activations share a scale, in a weight that uses_tiles().
  int64_t tile_group(const Weight& weight) const {
    const BlockKernel* block = block_kernel(weight);
    const int64_t group = block != nullptr ? block->group_size : weight.format.group_size;
    return rounds(weight) && precision_ == Precision::kQ16 ? std::min(group, kUnitCols) : group;
  }
  /// Whether activations that meet a weight are rounded, where it uses_tiles(). Depends on the
  /// weight alone.
  bool rounds(const Weight& weight) const {
    if (precision_ == Precision::kQ16) return has_unit_products(weight.format, weight.cols);
    return rounded_ != nullptr && !weight.exact_activations;
  }
  /// The kernels that multiply a weight that uses_tiles(). Depends on the weight alone, so that a
  /// token's bits do not depend on what else is computed.
  const TileKernels& tile_kernels(const Weight& weight) const {
    return rounds(weight) ? *rounded_ : f32_;
  }
  TileShape tile_shape(const Weight& weight) const {
    return {&tile_kernels(weight), weight.cols, tile_group(weight)};
  }
  SlotRows& slot_rows(const Weight& weight) {
    const auto group = static_cast<size_t>(
        std::countr_zero(static_cast<uint64_t>(tile_group(weight) / kTileGroupMin)));
    return slot_rows_[(&tile_kernels(weight) == &f32_ ? kSlotShapes / 2 : 0) + group];
  }

  const KernelTable& kernels_;
  const SelectKernels& select_;
  Precision precision_;
  const TileKernels* rounded_;  // of int8 or q16; null: neither
  const TileKernels& f32_;
  ScratchArena arena_;
  ThreadPool pool_;
  Status status_;  // the first error; later ops do nothing
  uint64_t events_ = 0;

  // Workspaces, grow-only.
  ExpertSlots expert_slots_;
  std::vector<float> floats_;
  std::vector<PendingLinear> pending_;
  LinearInput linear_inputs_[kPendingMax];
  size_t linear_input_count_ = 0;
  SlotRows slot_rows_[kSlotShapes];
  std::vector<const float*> distinct_;
  int64_t distinct_count_ = 0;
  std::vector<int32_t> distinct_of_token_;
  std::vector<int32_t> distinct_of_slot_;
  std::vector<ExpertTask> expert_tasks_;
  AlignedSpace worker_space_;
  std::vector<float> permuted_;
  std::vector<const float*> inputs_;
  std::vector<const float*> permuted_inputs_;
  std::vector<float*> outputs_;
  std::vector<int64_t> first_rows_;  // of each sequence
  std::vector<const uint8_t*> k_pages_;
  std::vector<const uint8_t*> v_pages_;
  std::vector<Tensor> pooled_pages_;
  std::vector<const float*> pooled_rows_;
  std::vector<float> attention_parts_;
  std::vector<int32_t> order_;  // of candidates
};

/// Grows a workspace to at least `size` elements and returns it.
template <typename T>
T* workspace(std::vector<T>& storage, int64_t size) {
  if (storage.size() < static_cast<size_t>(size)) storage.resize(static_cast<size_t>(size));
  return storage.data();
}

/// A float workspace on a cache line border: vector loads that straddle lines cost a third of the
/// speed of a matrix product.
float* aligned_workspace(std::vector<float>& storage, int64_t size);

}  // namespace moeflux::cpu
