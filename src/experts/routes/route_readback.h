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
  void begin_step(std::span<const StepRows> rows) { rows_.assign(rows.begin(), rows.end()); }
  void observe(RouteObserver* observer) { observer_ = observer; }
  bool is_observed() const { return observer_ != nullptr; }

  /// Waits for the ids [tokens, top_k], and for their weights when somebody observes. Gives them
  /// sequence by sequence: `tokens` are the rows of begin_step().
  Result<std::span<const LayerRoutes>> read(LayerId layer, Encoder& encoder, const Routes& routes);
  /// The same without a cut: what all rows chose.
  std::span<const int32_t> ids() const { return ids_; }
  /// For a store that needs no ids and misses nothing: reads and tells only while somebody
  /// observes.
  Status show(LayerId layer, Encoder& encoder, const Routes& routes);
  /// Tells the observer of what read() gave last.
  void tell(std::span<const ExpertId> misses);

 private:
  RouteObserver* observer_ = nullptr;
  std::vector<StepRows> rows_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  std::vector<LayerRoutes> parts_;
  std::vector<ExpertId> untold_;
  std::vector<ExpertId> told_;
};

}  // namespace moeflux
