#include "backend/cuda/launch_queue.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/kernel_table.h"

namespace moeflux::gpu {
namespace {

// A decoded token has hundreds of launches, and the GPU stands still between two graphs.
constexpr size_t kRunLengthMax = 1024;
constexpr size_t kRunsMax = 512;
constexpr size_t kLaunchesMax = 65536;  // in all runs; some forty megabytes

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
    node.blockDim = dim3(launch.group_size);
    node.sharedMemBytes = launch.shared_bytes;
    node.kernelParams = list.data();
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::array<void*, Plan::kBindingsMax + 1> list{};
  cudaKernelNodeParams node{};
};

LaunchQueue::~LaunchQueue() { clear_runs(); }

void LaunchQueue::clear_runs() {
  for (auto& [hash, run] : runs_) {
    if (run.executable != nullptr) (void)cudaGraphExecDestroy(run.executable);
    if (run.graph != nullptr) (void)cudaGraphDestroy(run.graph);
  }
  runs_.clear();
  launches_ = 0;
}

bool LaunchQueue::share_structure(const Launch& a, const Launch& b) {
  return a.kernel == b.kernel && a.group_size == b.group_size && a.shared_bytes == b.shared_bytes &&
         a.pointers == b.pointers;
}

bool LaunchQueue::share_parameters(const Launch& a, const Launch& b) {
  return a.groups.x == b.groups.x && a.groups.y == b.groups.y && a.groups.z == b.groups.z &&
         std::memcmp(a.params.data(), b.params.data(), a.params_bytes) == 0;
}

uint64_t LaunchQueue::structure_hash() const {
  uint64_t hash = kept_.size();
  const auto add = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  for (const Launch& launch : kept_) {
    add(static_cast<uint64_t>(launch.kernel) | uint64_t{launch.shared_bytes} << 16);
    for (uint32_t i = 0; i < launch.num_pointers; ++i) {
      add(reinterpret_cast<uintptr_t>(launch.pointers[i]));
    }
  }
  return hash;
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
  Launch& launch = kept_.emplace_back();
  launch.kernel = plan.kernel;
  launch.num_pointers = plan.num_bindings;
  launch.group_size = plan.group_size;
  launch.shared_bytes = plan.shared_bytes;
  launch.groups = plan.groups;
  launch.params_bytes = plan.params_bytes;
  std::memcpy(launch.params.data(), plan.params.data(), plan.params_bytes);
  for (uint32_t i = 0; i < plan.num_bindings; ++i) {
    const Binding& binding = plan.bindings[i];
    if (binding.buffer == nullptr) continue;
    MF_CHECK(binding.offset_bytes + binding.size_bytes <= binding.buffer->size_bytes());
    launch.pointers[i] = cuda_address(*binding.buffer) + binding.offset_bytes;
  }
  if (kept_.size() < run_length_ && use_graphs_) return {};
  run_length_ = std::min(run_length_ * kRunGrowth, kRunLengthMax);
  return launch_kept(stream);
}

Status LaunchQueue::launch_each(cudaStream_t stream) {
  bool is_first = true;  // the work before it may not be a kernel
  for (Launch& launch : kept_) {
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
  MF_RETURN_IF_ERROR(cuda_status(cudaGraphCreate(&run.graph, 0), "cudaGraphCreate"));
  for (Launch& launch : run.launches) {
    const Arguments arguments(launch);
    cudaGraphNode_t node = nullptr;
    MF_RETURN_IF_ERROR(
        cuda_status(cudaGraphAddKernelNode(&node, run.graph, nullptr, 0, &arguments.node),
                    "cudaGraphAddKernelNode"));
    if (!run.nodes.empty()) {
      const Launch& before = run.launches[run.nodes.size() - 1];
      const SetUp set_up = overlap_ ? set_up_of(before.groups, launch.kernel) : SetUp::kBehind;
      MF_RETURN_IF_ERROR(cuda_status(add_edge(run.graph, run.nodes.back(), node, set_up),
                                     "cudaGraphAddDependencies"));
    }
    run.nodes.push_back(node);
  }
  return cuda_status(cudaGraphInstantiate(&run.executable, run.graph, 0), "cudaGraphInstantiate");
}

Status LaunchQueue::update(Run& run) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (share_parameters(run.launches[i], kept_[i])) continue;
    run.launches[i] = kept_[i];
    if (run.executable == nullptr) continue;
    const Arguments arguments(run.launches[i]);
    MF_RETURN_IF_ERROR(
        cuda_status(cudaGraphExecKernelNodeSetParams(run.executable, run.nodes[i], &arguments.node),
                    "cudaGraphExecKernelNodeSetParams"));
  }
  return {};
}

Status LaunchQueue::flush(cudaStream_t stream) {
  run_length_ = kFirstRunLength;
  return launch_kept(stream);
}

Status LaunchQueue::launch_kept(cudaStream_t stream) {
  if (kept_.empty()) return {};
  Status status;
  const auto found = use_graphs_ ? runs_.find(structure_hash()) : runs_.end();
  if (found == runs_.end()) {
    status = launch_each(stream);
    if (use_graphs_ && (runs_.size() >= kRunsMax || launches_ >= kLaunchesMax)) {
      if (status.ok()) status = cuda_status(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      clear_runs();
    }
    if (use_graphs_) {
      runs_[structure_hash()].launches = kept_;
      launches_ += kept_.size();
    }
  } else if (Run& run = found->second;
             run.launches.size() != kept_.size() ||
             !std::equal(kept_.begin(), kept_.end(), run.launches.begin(), share_structure)) {
    status = launch_each(stream);  // two structures of one hash
  } else {
    status = update(run);
    if (status.ok() && run.executable == nullptr) status = instantiate(run);
    if (status.ok()) {
      status = cuda_status(cudaGraphLaunch(run.executable, stream), "cudaGraphLaunch");
    }
  }
  kept_.clear();
  return status;
}

}  // namespace moeflux::gpu
