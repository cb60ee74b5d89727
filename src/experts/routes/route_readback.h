// Brings a layer's routes to the host, once, for everybody who needs them there: the store that
// fetches the experts and the observer that records them. Before, others may replace them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backend/encoder.h"
#include "experts/route_observer.h"

namespace moeflux {

/// Writes over what a layer's router chose for a step's rows.
using RouteReplacement =
    std::function<Status(LayerId, std::span<const StepRows>, Encoder&, const Routes&)>;

/// Thread-compatible. The result of read() refers to it until the next call.
class RouteReadback {
 public:
  void begin_step(std::span<const StepRows> rows) { rows_.assign(rows.begin(), rows.end()); }
  /// Null: nobody. Must outlive this, or be taken away.
  void observe(RouteObserver* observer) { observer_ = observer; }
  bool is_observed() const { return observer_ != nullptr; }
  /// Called before anybody sees ids or weights: reads and arithmetic have what it writes.
  void replace_by(RouteReplacement replacement) { replacement_ = std::move(replacement); }
  bool is_replaced() const { return replacement_ != nullptr; }

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
  Status replace(LayerId layer, Encoder& encoder, const Routes& routes) {
    return is_replaced() ? replacement_(layer, rows_, encoder, routes) : Status();
  }

  RouteReplacement replacement_;
  RouteObserver* observer_ = nullptr;
  std::vector<StepRows> rows_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
  std::vector<LayerRoutes> parts_;
  std::vector<ExpertId> untold_;
  std::vector<ExpertId> told_;
};

}  // namespace moeflux
