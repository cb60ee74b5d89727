// A step after warm-up asks the system for next to no memory. The test program's own operator new
// counts, and fails for others of its tests.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <new>

#include "engine/allocation_test_util.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"

namespace {

std::atomic<int64_t> allocations{0};
thread_local int64_t allocations_before_failures = -1;  // negative: none fails
thread_local int64_t failures_left = 0;
thread_local int64_t failures = 0;

bool fails() {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (allocations_before_failures < 0 || allocations_before_failures-- > 0) return false;
  allocations_before_failures = --failures_left > 0 ? 0 : -1;
  ++failures;
  return true;
}

void* counted(size_t bytes) {
  if (fails()) return nullptr;
  void* memory = malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) abort();
  return memory;
}

void* counted(size_t bytes, std::align_val_t alignment) {
  if (fails()) return nullptr;
  void* memory = nullptr;
  const auto boundary = static_cast<size_t>(alignment);
  if (posix_memalign(&memory, boundary < sizeof(void*) ? sizeof(void*) : boundary, bytes) != 0) {
    abort();
  }
  return memory;
}

// Not inlined: next to a `new` that is not, g++ takes a bare free() for a mismatch.
[[gnu::noinline]] void give_back(void* memory) { free(memory); }

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return or_throw(counted(bytes)); }
void* operator new[](size_t bytes) { return or_throw(counted(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return or_throw(counted(bytes, alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return or_throw(counted(bytes, alignment));
}
// Under a sanitizer the library's own would not call the ones above.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }

namespace moeflux {

int64_t allocations_so_far() { return allocations.load(); }
int64_t failed_allocations() { return failures; }

FailingAllocations::FailingAllocations(int64_t before, int64_t count) {
  failures = 0;
  failures_left = count;
  allocations_before_failures = before;
}
FailingAllocations::~FailingAllocations() { allocations_before_failures = -1; }

namespace {

class AllocationTest : public TinyEngineTest {
 protected:
  /// Allocations of `steps` single tokens, all on the first page of keys and values, after a
  /// warm-up that has seen every expert.
  int64_t count(uint64_t expert_cache_bytes, int steps) {
    const auto engine = open({.expert_cache_bytes = expert_cache_bytes, .reader_threads = 1});
    const auto sequence = start(*engine);
    const Tokens tokens = some_tokens(64);
    EXPECT_TRUE(eval_last(*engine, *sequence, tokens).ok());
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(
          eval_last(*engine, *sequence, std::span(tokens).subspan(i, 1), StepPhase::kDecode).ok());
    }
    const int64_t before = allocations_so_far();
    for (int i = 0; i < steps; ++i) {
      const size_t at = static_cast<size_t>(i) % tokens.size();
      const bool ok =
          eval_last(*engine, *sequence, std::span(tokens).subspan(at, 1), StepPhase::kDecode).ok();
      if (!ok) ADD_FAILURE() << "step " << i;
    }
    return allocations_so_far() - before;
  }
};

TEST_F(AllocationTest, CountsWhatIsAllocated) {
  const int64_t before = allocations.load();
  const auto probe = std::make_unique<std::vector<int>>(100);
  EXPECT_EQ(allocations.load() - before, 2);
}

// The lease, and the closure for what runs while reads are in flight.
constexpr int64_t kPerLayerMax = 2;
constexpr int64_t kLayers = 2;
constexpr int kSteps = 40;

TEST_F(AllocationTest, StepOnCachedExpertsAllocatesALeaseALayer) {
  EXPECT_LE(count(uint64_t{1} << 30, kSteps), kSteps * kLayers * kPerLayerMax);
}

TEST_F(AllocationTest, ReadsAllocateAFewListsAndNothingThatGrows) {
  // With one slot, two experts a layer of three reads each; a completion may come alone.
  constexpr int64_t kReadsPerStep = kLayers * 2 * 3;
  constexpr int64_t kPerReadMax = 4;
  const int64_t few = count(0, kSteps);
  const int64_t many = count(0, 4 * kSteps);
  EXPECT_LE(few, kSteps * (kLayers * kPerLayerMax + kReadsPerStep * kPerReadMax));
  EXPECT_LE(many, 4 * kSteps * (kLayers * kPerLayerMax + kReadsPerStep * kPerReadMax));
}

}  // namespace
}  // namespace moeflux
