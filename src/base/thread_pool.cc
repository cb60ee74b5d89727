// The loop protocol of ThreadPool, and how many cores there are to fill.
#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/cpu_pause.h"

namespace moeflux {
namespace {

constexpr int kPausesPerLook = 32;

/// The quota of one cgroup directory in cores, or a huge number when there is none.
double cgroup_quota_cores(const std::string& directory) {
  constexpr double kUnlimited = 1e9;
  std::ifstream v2(directory + "/cpu.max");
  std::string quota;
  double period = 0.0;
  if (v2 >> quota >> period) {
    if (quota == "max" || period <= 0.0) return kUnlimited;
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  std::ifstream v1_quota(directory + "/cpu.cfs_quota_us");
  std::ifstream v1_period(directory + "/cpu.cfs_period_us");
  double quota_us = 0.0;
  if (v1_quota >> quota_us && v1_period >> period && quota_us > 0.0 && period > 0.0) {
    return quota_us / period;
  }
  return kUnlimited;
}

/// The smallest quota between our cgroup and the root, both hierarchies.
double process_quota_cores() {
  double cores = cgroup_quota_cores("/sys/fs/cgroup");
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_cpu = controllers.find("cpu") == 0 && controllers.find("cpuset") != 0;
    if (!controllers.empty() && !is_cpu) continue;
    const std::string root =
        controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
    std::string path = line.substr(second + 1);
    while (path.size() > 1) {
      cores = std::min(cores, cgroup_quota_cores(root + path));
      path.resize(std::max<size_t>(path.rfind('/'), 1));
      if (path == "/") break;
    }
    cores = std::min(cores, cgroup_quota_cores(root));
  }
  return cores;
}

}  // namespace

bool can_pin_threads() {
#if defined(__linux__)
  return true;
#else
  return false;
#endif
}

ThreadPool::ThreadPool(int threads, const ThreadCores& cores, std::chrono::microseconds look)
    : look_(std::max(look, kWakeEach * threads)),
      shares_(static_cast<size_t>(std::max(threads, 1))) {
  MF_CHECK(threads >= 1 && threads <= kThreadsMax);
  workers_.reserve(static_cast<size_t>(threads) - 1);
  // A system out of threads makes us slower: the caller does what is left.
  try {
    for (int i = 1; i < threads; ++i) {
      const auto number = static_cast<size_t>(i);
      std::vector<int> own = number < cores.size() ? cores[number] : std::vector<int>();
      workers_.emplace_back([this, i, own = std::move(own)] {
        if (!own.empty()) stay_on_cores(own);
        worker_loop(i);
      });
    }
  } catch (const std::system_error&) {
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kGeneration, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

namespace {

constexpr uint64_t share_of(int64_t begin, int64_t end) {
  return static_cast<uint64_t>(begin) | static_cast<uint64_t>(end) << 32;
}
constexpr int64_t share_begin(uint64_t share) { return static_cast<int64_t>(share & 0xffffffffu); }
constexpr int64_t share_end(uint64_t share) { return static_cast<int64_t>(share >> 32); }

/// The first task of a share, or -1.
int64_t claim_first(std::atomic<uint64_t>& share) {
  uint64_t left = share.load(std::memory_order_relaxed);
  while (share_begin(left) < share_end(left)) {
    if (share.compare_exchange_weak(left, left + 1, std::memory_order_relaxed)) {
      return share_begin(left);
    }
  }
  return -1;
}

/// The last task of a share, or -1.
int64_t claim_last(std::atomic<uint64_t>& share) {
  uint64_t left = share.load(std::memory_order_relaxed);
  while (share_begin(left) < share_end(left)) {
    if (share.compare_exchange_weak(left, share_of(share_begin(left), share_end(left) - 1),
                                    std::memory_order_relaxed)) {
      return share_end(left) - 1;
    }
  }
  return -1;
}

}  // namespace

void ThreadPool::run_tasks(int thread, int members) {
  std::atomic<uint64_t>& own = shares_[static_cast<size_t>(thread)].left;
  for (int64_t task = claim_first(own); task >= 0; task = claim_first(own)) {
    task_.call(task_.callable, task, thread);
  }
  for (int i = 1; i < members; ++i) {
    std::atomic<uint64_t>& other = shares_[static_cast<size_t>((thread + i) % members)].left;
    for (int64_t task = claim_last(other); task >= 0; task = claim_last(other)) {
      task_.call(task_.callable, task, thread);
    }
  }
}

void ThreadPool::run(int64_t count, int64_t most, TaskRef task) {
  MF_CHECK(!running_.exchange(true, std::memory_order_acquire));
  const auto members = static_cast<int>(std::min({count, most, int64_t{threads()}}));
  if (members <= 1) {
    for (int64_t i = 0; i < count; ++i) task.call(task.callable, i, 0);
    running_.store(false, std::memory_order_release);
    return;
  }
  MF_CHECK(count <= std::numeric_limits<int32_t>::max());
  task_ = task;
  for (int64_t i = 0; i < members; ++i) {
    shares_[static_cast<size_t>(i)].left.store(
        share_of(count * i / members, count * (i + 1) / members), std::memory_order_relaxed);
  }
  const uint32_t generation = (state_.load(std::memory_order_relaxed) & ~(kGeneration - 1));
  const uint32_t opened = (generation + kGeneration) | kOpen | static_cast<uint32_t>(members);
  state_.store(opened, std::memory_order_seq_cst);
  state_.notify_all();
  run_tasks(0, members);
  state_.store(opened & ~kOpen, std::memory_order_seq_cst);
  for (int i = 1; i < members; ++i) {
    const std::atomic<uint32_t>& inside = shares_[static_cast<size_t>(i)].inside;
    while (inside.load(std::memory_order_seq_cst) != 0) await_change(inside, 1);
  }
  running_.store(false, std::memory_order_release);
}

uint32_t ThreadPool::await_change(const std::atomic<uint32_t>& word, uint32_t seen) const {
  const auto deadline = std::chrono::steady_clock::now() + look_;
  while (true) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now != seen) return now;
      cpu_pause();
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::yield();  // the thread we wait for may need this very core
  }
  word.wait(seen, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

void ThreadPool::worker_loop(int thread) {
  std::atomic<uint32_t>& inside = shares_[static_cast<size_t>(thread)].inside;
  uint32_t state = state_.load(std::memory_order_acquire);
  while (!stopping_.load(std::memory_order_relaxed)) {
    const auto members = static_cast<int>(state & kMembersMask);
    if ((state & kOpen) != 0 && thread < members) {
      inside.store(1, std::memory_order_seq_cst);
      const bool is_in = state_.load(std::memory_order_seq_cst) == state;
      if (is_in) run_tasks(thread, members);
      inside.store(0, std::memory_order_seq_cst);
      inside.notify_one();  // the caller may sleep until the last helper has left
    }
    state = await_change(state_, state);
  }
}

int usable_cores() {
  int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto allowed = static_cast<int>(allowed_cores().size());
  if (allowed > 0) cores = allowed;
  const double quota = process_quota_cores();
  if (quota < static_cast<double>(cores)) cores = std::max(1, static_cast<int>(quota + 0.999));
  return cores;
}

}  // namespace moeflux
