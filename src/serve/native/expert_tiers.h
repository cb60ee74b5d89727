// The places of a model's experts for those who watch: sums for all, single experts for clients
// that may see them, whole first and then the changes.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "experts/expert_map.h"
#include "experts/expert_table.h"

namespace moeflux::serve {

/// One watcher's; not thread-safe.
class ExpertTiers {
 public:
  /// Single experts tell what others have asked: only sums without `by_id`.
  explicit ExpertTiers(bool by_id) : by_id_(by_id) {}

  /// Adds to a frame of telemetry: `tiers`, null where there is no map, and by id `residency` and
  /// `used`, where there is something new.
  void add(Json& frame, const std::string& model, const ExpertTable& experts,
           const std::shared_ptr<const ExpertMap>& map);
  /// No model is loaded; the next one is sent whole.
  void add_none(Json& frame);

 private:
  void add_residency(Json& frame, const ExpertTable& experts, const ExpertMap& map) const;
  void add_used(Json& frame, const ExpertTable& experts, const ExpertMap& map) const;

  const bool by_id_;
  std::string model_;
  std::shared_ptr<const ExpertMap> last_;  // of model_
};

/// Bytes and uses of the model's experts by layer.
Json experts_json(const ExpertTable& experts, const ExpertMap& map);

}  // namespace moeflux::serve
