// The part of Metal that moeflux uses, in C++: memory that both processors see, and command
// buffers. All that is Objective-C lies behind it (metal_gpu.mm), all that decides (metal_executor)
// before it, where it is tested without an Apple machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/device.h"
#include "backend/gpu/launch/plan.h"
#include "base/result.h"

namespace moeflux::gpu {

/// One command buffer: work that runs in the order it was recorded in, behind that of every command
/// buffer committed before. Used by one thread at a time. When it was committed it must have
/// finished before it goes; what was not committed never runs.
class MetalCommands {
 public:
  virtual ~MetalCommands() = default;

  /// Copies the plan, whose groups are not none. Fails with kUnsupported when the GPU cannot run
  /// it.
  virtual Status dispatch(const Plan& plan) = 0;
  /// Offsets and `bytes` are multiples of 4.
  virtual void copy(Buffer& to, uint64_t to_offset, const Buffer& from, uint64_t from_offset,
                    uint64_t bytes) = 0;
  /// Hands all of it over. Nothing is recorded after this.
  virtual void commit() = 0;

  /// The rest is for what was committed. Never blocks.
  virtual bool has_finished() = 0;
  /// Blocks until it has run; what went wrong then.
  virtual Status wait() = 0;
};

/// Thread-safe; outlives its buffers and commands.
class MetalGpu {
 public:
  virtual ~MetalGpu() = default;

  /// "Apple M2 Max".
  virtual std::string_view name() const = 0;
  /// Zeroed, page-aligned memory that has host_data().
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;
  /// Where kernels find the first byte of it.
  virtual uint64_t address(const Buffer& buffer) const = 0;
  virtual Result<std::unique_ptr<MetalCommands>> begin() = 0;
};

/// The machine's own GPU, with kernels compiled. Fails as make_metal_device() does.
Result<std::unique_ptr<MetalGpu>> open_metal_gpu();

}  // namespace moeflux::gpu
