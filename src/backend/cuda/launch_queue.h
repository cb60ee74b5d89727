// Launches on their way to a stream. Runs of launches that come again become CUDA graphs: one call
// starts a hundred kernels, and only the parameters that have changed since (positions, lengths,
// tables) are told anew. The launches and their order stay the same. Where the GPU can, a kernel is
// set up while the one before it still runs: await_inputs() in the kernel dialect holds it until
// its inputs are there.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "backend/gpu/kernel_list.h"
#include "backend/gpu/launch/launch_runs.h"
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
  /// Hands over what is kept, and goes on with runs as long as before.
  Status launch_kept(cudaStream_t stream);
  /// Goes on with runs as long as those of `other`, whose work the next ones wait for.
  void begin_behind(const LaunchQueue& other) { runs_.begin_behind(other.runs_); }

 private:
  /// A launch as the runtime wants it described; points into the launch.
  struct Arguments;
  struct Graph {
    std::vector<cudaGraphNode_t> nodes;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
  };
  using Run = LaunchRuns<Graph>::Run;

  Status allow_shared_memory(const Plan& plan);
  Status launch_each(cudaStream_t stream);
  Status launch_run(cudaStream_t stream, Run& run);
  Status instantiate(Run& run);
  Status update(Run& run);
  static void destroy(const Run& run);

  bool use_graphs_;
  bool overlap_;  // kernels wait for their inputs by themselves
  LaunchRuns<Graph> runs_;
  std::array<uint32_t, kKernels.size()> allowed_shared_bytes_;  // by kernel
};

}  // namespace moeflux::gpu
