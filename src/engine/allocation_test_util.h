// The test program's own operator new, which counts and fails on demand.
#pragma once

#include <cstdint>

namespace moeflux {

/// How many all threads have made so far.
int64_t allocations_so_far();

/// While it lives, `count` allocations of this thread fail, the first after `before` of them.
class FailingAllocations {
 public:
  FailingAllocations(int64_t before, int64_t count);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
};
/// How many allocations of this thread the last FailingAllocations made fail.
int64_t failed_allocations();

}  // namespace moeflux
