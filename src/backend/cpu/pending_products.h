// Products with tiled weights, put off until the next operation that is not one. Independent
// products run together: activations are prepared once, threads start once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/tile_products.h"
#include "backend/cpu/weight_kernels.h"
#include "backend/cpu/workers.h"
#include "backend/ops/linear.h"

namespace moeflux::cpu {

class PendingProducts {
 public:
  PendingProducts(const WeightKernels& weights, Workers& workers)
      : weights_(weights), workers_(workers) {}

  /// Puts off a product whose weight uses_tiles().
  void add(const ops::Linear& op);
  /// Runs the products put off so far.
  void flush();

 private:
  struct Product {
    ops::Linear op;
    size_t input = 0;         // of inputs_
    int64_t task_panels = 0;  // of one task
    int64_t task_begin = 0;
    int64_t out_begin = 0;  // in outputs_
  };
  /// Activations of pending products, prepared.
  struct Input {
    const float* x = nullptr;  // contiguous rows
    BlockPlan plan;
    int64_t task_begin = 0;
    TileRows rows;
    AlignedSpace packed;
    std::vector<TileBlock> blocks;
  };
  static constexpr size_t kProductsMax = 8;

  bool depends_on_pending(const ops::Linear& op) const;
  size_t input_of(const Product& item);
  void prepare_inputs();
  int64_t plan();
  void run(const Product& item, int64_t task);

  const WeightKernels& weights_;
  Workers& workers_;
  std::vector<Product> products_;
  Input inputs_[kProductsMax];
  size_t input_count_ = 0;
  std::vector<float*> outputs_;
};

}  // namespace moeflux::cpu
