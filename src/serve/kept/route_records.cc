#include "serve/kept/route_records.h"

namespace moeflux::serve {

std::shared_ptr<RouteRecord> RouteRecords::add(std::string name) {
  auto record = std::make_shared<RouteRecord>(kAnswerBytesMax);
  const std::lock_guard lock(mutex_);
  records_.emplace_back(std::move(name), record);
  if (records_.size() > kAnswersMax) records_.pop_front();
  return record;
}

std::shared_ptr<RouteRecord> RouteRecords::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [known, record] : records_) {
    if (known == name) return record;
  }
  return nullptr;
}

}  // namespace moeflux::serve
