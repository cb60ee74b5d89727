#include "model/blocks/wanted_rows.h"

namespace moeflux::blocks {

Tensor wanted_rows(Encoder& e, const StepBatch& batch, Tensor x, Tensor spare) {
  const std::span<const StepBatch::RowRange> ranges = batch.logits_ranges();
  if (ranges.size() == 1) return x.slice(0, ranges.front().begin, ranges.front().rows);
  int64_t row = 0;
  for (const StepBatch::RowRange& range : ranges) {
    e.run(ops::Copy{spare.slice(0, row, range.rows), x.slice(0, range.begin, range.rows)});
    row += range.rows;
  }
  return spare.slice(0, 0, row);
}

}  // namespace moeflux::blocks
