// Metal behind metal_gpu.h. Memory is the host's own pages, which buffers are made of without a
// copy; kernels reach all of it, as they follow addresses that lie in tables.
#include "backend/metal/metal_gpu.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/host_buffer.h"
#include "backend/metal/metal_text.h"
#include "base/check.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr NSUInteger kParamsIndex = 30;  // as dialect/metal.h has it

std::string text_of(NSError* error) {
  if (error == nil) return "no reason given";
  return [[error localizedDescription] UTF8String];
}

/// All buffers that are alive, for every encoder to make reachable.
class Residents {
 public:
  void add(id<MTLBuffer> buffer) {
    const std::scoped_lock lock(mutex_);
    buffers_.push_back(buffer);
    ++version_;
  }
  void remove(id<MTLBuffer> buffer) {
    const std::scoped_lock lock(mutex_);
    buffers_.erase(std::find(buffers_.begin(), buffers_.end(), buffer));
  }
  /// Tells `encoder` of all, if there are others since `version`; returns the version told of.
  uint64_t use(id<MTLComputeCommandEncoder> encoder, uint64_t version) {
    const std::scoped_lock lock(mutex_);
    if (version != version_) {
      [encoder useResources:buffers_.data()
                      count:buffers_.size()
                      usage:MTLResourceUsageRead | MTLResourceUsageWrite];
    }
    return version_;
  }

 private:
  std::mutex mutex_;
  std::vector<id<MTLResource>> buffers_;
  uint64_t version_ = 0;  // counts buffers that came
};

class AppleBuffer : public Buffer {
 public:
  AppleBuffer(Residents& residents, std::unique_ptr<Buffer> pages, id<MTLBuffer> metal,
              size_t bytes)
      : residents_(residents), pages_(std::move(pages)), metal_(metal), bytes_(bytes) {
    residents_.add(metal_);
  }
  ~AppleBuffer() override { residents_.remove(metal_); }

  size_t size_bytes() const override { return bytes_; }
  std::byte* host_data() const override { return pages_->host_data(); }
  id<MTLBuffer> metal() const { return metal_; }

 private:
  Residents& residents_;
  std::unique_ptr<Buffer> pages_;  // outlives metal_, which lies in it
  id<MTLBuffer> metal_;
  size_t bytes_;
};

id<MTLBuffer> metal_of(const Buffer& buffer) {
  return static_cast<const AppleBuffer&>(buffer).metal();
}

/// Kernels as the GPU runs them, each made when it is first needed.
class Pipelines {
 public:
  Status compile(id<MTLDevice> device) {
    device_ = device;
    const std::string text = metal_text();
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.fastMathEnabled = NO;
    options.languageVersion = MTLLanguageVersion3_0;
    NSError* error = nil;
    library_ = [device newLibraryWithSource:[NSString stringWithUTF8String:text.c_str()]
                                    options:options
                                      error:&error];
    if (library_ == nil) {
      return make_error(ErrorCode::kUnsupported, "metal: kernels do not compile: {}",
                        text_of(error));
    }
    // Compilers differ in whether a function is listed with its namespaces.
    for (NSString* listed in [library_ functionNames]) {
      const std::string name = [listed UTF8String];
      const size_t colons = name.rfind("::");
      functions_[colons == std::string::npos ? name : name.substr(colons + 2)] = name;
    }
    return {};
  }

  /// For groups of `group_size` threads, for which the compiler makes registers do.
  Result<id<MTLComputePipelineState>> get(KernelId kernel, uint32_t group_size) {
    const std::scoped_lock lock(mutex_);
    const auto found = made_.find({kernel, group_size});
    if (found != made_.end()) return found->second;
    const std::string name(kernel_info(kernel).name);
    const auto function = functions_.find(name);
    if (function == functions_.end()) {
      return make_error(ErrorCode::kUnsupported, "metal: no kernel {} among {} compiled", name,
                        functions_.size());
    }
    MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
    descriptor.computeFunction = [library_
        newFunctionWithName:[NSString stringWithUTF8String:function->second.c_str()]];
    descriptor.maxTotalThreadsPerThreadgroup = group_size;
    descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth = YES;
    NSError* error = nil;
    id<MTLComputePipelineState> made =
        [device_ newComputePipelineStateWithDescriptor:descriptor
                                               options:MTLPipelineOptionNone
                                            reflection:nil
                                                 error:&error];
    if (made == nil) {
      return make_error(ErrorCode::kUnsupported, "metal: kernel {} in groups of {} threads: {}",
                        name, group_size, text_of(error));
    }
    if (made.threadExecutionWidth != kSimdLanes) {
      return make_error(ErrorCode::kUnsupported,
                        "metal: SIMD groups of {} threads in kernel {}, expected {}",
                        made.threadExecutionWidth, name, kSimdLanes);
    }
    made_[{kernel, group_size}] = made;
    return made;
  }

 private:
  id<MTLDevice> device_;
  id<MTLLibrary> library_;
  std::map<std::string, std::string> functions_;  // by name without namespaces
  std::mutex mutex_;
  std::map<std::pair<KernelId, uint32_t>, id<MTLComputePipelineState>> made_;
};

class AppleCommands : public MetalCommands {
 public:
  AppleCommands(Residents& residents, Pipelines& pipelines, id<MTLCommandBuffer> commands)
      : residents_(residents), pipelines_(pipelines), commands_(commands) {}

  ~AppleCommands() override { end_encoding(); }

