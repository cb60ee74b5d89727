#include "model/blocks/early_router.h"

namespace moeflux::blocks {

Status apply_early(const ForwardStep& step, const EarlyRouter& router) {
  const int64_t n = step.batch.decode_rows();
  if (n == 0) return {};
  Encoder& e = step.encoder;
  const MoeSpec& spec = *router.spec;
  ScratchScope scope(e);
  // Taken whether it is used or not: a dry run measures the scratch of a step without a store.
  const Tensor normed = e.scratch({n, router.residual.dim(1)}, DType::kF32);
  const Tensor logits = e.scratch({n, spec.num_experts}, DType::kF32);
  const Routes routes{e.scratch({n, spec.experts_per_token}, DType::kI32),
                      e.scratch({n, spec.experts_per_token}, DType::kF32)};
  if (!step.experts.wants_hint(router.layer)) return {};
  const Tensor residual = router.residual.slice(0, 0, n);
  if (router.subtracts_mean) {
    e.layer_norm(normed, residual, router.norm, router.eps);
  } else {
    e.rms_norm(normed, residual, router.norm, router.eps);
  }
  router_logits(e, logits, normed, *router.weights);
  e.route(routes, logits, router.weights->options);
  return step.experts.hint(router.layer, e, routes);
}

}  // namespace moeflux::blocks
