#include "model/blocks/early_router.h"

namespace moeflux::blocks {

void residual_norm(Encoder& e, const ModelSpec& spec, Tensor out, Tensor x,
                   const ResidualNorm& norm, float eps) {
  const float own = eps > 0.0f ? eps : spec.rms_norm_eps;
  if (spec.norms_subtract_mean) return e.run(ops::LayerNorm{out, x, norm.weight, own});
  e.run(ops::RmsNorm{out, x, norm.weight, own});
  if (norm.down.is_null()) return;
  ScratchScope scope(e);
  const Tensor inner = e.scratch({x.dim(0), norm.down.rows}, DType::kF32);
  const Tensor unit = e.scratch(inner.shape, DType::kF32);
  const Tensor gate = e.scratch(out.shape, DType::kF32);
  e.run(ops::Linear{inner, out, norm.down});
  e.run(ops::MulActivated{unit, inner, inner, Activation::kSigmoid});  // silu
  e.run(ops::Linear{gate, unit, norm.up});
  e.run(ops::MulActivated{out, out, gate, Activation::kSigmoid});
}

Status apply_early(const ForwardStep& step, const EarlyRouter& router) {
  const int64_t n = step.batch.decode_rows();
  if (n == 0) return {};
  Encoder& e = step.encoder;
  const MoeSpec& spec = router.model->layers[static_cast<size_t>(index(router.layer))].moe;
  ScratchScope scope(e);
  const bool is_wanted = step.experts.wants_hint(router.layer);
  // First, so that its scratch is that of any branch.
  const Tensor seen =
      is_wanted ? router.residual->read(e, *router.stream, {router.layer, true}) : Tensor{};
  // Taken whether it is used or not: a dry run measures the scratch of a step without a store.
  const Tensor normed = e.scratch({n, router.model->hidden_size}, DType::kF32);
  const Tensor logits = e.scratch({n, spec.num_scored()}, DType::kF32);
  Tensor carried;
  if (!step.carried.is_null()) carried = e.scratch({n, spec.router_hidden_size}, DType::kF32);
  const Routes routes{e.scratch({n, spec.experts_per_token}, DType::kI32),
                      e.scratch({n, spec.experts_per_token}, DType::kF32)};
  if (!is_wanted) return {};
  const Tensor own = seen.slice(0, 0, n);
  if (!router.norm.is_null()) residual_norm(e, *router.model, normed, own, router.norm);
  if (!carried.is_null()) e.run(ops::Copy{carried, step.carried.slice(0, 0, n)});
  router_logits(e, logits, router.norm.is_null() ? own : normed, *router.weights, carried);
  choose_experts(e, routes, logits.slice(1, 0, spec.num_scored() - spec.weighed_shared), spec,
                 options_for(*router.weights, step.token_ids.slice(0, 0, n)));
  return step.experts.hint(router.layer, e, routes);
}

}  // namespace moeflux::blocks
