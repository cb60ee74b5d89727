#include "model/mixers/query_scale.h"

#include <algorithm>
#include <span>
#include <vector>

namespace moeflux {

void scale_queries(Encoder& e, Tensor q, const StepBatch& batch, const QueryScale& scale) {
  std::vector<float> factors;
  for (const StepRows& rows : batch.sequences()) {
    for (int64_t i = 0; i < rows.rows; ++i) factors.push_back(scale.at(rows.position + i));
  }
  // Taken whether it is used or not: a dry run measures the scratch of a step.
  const Tensor of_rows = e.scratch({static_cast<int64_t>(factors.size()), 1}, DType::kF32);
  if (std::ranges::all_of(factors, [](float factor) { return factor == 1.0f; })) return;
  e.write(of_rows, std::as_bytes(std::span(factors)));
  e.run(ops::MulActivated{q, q, of_rows, Activation::kIdentity});
}

}  // namespace moeflux
