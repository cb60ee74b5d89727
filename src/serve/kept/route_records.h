// The routes of the last answers that asked for it, each for its owner.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "schedule/route_record.h"

namespace moeflux::serve {

/// Thread-safe.
class RouteRecords {
 public:
  static constexpr size_t kAnswersMax = 16;
  static constexpr size_t kAnswerBytesMax = size_t{4} << 20;

  /// A record under a name of owned_text(). The oldest makes room.
  std::shared_ptr<RouteRecord> add(std::string name);
  /// Null where there is none.
  std::shared_ptr<RouteRecord> find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  std::deque<std::pair<std::string, std::shared_ptr<RouteRecord>>> records_;
};

}  // namespace moeflux::serve
