// Gives the routes of a step to those who record them: the records of texts, and a trace of all.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "schedule/route_record.h"

namespace moeflux {

/// Observes one step, if anybody records it: only then does a device that needs no host tell its
/// routes. Thread-compatible.
class RouteTap : public RouteObserver {
 public:
  /// The engine must outlive this.
  RouteTap(Engine& engine, std::shared_ptr<RouteObserver> trace)
      : engine_(engine), trace_(std::move(trace)) {}
  ~RouteTap() override {
    if (observes_) engine_.experts().routes().observe(nullptr);
  }
  RouteTap(const RouteTap&) = delete;
  RouteTap& operator=(const RouteTap&) = delete;

  /// A text that decodes a token in this step, in the step's order; its record may be null.
  void add_decoded(std::shared_ptr<RouteRecord> record) { records_.push_back(std::move(record)); }
  void begin();
  void routed(const LayerRoutes& routes, std::span<const ExpertId> misses) override;
  /// A step that is not whole has told rows that nobody knows whose they are.
  void end(bool is_whole, const StepCosts& costs);

 private:
  Engine& engine_;
  const std::shared_ptr<RouteObserver> trace_;
  std::vector<std::shared_ptr<RouteRecord>> records_;  // of decoded rows, in order
  std::vector<size_t> seen_;                           // by layer: decoded rows told of
  bool observes_ = false;
};

}  // namespace moeflux
