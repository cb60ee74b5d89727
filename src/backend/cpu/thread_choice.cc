#include "backend/cpu/thread_choice.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>

#include "backend/host_buffer.h"
#include "base/thread_pool.h"
#include "base/units.h"

namespace moeflux::cpu {
namespace {

constexpr uint64_t kBufferBytes = 192 * kMiB;  // more than a socket's last cache
// A layer of one token reads some megabytes a loop, in tasks of ops/expert_ffn.cc's size.
constexpr uint64_t kLoopBytes = 4 * kMiB;
constexpr uint64_t kTaskBytes = 32 * kKiB;
constexpr int kPasses = 4;  // the first wakes threads up and fills tables of pages

/// Reads every word.
uint64_t sum_of(const std::byte* bytes, uint64_t size) {
  uint64_t sums[8] = {};
  for (uint64_t i = 0; i + sizeof(sums) <= size; i += sizeof(sums)) {
    uint64_t words[8];
    std::memcpy(words, bytes + i, sizeof(words));
    for (int k = 0; k < 8; ++k) sums[k] += words[k];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

/// Seconds of the fastest pass over the buffer with a pool of so many threads.
double seconds_of_pass(const Buffer& buffer, int threads, std::span<const NumaNode> nodes) {
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(threads, place_threads(threads, false, nodes, {}));
  std::atomic<uint64_t> sum{0};  // keeps the reads
  double best = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point begin = Clock::now();
    for (uint64_t at = 0; at < kBufferBytes; at += kLoopBytes) {
      pool.parallel_for(kLoopBytes / kTaskBytes, [&](int64_t task) {
        const std::byte* const bytes = buffer.host_data() + at;
        const uint64_t own = sum_of(bytes + static_cast<uint64_t>(task) * kTaskBytes, kTaskBytes);
        if (own == 1) sum.fetch_add(own, std::memory_order_relaxed);
      });
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

std::vector<int> thread_candidates(int cores) {
  std::vector<int> candidates;
  for (int threads = 8; threads < cores; threads *= 2) candidates.push_back(threads);
  candidates.push_back(cores);
  return candidates;
}

int choose_threads(int cores, const std::function<double(int)>& seconds_of) {
  const std::vector<int> candidates = thread_candidates(cores);
  if (candidates.size() == 1) return cores;
  std::vector<double> seconds;
  for (const int threads : candidates) seconds.push_back(seconds_of(threads));
  const double bound = 1.02 * *std::min_element(seconds.begin(), seconds.end());
  size_t chosen = candidates.size() - 1;
  while (seconds[chosen] > bound) --chosen;
  return candidates[chosen];
}

int measured_threads(int cores, std::span<const NumaNode> nodes) {
  if (thread_candidates(cores).size() == 1) return cores;
  Result<std::unique_ptr<Buffer>> buffer = allocate_host_buffer(kBufferBytes, nodes);
  if (!buffer.ok()) return cores;
  // Pages that nobody wrote are all one page of zeros. Their writers are spread as threads are.
  {
    ThreadPool pool(cores, place_threads(cores, false, nodes, {}));
    pool.parallel_for(kBufferBytes / kTaskBytes, [&](int64_t task) {
      std::memset((*buffer)->host_data() + static_cast<uint64_t>(task) * kTaskBytes, 1, kTaskBytes);
    });
  }
  return choose_threads(cores,
                        [&](int threads) { return seconds_of_pass(**buffer, threads, nodes); });
}

}  // namespace moeflux::cpu
