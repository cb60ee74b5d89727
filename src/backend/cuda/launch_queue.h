// Launches on their way to a stream. Runs of launches that come again, as every decoded token's do,
// become CUDA graphs: one call starts a hundred kernels, and only the parameters that have changed
// since (positions, lengths) are told anew. The launches and their order stay the same. Where the
// GPU can, a kernel is set up while the one before it still runs: await_inputs() in the kernel
// dialect holds it until its inputs are there.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/gpu/kernel_list.h"
#include "backend/gpu/launch/plan.h"
#include "base/result.h"

namespace moeflux::gpu {

/// Thread-compatible. The stream must outlive the queue and be idle when it goes.
class LaunchQueue {
 public:
  LaunchQueue(bool use_graphs, bool overlap) : use_graphs_(use_graphs), overlap_(overlap) {
    allowed_shared_bytes_.fill(48 * 1024);
  }
  ~LaunchQueue();
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  /// Keeps the launch, or hands a full run of them to the stream.
  Status record(cudaStream_t stream, const Plan& plan);
  /// Hands over what is kept, and begins with a short run again.
  Status flush(cudaStream_t stream);

 private:
  /// The first run of a step is short, so that the GPU has work while the host prepares the rest.
  /// Every further one is twice as long: a host takes 1.3 to 2.3 us for a launch of a decoded
  /// token, where an H200 takes 5.
  static constexpr size_t kFirstRunLength = 8;
  static constexpr size_t kRunGrowth = 2;

  /// A plan whose buffers are device addresses.
  struct Launch {
    KernelId kernel{};
    uint32_t num_pointers = 0;
    uint32_t group_size = 0;
    uint32_t shared_bytes = 0;
    Extent3 groups;
    uint32_t params_bytes = 0;
    alignas(8) std::array<std::byte, Plan::kParamsBytesMax> params{};
    std::array<void*, Plan::kBindingsMax> pointers{};
  };
  /// A launch as the runtime wants it described; points into the launch.
  struct Arguments;
  /// A run of launches that has been seen before, and its graph from the second time on.
  struct Run {
    std::vector<Launch> launches;
    std::vector<cudaGraphNode_t> nodes;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
  };

  static bool share_structure(const Launch& a, const Launch& b);
  static bool share_parameters(const Launch& a, const Launch& b);
  uint64_t structure_hash() const;
  Status allow_shared_memory(const Plan& plan);
  Status launch_kept(cudaStream_t stream);
  Status launch_each(cudaStream_t stream);
  Status instantiate(Run& run);
  Status update(Run& run);
  void clear_runs();

  bool use_graphs_;
  bool overlap_;                         // kernels wait for their inputs by themselves
  size_t run_length_ = kFirstRunLength;  // launches kept before they are handed over
  size_t launches_ = 0;                  // in runs_
  std::vector<Launch> kept_;
  std::array<uint32_t, kKernels.size()> allowed_shared_bytes_;  // by kernel
  std::unordered_map<uint64_t, Run> runs_;                      // by structure_hash()
};

}  // namespace moeflux::gpu
