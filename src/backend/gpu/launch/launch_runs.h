// Runs of launches that come again from step to step, as every decoded token's do: a runtime
// records each of them once, as a graph, and tells it later only what has changed. Knows no
// runtime.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backend/gpu/kernel_list.h"
#include "backend/gpu/launch/plan.h"

namespace moeflux::gpu {

/// A plan whose buffers are device addresses.
struct Launch {
  KernelId kernel{};
  uint32_t num_pointers = 0;
  uint32_t moving = 0;   // a bit for each pointer that Binding::moves
  uint32_t threads = 0;  // of a group
  uint32_t shared_bytes = 0;
  Extent3 groups;
  uint32_t params_bytes = 0;
  alignas(8) std::array<std::byte, Plan::kParamsBytesMax> params{};
  std::array<void*, Plan::kBindingsMax> pointers{};
};

/// `address_of` gives where a buffer begins.
template <typename AddressOf>
Launch launch_of(const Plan& plan, const AddressOf& address_of) {
  Launch launch;
  launch.kernel = plan.kernel;
  launch.num_pointers = plan.num_bindings;
  launch.threads = plan.group_size;
  launch.shared_bytes = plan.shared_bytes;
  launch.groups = plan.groups;
  launch.params_bytes = plan.params_bytes;
  std::memcpy(launch.params.data(), plan.params.data(), plan.params_bytes);
  for (uint32_t i = 0; i < plan.num_bindings; ++i) {
    const Binding& binding = plan.bindings[i];
    if (binding.moves) launch.moving |= uint32_t{1} << i;
    if (binding.buffer == nullptr) continue;
    MF_CHECK(binding.offset_bytes + binding.size_bytes <= binding.buffer->size_bytes());
    launch.pointers[i] = address_of(*binding.buffer) + binding.offset_bytes;
  }
  return launch;
}

/// Whether one can become the other in a graph: the same kernel, the same groups but for their
/// number.
bool share_kernel(const Launch& a, const Launch& b);
/// Whether it is likely to be the same one of another step: what does not move lies where it did.
bool share_structure(const Launch& a, const Launch& b);
/// Whether nothing has to be told anew.
bool share_parameters(const Launch& a, const Launch& b);
/// A hash of kernels and sizes of groups.
uint64_t kernels_hash(const std::vector<Launch>& launches);

/// Thread-compatible. A Graph is what the runtime has recorded of a run.
template <typename Graph>
class LaunchRuns {
 public:
  struct Run {
    std::vector<Launch> launches;
    std::optional<Graph> graph;  // from the second time on
    uint64_t last_use = 0;
  };

  /// True once the kept launches are a whole run.
  bool keep(const Launch& launch) {
    kept_.push_back(launch);
    if (kept_.size() < run_length_) return false;
    run_length_ = std::min(run_length_ * kRunGrowth, kRunLengthMax);
    return true;
  }
  std::vector<Launch>& kept() { return kept_; }
  /// The next run is the first one after a pause.
  void begin() { run_length_ = kFirstRunLength; }
  /// The same behind the work of another device: as much was recorded there meanwhile as the last
  /// of its runs says, and this device would wait for longer than a run of that length takes.
  void begin_behind(const LaunchRuns& other) { run_length_ = other.run_length_; }

