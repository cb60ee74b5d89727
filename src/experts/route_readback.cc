#include "experts/route_readback.h"

namespace moeflux {

Result<LayerRoutes> RouteReadback::read(LayerId layer, Encoder& encoder, const Routes& routes) {
  const auto count = static_cast<size_t>(routes.ids.num_elements());
  ids_.resize(count);
  weights_.clear();
  MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(ids_)), routes.ids));
  if (is_observed()) {
    weights_.resize(count);
    MF_RETURN_IF_ERROR(encoder.read(std::as_writable_bytes(std::span(weights_)), routes.weights));
  }
  const int64_t tokens = routes.ids.dim(0);
  return LayerRoutes{.layer = layer,
                     .phase = tokens == 1 ? RoutePhase::kDecode : RoutePhase::kPrefill,
                     .position = position_,
                     .tokens = tokens,
                     .ids = ids_,
                     .weights = weights_};
}

}  // namespace moeflux
