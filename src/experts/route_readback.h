// Brings a layer's routes to the host, once, for everybody who needs them there: the store that
// fetches the experts and the observer that records them.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/encoder.h"
#include "experts/route_observer.h"

namespace moeflux {

/// Thread-compatible. The result of read() refers to it until the next call.
class RouteReadback {
 public:
  void begin_step(int64_t position) { position_ = position; }
  void observe(RouteObserver* observer) { observer_ = observer; }
  bool is_observed() const { return observer_ != nullptr; }

  /// Waits for the ids [tokens, top_k], and for their weights when somebody observes. A step of one
  /// token is decode; a prompt's last chunk may be one token and count as such.
  Result<LayerRoutes> read(LayerId layer, Encoder& encoder, const Routes& routes);
  void tell(const LayerRoutes& routes, std::span<const ExpertId> misses) const {
    if (observer_ != nullptr) observer_->routed(routes, misses);
  }

 private:
  RouteObserver* observer_ = nullptr;
  int64_t position_ = 0;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
};

}  // namespace moeflux
