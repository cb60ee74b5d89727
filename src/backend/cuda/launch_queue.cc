#include "backend/cuda/launch_queue.h"

#include <string>

#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/kernel_table.h"

namespace moeflux::gpu {
namespace {

// When a launch may be set up: behind the end of the one before, once that one has its inputs, or
// once all its groups have begun.
enum class SetUp { kBehind, kBehindInputs, kBehindBegin };

// A launch of one group leaves the GPU to the next one, which may fetch its weights while that one
// group waits: 3 % of a token of a slice of DeepSeek-V3 on an H200. Behind launches of many groups
// the next one takes their place: a token of a 35B model took 11 % longer.
SetUp set_up_of(const Extent3& groups_before, KernelId kernel) {
  const bool is_one = groups_before.x * groups_before.y * groups_before.z == 1;
  return is_one && !reads_early(kernel) ? SetUp::kBehindBegin : SetUp::kBehindInputs;
}

cudaError_t add_edge(cudaGraph_t graph, const cudaGraphNode_t& from, const cudaGraphNode_t& to,
                     SetUp set_up) {
  cudaGraphEdgeData edge{};
  if (set_up != SetUp::kBehind) {
    edge.type = cudaGraphDependencyTypeProgrammatic;
    edge.from_port = set_up == SetUp::kBehindBegin ? cudaGraphKernelNodePortLaunchCompletion
                                                   : cudaGraphKernelNodePortProgrammatic;
  }
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, &from, &to, &edge, 1);
#else
  return cudaGraphAddDependencies_v2(graph, &from, &to, &edge, 1);
#endif
}

}  // namespace

struct LaunchQueue::Arguments {
  explicit Arguments(Launch& launch) {
    list[0] = launch.params.data();
    for (uint32_t i = 0; i < launch.num_pointers; ++i) list[i + 1] = &launch.pointers[i];
    node.func = const_cast<void*>(cuda_kernel(launch.kernel));
    node.gridDim = dim3(launch.groups.x, launch.groups.y, launch.groups.z);
    node.blockDim = dim3(launch.threads);
    node.sharedMemBytes = launch.shared_bytes;
    node.kernelParams = list.data();
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::array<void*, Plan::kBindingsMax + 1> list{};
  cudaKernelNodeParams node{};
};

LaunchQueue::~LaunchQueue() { runs_.clear(destroy); }

// A graph in flight is freed when it has ended.
void LaunchQueue::destroy(const Run& run) {
  if (!run.graph) return;
  if (run.graph->executable != nullptr) (void)cudaGraphExecDestroy(run.graph->executable);
  if (run.graph->graph != nullptr) (void)cudaGraphDestroy(run.graph->graph);
}

// Kernels get more than 48 KiB of shared memory only if they say so beforehand.
Status LaunchQueue::allow_shared_memory(const Plan& plan) {
  uint32_t& allowed = allowed_shared_bytes_[static_cast<size_t>(plan.kernel)];
  if (plan.shared_bytes <= allowed) return {};
  MF_RETURN_IF_ERROR(cuda_status(
      cudaFuncSetAttribute(cuda_kernel(plan.kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(plan.shared_bytes)),
      "cudaFuncSetAttribute"));
  allowed = plan.shared_bytes;
  return {};
}

Status LaunchQueue::record(cudaStream_t stream, const Plan& plan) {
  if (plan.groups.x == 0 || plan.groups.y == 0 || plan.groups.z == 0) return {};
  const KernelInfo& info = kernel_info(plan.kernel);
  MF_CHECK(plan.num_bindings == info.bindings && plan.params_bytes == info.params_bytes);
  MF_RETURN_IF_ERROR(allow_shared_memory(plan));
  const bool is_full =
      runs_.keep(launch_of(plan, [](const Buffer& buffer) { return cuda_address(buffer); }));
  return is_full || !use_graphs_ ? launch_kept(stream) : Status();
}

Status LaunchQueue::launch_each(cudaStream_t stream) {
  bool is_first = true;  // the work before it may not be a kernel
  for (Launch& launch : runs_.kept()) {
    const Arguments arguments(launch);
    const cudaKernelNodeParams& node = arguments.node;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = node.gridDim;
    config.blockDim = node.blockDim;
    config.dynamicSmemBytes = node.sharedMemBytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap_ && !is_first ? 1 : 0;
    is_first = false;
    const cudaError_t code = cudaLaunchKernelExC(&config, node.func, node.kernelParams);
    if (code == cudaSuccess) continue;
    return cuda_status(code,
                       "cudaLaunchKernelExC of " + std::string(kernel_info(launch.kernel).name));
  }
  return {};
}

Status LaunchQueue::instantiate(Run& run) {
  Graph& own = run.graph.emplace();
  MF_RETURN_IF_ERROR(cuda_status(cudaGraphCreate(&own.graph, 0), "cudaGraphCreate"));
  for (Launch& launch : run.launches) {
    const Arguments arguments(launch);
    cudaGraphNode_t node = nullptr;
    MF_RETURN_IF_ERROR(
        cuda_status(cudaGraphAddKernelNode(&node, own.graph, nullptr, 0, &arguments.node),
                    "cudaGraphAddKernelNode"));
    if (!own.nodes.empty()) {
      const Launch& before = run.launches[own.nodes.size() - 1];
      const SetUp set_up = overlap_ ? set_up_of(before.groups, launch.kernel) : SetUp::kBehind;
      MF_RETURN_IF_ERROR(cuda_status(add_edge(own.graph, own.nodes.back(), node, set_up),
                                     "cudaGraphAddDependencies"));
    }
    own.nodes.push_back(node);
  }
  return cuda_status(cudaGraphInstantiate(&own.executable, own.graph, 0), "cudaGraphInstantiate");
}

Status LaunchQueue::update(Run& run) {
  Status status;
  runs_.update(run, [&](size_t i) {
    if (!run.graph || !status.ok()) return;
    const Arguments arguments(run.launches[i]);
    status = cuda_status(cudaGraphExecKernelNodeSetParams(run.graph->executable,
                                                          run.graph->nodes[i], &arguments.node),
                         "cudaGraphExecKernelNodeSetParams");
  });
  return status;
}

Status LaunchQueue::flush(cudaStream_t stream) {
  runs_.begin();
  return launch_kept(stream);
}

Status LaunchQueue::launch_run(cudaStream_t stream, Run& run) {
  MF_RETURN_IF_ERROR(update(run));
  if (!run.graph) MF_RETURN_IF_ERROR(instantiate(run));
  return cuda_status(cudaGraphLaunch(run.graph->executable, stream), "cudaGraphLaunch");
}

Status LaunchQueue::launch_kept(cudaStream_t stream) {
  if (runs_.kept().empty()) return {};
  Status status;
  if (Run* const run = use_graphs_ ? runs_.find() : nullptr; run != nullptr) {
    status = launch_run(stream, *run);
  } else {
    status = launch_each(stream);
    if (use_graphs_) runs_.add(destroy);
  }
  runs_.kept().clear();
  return status;
}

}  // namespace moeflux::gpu
