#include "backend/gpu/launch/quantized_rows.h"

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

const QuantizedRows* QuantizedCache::find(const Tensor& x, uint32_t order) const {
  for (const QuantizedRows& rows : rows_) {
    if (!rows.x.is_null() && rows.order == order && are_same(rows.x, x)) return &rows;
  }
  return nullptr;
}

Result<const QuantizedRows*> QuantizedCache::add(const Tensor& x, uint32_t order) {
  const uint64_t count = rows_of(x);
  const auto cols = static_cast<uint64_t>(x.shape.back());
  const size_t begin = quantized_sums_begin(count, cols);
  const size_t bytes = quantized_bytes(count, cols, order);
  QuantizedRows& rows = rows_[next_];
  MF_ASSIGN_OR_RETURN(const Binding space, spaces_[next_].take(bytes));
  next_ = (next_ + 1) % rows_.size();
  rows.integers = part_of(space, 0, begin, Access::kRead);
  rows.sums = part_of(space, begin, bytes - begin, Access::kRead);
  rows.x = x;
  rows.order = order;
  return &rows;
}

void QuantizedCache::keep(const QuantizedRows& rows, const Tensor& x) {
  for (QuantizedRows& own : rows_) {
    if (&own == &rows) own.x = x;
  }
}

void QuantizedCache::note(const Plan& plan) {
  for (QuantizedRows& rows : rows_) {
    if (writes(plan, rows.x)) rows.x = {};
  }
}

// The next row takes the first place, so that the launches of a step that makes an odd number of
// them are those of the step before.
void QuantizedCache::clear() {
  for (QuantizedRows& rows : rows_) rows.x = {};
  next_ = 0;
}

size_t quantized_sums_begin(uint64_t rows, uint64_t cols) {
  return rows * (cols / 2) * sizeof(u32);
}

size_t quantized_bytes(uint64_t rows, uint64_t cols, uint32_t order) {
  const uint64_t of_block = (order & kRowsByHalves) != 0 ? uint64_t{kGgmlSumWords} : 2;
  return quantized_sums_begin(rows, cols) + rows * (cols / kMmaBlock) * of_block * sizeof(float);
}

}  // namespace moeflux::gpu
