#include "backend/expert_helper.h"

#include "base/check.h"

namespace moeflux {

Result<std::unique_ptr<ExpertHelper>> ExpertHelper::create(Device& device, Device& helper,
                                                           const ExpertHelperShape& shape) {
  MF_CHECK(shape.rows_max > 0);
  std::unique_ptr<ExpertHelper> made(new ExpertHelper(shape));
  const int64_t choices = shape.rows_max * shape.experts_per_token_max;
  const auto visible = [&](int64_t words) {
    return device.allocate(static_cast<size_t>(words) * sizeof(float), MemoryKind::kHostVisible);
  };
  MF_ASSIGN_OR_RETURN(made->ids_, visible(choices));
  MF_ASSIGN_OR_RETURN(made->x_, visible(shape.rows_max * shape.hidden));
  MF_ASSIGN_OR_RETURN(made->slots_, visible(choices * shape.hidden));
  MF_ASSIGN_OR_RETURN(
      made->intermediate_,
      helper.allocate(static_cast<size_t>(choices * shape.intermediate_max) * sizeof(float),
                      MemoryKind::kHostVisible));
  // expert_ffn() takes no scratch.
  MF_ASSIGN_OR_RETURN(made->encoder_, helper.create_encoder(0));
  return made;
}

Tensor ExpertHelper::ids(int64_t rows, int64_t top_k) {
  MF_CHECK(rows <= shape_.rows_max && top_k <= shape_.experts_per_token_max);
  return Tensor::view(*ids_, 0, {rows, top_k}, DType::kI32);
}

Tensor ExpertHelper::slots(int64_t rows, int64_t top_k) {
  MF_CHECK(rows <= shape_.rows_max && top_k <= shape_.experts_per_token_max);
  return Tensor::view(*slots_, 0, {rows, top_k, shape_.hidden}, DType::kF32);
}

void ExpertHelper::take(Encoder& encoder, Tensor x) {
  MF_CHECK(x.dim(0) <= shape_.rows_max && x.dim(1) == shape_.hidden);
  x_now_ = Tensor::view(*x_, 0, {x.dim(0), shape_.hidden}, DType::kF32);
  encoder.run(ops::Copy{x_now_, x});
}

Status ExpertHelper::compute(std::span<const ExpertWeights> experts, const Routes& routes,
                             const GluOptions& glu) {
  const int64_t rows = routes.ids.dim(0);
  const int64_t top_k = routes.ids.dim(1);
  const int64_t width = experts.front().gate.rows;
  MF_CHECK(rows == x_now_.dim(0) && width <= shape_.intermediate_max);
  encoder_->run(ops::ExpertFfn{slots(rows, top_k),
                               Tensor::view(*intermediate_, 0, {rows, top_k, width}, DType::kF32),
                               x_now_,
                               {ids(rows, top_k), routes.weights},
                               experts,
                               glu});
  return encoder_->wait(encoder_->submit());
}

}  // namespace moeflux