  Status dispatch(const Plan& plan) override {
    @autoreleasepool {
      MF_ASSIGN_OR_RETURN(id<MTLComputePipelineState> pipeline,
                          pipelines_.get(plan.kernel, plan.group_size));
      if (compute_ == nil) {
        end_encoding();
        compute_ = [commands_ computeCommandEncoder];
        used_ = 0;
      }
      used_ = residents_.use(compute_, used_);
      [compute_ setComputePipelineState:pipeline];
      for (uint32_t i = 0; i < plan.num_bindings; ++i) {
        const Binding& binding = plan.bindings[i];
        [compute_ setBuffer:binding.buffer == nullptr ? nil : metal_of(*binding.buffer)
                     offset:binding.offset_bytes
                    atIndex:i];
      }
      [compute_ setBytes:plan.params.data() length:plan.params_bytes atIndex:kParamsIndex];
      constexpr uint32_t kUnit = 16;  // of its length
      [compute_ setThreadgroupMemoryLength:round_up(std::max(plan.shared_bytes, kUnit), kUnit)
                                   atIndex:0];
      [compute_ dispatchThreadgroups:MTLSizeMake(plan.groups.x, plan.groups.y, plan.groups.z)
               threadsPerThreadgroup:MTLSizeMake(plan.group_size, 1, 1)];
    }
    return {};
  }

  void copy(Buffer& to, uint64_t to_offset, const Buffer& from, uint64_t from_offset,
            uint64_t bytes) override {
    @autoreleasepool {
      if (blit_ == nil) {
        end_encoding();
        blit_ = [commands_ blitCommandEncoder];
      }
      [blit_ copyFromBuffer:metal_of(from)
               sourceOffset:from_offset
                   toBuffer:metal_of(to)
          destinationOffset:to_offset
                       size:bytes];
    }
  }

  void commit() override {
    end_encoding();
    [commands_ commit];
  }

  bool has_finished() override { return commands_.status >= MTLCommandBufferStatusCompleted; }

  Status wait() override {
    @autoreleasepool {
      [commands_ waitUntilCompleted];
      if (commands_.status != MTLCommandBufferStatusError) return {};
      return make_error(ErrorCode::kIo, "metal: a command buffer failed: {}",
                        text_of(commands_.error));
    }
  }

 private:
  void end_encoding() {
    [compute_ endEncoding];
    [blit_ endEncoding];
    compute_ = nil;
    blit_ = nil;
  }

  Residents& residents_;
  Pipelines& pipelines_;
  id<MTLCommandBuffer> commands_;
  id<MTLComputeCommandEncoder> compute_;  // at most one of the two is open
  id<MTLBlitCommandEncoder> blit_;
  uint64_t used_ = 0;  // version of residents that compute_ was told of
};

class AppleGpu : public MetalGpu {
 public:
  AppleGpu(id<MTLDevice> device, id<MTLCommandQueue> queue)
      : device_(device), queue_(queue), name_([[device name] UTF8String]) {}

  Status compile() { return pipelines_.compile(device_); }

  std::string_view name() const override { return name_; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    @autoreleasepool {
      MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> pages, allocate_host_buffer(bytes));
      const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      const size_t length = round_up(pages->size_bytes(), page);
      id<MTLBuffer> metal = nil;
      if (length <= device_.maxBufferLength) {
        metal = [device_ newBufferWithBytesNoCopy:pages->host_data()
                                           length:length
                                          options:MTLResourceStorageModeShared
                                      deallocator:nil];
      }
      if (metal == nil) {
        return make_error(ErrorCode::kResourceExhausted,
                          "metal: cannot make a buffer of {} (the GPU takes at most {})",
                          format_bytes(bytes), format_bytes(device_.maxBufferLength));
      }
      return std::unique_ptr<Buffer>(
          std::make_unique<AppleBuffer>(residents_, std::move(pages), metal, bytes));
    }
  }

  uint64_t address(const Buffer& buffer) const override { return metal_of(buffer).gpuAddress; }

  Result<std::unique_ptr<MetalCommands>> begin() override {
    @autoreleasepool {
      id<MTLCommandBuffer> commands = [queue_ commandBuffer];
      if (commands == nil) {
        return make_error(ErrorCode::kResourceExhausted, "metal: no command buffer to be had");
      }
      return std::unique_ptr<MetalCommands>(
          std::make_unique<AppleCommands>(residents_, pipelines_, commands));
    }
  }

 private:
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  std::string name_;
  Residents residents_;
  Pipelines pipelines_;
};

}  // namespace

Result<std::unique_ptr<MetalGpu>> open_metal_gpu() {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil) return make_error(ErrorCode::kNotFound, "metal: this machine has no GPU");
    // Addresses of buffers, and SIMD groups of 32 over memory that both processors see.
    if (![device supportsFamily:MTLGPUFamilyMetal3] ||
        ![device supportsFamily:MTLGPUFamilyApple7]) {
      return make_error(ErrorCode::kUnsupported,
                        "metal: {} lacks Metal 3 on Apple silicon (M1 and macOS 13 or newer)",
                        [[device name] UTF8String]);
    }
    id<MTLCommandQueue> queue = [device newCommandQueue];
    if (queue == nil) return make_error(ErrorCode::kResourceExhausted, "metal: no command queue");
    auto gpu = std::make_unique<AppleGpu>(device, queue);
    MF_RETURN_IF_ERROR(gpu->compile());
    return std::unique_ptr<MetalGpu>(std::move(gpu));
  }
}

}  // namespace moeflux::gpu
