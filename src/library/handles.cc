#include "library/handles.h"

namespace moeflux {

void OpenModel::retire(std::unique_ptr<Sequence> sequence) {
  const std::lock_guard lock(mutex_);
  if (is_busy_) retired_.push_back(std::move(sequence));
  sequence.reset();  // while nobody computes
}

Turn::Turn(OpenModel& model) : model_(model) {
  const std::lock_guard lock(model_.mutex_);
  has_turn_ = !std::exchange(model_.is_busy_, true);
}

Turn::~Turn() {
  if (!has_turn_) return;
  const std::lock_guard lock(model_.mutex_);
  model_.retired_.clear();
  model_.is_busy_ = false;
}

}  // namespace moeflux