  /// The run that the kept launches are, or become by new parameters: one of their structure, or
  /// of their kernels, where there are many already. Null if they have to be launched one by one.
  Run* find() {
    const auto found = runs_.find(kernels_hash(kept_));
    if (found == runs_.end()) return nullptr;
    Run* oldest = nullptr;
    for (const std::unique_ptr<Run>& run : found->second) {
      if (!fits(*run, share_kernel)) return nullptr;  // two of one hash
      if (fits(*run, share_structure)) return use(*run);
      if (oldest == nullptr || run->last_use < oldest->last_use) oldest = run.get();
    }
    return found->second.size() < alike_max() ? nullptr : use(*oldest);
  }
  /// Calls changed(i) for launches of the run whose parameters were others, which it then has.
  template <typename Changed>
  void update(Run& run, const Changed& changed) {
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (share_parameters(run.launches[i], kept_[i])) continue;
      run.launches[i] = kept_[i];
      changed(i);
    }
  }
  /// The kept launches as a run that find() may find. Forgets those that were used longest ago
  /// where there are many; visit(run) comes before. The runtime may still work on such a run.
  template <typename Visit>
  void add(const Visit& visit) {
    while (count_ > 0 && (count_ >= kRunsMax || launches_ + kept_.size() > kLaunchesMax)) {
      forget_oldest(visit);
    }
    auto& alike = runs_[kernels_hash(kept_)];
    if (!alike.empty() && !fits(*alike.front(), share_kernel)) return;
    alike.push_back(std::make_unique<Run>());
    alike.back()->launches = kept_;
    use(*alike.back());
    launches_ += kept_.size();
    ++count_;
  }
  /// Forgets all runs; visit(run) comes before.
  template <typename Visit>
  void clear(const Visit& visit) {
    for (auto& [hash, alike] : runs_) {
      for (const std::unique_ptr<Run>& run : alike) visit(*run);
    }
    runs_.clear();
    count_ = launches_ = 0;
  }

 private:
  /// The first run of a step is short, so that the GPU has work while the host prepares the rest.
  /// Every further one is twice as long: a host takes 1.3 to 2.3 us for a launch of a decoded
  /// token, where an H200 takes 5.
  static constexpr size_t kFirstRunLength = 8;
  static constexpr size_t kRunGrowth = 2;
  /// A decoded token has hundreds of launches, and the GPU stands still between two graphs.
  static constexpr size_t kRunLengthMax = 1024;
  static constexpr size_t kRunsMax = 512;
  static constexpr size_t kLaunchesMax = 65536;  // in all runs; some forty megabytes
  /// Runs of the same kernels: of the layers of a model whose routes the host reads, and of steps
  /// of different numbers of tokens. Further ones are new parameters of the oldest, so those of
  /// long runs are few. An H200's host takes 0.5 us to tell a launch of a graph new parameters,
  /// while the runs before compute. Recording one takes 3 us, for which the GPU waits: 3 to 5 ms of
  /// a step of 4 to 7 ms. Texts with drafts have steps of up to 65 numbers of tokens.
  static constexpr size_t kAlikeMax = 64;
  static constexpr size_t kAlikeLaunchesMax = 1024;

  template <typename Share>
  bool fits(const Run& run, const Share& share) const {
    return run.launches.size() == kept_.size() &&
           std::equal(kept_.begin(), kept_.end(), run.launches.begin(), share);
  }
  size_t alike_max() const {
    return std::clamp<size_t>(kAlikeLaunchesMax / kept_.size(), 1, kAlikeMax);
  }
  template <typename Visit>
  void forget_oldest(const Visit& visit) {
    auto of = runs_.begin();
    size_t at = 0;
    uint64_t last_use = uses_ + 1;
    for (auto i = runs_.begin(); i != runs_.end(); ++i) {
      for (size_t j = 0; j < i->second.size(); ++j) {
        if (i->second[j]->last_use >= last_use) continue;
        last_use = i->second[j]->last_use;
        of = i;
        at = j;
      }
    }
    const auto oldest = of->second.begin() + static_cast<ptrdiff_t>(at);
    visit(**oldest);
    launches_ -= (*oldest)->launches.size();
    --count_;
    of->second.erase(oldest);
    if (of->second.empty()) runs_.erase(of);
  }
  Run* use(Run& run) {
    run.last_use = ++uses_;
    return &run;
  }

  size_t run_length_ = kFirstRunLength;
  std::vector<Launch> kept_;
  std::unordered_map<uint64_t, std::vector<std::unique_ptr<Run>>> runs_;  // by kernels_hash()
  size_t count_ = 0;
  size_t launches_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace moeflux::gpu
