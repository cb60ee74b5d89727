#include "experts/drive/drive_load.h"

#include <algorithm>

namespace moeflux {
namespace {

constexpr double kFade = 0.95;

void add(double& sum, double value) { sum = kFade * sum + value; }

}  // namespace

void DriveMeter::read(uint64_t bytes, double seconds) {
  add(read_bytes_, static_cast<double>(bytes));
  add(read_seconds_, seconds);
}

void DriveMeter::visit(uint64_t bytes, double seconds) {
  add(visit_bytes_, static_cast<double>(bytes));
  add(visit_seconds_, seconds);
}

double DriveMeter::bytes_per_second() const {
  return read_seconds_ > 0.0 ? read_bytes_ / read_seconds_ : 0.0;
}

DriveLoad DriveMeter::load(uint64_t expert_bytes) const {
  const double speed = bytes_per_second();
  if (speed <= 0.0 || visit_seconds_ <= 0.0 || expert_bytes == 0) return {};
  DriveLoad load;
  load.utilisation = std::min(1.0, visit_bytes_ / (speed * visit_seconds_));
  load.read_seconds = static_cast<double>(expert_bytes) / speed;
  // The sums have the weight of this many visits.
  const double seconds = visit_seconds_ * (1.0 - kFade);
  load.spare_reads = (1.0 - load.utilisation) * seconds / load.read_seconds;
  return load;
}

}  // namespace moeflux
