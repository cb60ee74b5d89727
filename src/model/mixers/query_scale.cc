#include "model/mixers/query_scale.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/portable_math.h"

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

void scale_heads(Encoder& e, Tensor q, const StepBatch& batch, const LogScale& scale) {
  ScratchScope scope(e);
  std::vector<float> logs;
  for (const StepRows& rows : batch.sequences()) {
    for (int64_t i = 1; i <= rows.rows; ++i) {
      logs.push_back(static_cast<float>(portable_log(static_cast<double>(rows.position + i))));
    }
  }
  const int64_t heads = q.dim(1);
  const Tensor of_rows = e.scratch({q.dim(0), 1}, DType::kF32);
  const Tensor factors = e.scratch({q.dim(0), heads}, DType::kF32);
  e.write(of_rows, std::as_bytes(std::span(logs)));
  Tensor slopes = scale.slope.reshape({1, heads});
  slopes.shape = factors.shape;
  slopes.strides[0] = 0;
  e.run(ops::Copy{factors, slopes});
  e.run(ops::MulActivated{factors, factors, of_rows, Activation::kIdentity});
  e.run(ops::AddBias{factors, scale.offset});
  e.run(ops::MulActivated{q, q, factors.split_last(1), Activation::kIdentity});
}

}  // namespace moeflux
