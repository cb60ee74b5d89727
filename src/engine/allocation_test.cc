// A step after warm-up asks the system for next to no memory. The test program's own operator new
// counts.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <new>

#include "engine/tiny_engine_test_util.h"

namespace {

std::atomic<int64_t> allocations{0};

void* counted(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) abort();
  return memory;
}

void* counted(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  const auto boundary = static_cast<size_t>(alignment);
  if (posix_memalign(&memory, boundary < sizeof(void*) ? sizeof(void*) : boundary, bytes) != 0) {
    abort();
  }
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { free(memory); }

namespace moeflux {
namespace {

class AllocationTest : public TinyEngineTest {
 protected:
  /// Allocations of `steps` single tokens, all on the first page of keys and values, after a
  /// warm-up that has seen every expert.
  int64_t count(uint64_t expert_cache_bytes, int steps) {
    const auto engine = open({.expert_cache_bytes = expert_cache_bytes, .reader_threads = 1});
    const auto sequence = start(*engine);
    const Tokens tokens = some_tokens(64);
    EXPECT_TRUE(engine->eval_last(*sequence, tokens).ok());
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(engine->eval_last(*sequence, std::span(tokens).subspan(i, 1)).ok());
    }
    const int64_t before = allocations.load();
    for (int i = 0; i < steps; ++i) {
      const size_t at = static_cast<size_t>(i) % tokens.size();
      const bool ok = engine->eval_last(*sequence, std::span(tokens).subspan(at, 1)).ok();
      if (!ok) ADD_FAILURE() << "step " << i;
    }
    return allocations.load() - before;
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
