#include "model/blocks/early_router.h"

namespace moeflux::blocks {

Status apply_early(const ForwardStep& step, const EarlyRouter& router) {
  if (router.residual.dim(0) != 1) return {};
  Encoder& e = step.encoder;
  const MoeSpec& spec = *router.spec;
  ScratchScope scope(e);
  // Taken whether it is used or not: a dry run measures the scratch of a step without a store.
  const Tensor normed = e.scratch({1, router.residual.dim(1)}, DType::kF32);
  const Tensor logits = e.scratch({1, spec.num_experts}, DType::kF32);
  const Routes routes{e.scratch({1, spec.experts_per_token}, DType::kI32),
                      e.scratch({1, spec.experts_per_token}, DType::kF32)};
  if (!step.experts.wants_hint(router.layer)) return {};
  e.rms_norm(normed, router.residual, router.norm, router.eps);
  router_logits(e, logits, normed, *router.weights);
  e.route(routes, logits, router.weights->options);
  return step.experts.hint(router.layer, e, routes);
}

}  // namespace moeflux::blocks
