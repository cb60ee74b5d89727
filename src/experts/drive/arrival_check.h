// Compares experts with the checksums of their pack, each on its first arrival in a run: drives
// seldom change their mind later, and from then on a read costs nothing more.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"

namespace moeflux {

/// Thread-compatible. Both references must outlive it.
class ArrivalCheck {
 public:
  ArrivalCheck(const ExpertTable& table, const TensorIndex& files);

  /// `slot` is what has arrived, before it is arranged. Fails with kCorruption naming the file, the
  /// place and both sums; such an expert is compared again when it comes again. Experts without a
  /// checksum pass.
  Status check(ExpertKey key, std::span<const std::byte> slot);

 private:
  const ExpertTable& table_;
  const TensorIndex& files_;
  std::vector<std::vector<bool>> done_;  // by layer and expert
};

}  // namespace moeflux
