// The interface of a GPU vendor's runtime: memory, and an in-order queue of plans and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "backend/device.h"
#include "backend/events.h"
#include "backend/gpu/launch/plan.h"
#include "base/format.h"
#include "base/result.h"

namespace moeflux::gpu {

/// One in-order queue. Everything recorded runs as if one after another; nothing needs to have run
/// before submit(). Errors stick and surface in read() and wait(). Used by one thread at a time.
class Executor {
 public:
  /// Waits for submitted work. Unsubmitted work may be dropped.
  virtual ~Executor() = default;

  /// Copies the plan; buffers must live until the work has finished.
  virtual void record(const Plan& plan) = 0;
  /// Copies `from` before it returns; the bytes arrive in order with the plans around them.
  virtual void write(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) = 0;
  /// The same for a place that no plan which was recorded since the last write() or submit() uses:
  /// the bytes may arrive before these plans run, so that they stay together.
  virtual void write_ahead(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) {
    write(to, offset_bytes, from);
  }
  /// Submits, waits for all of it, then copies out.
  virtual Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) = 0;

  /// As Encoder::take(), of an executor of the same kind of platform.
  virtual void take(Buffer& /*to*/, uint64_t /*to_offset*/, Executor& /*other*/,
                    const Buffer& /*from*/, uint64_t /*from_offset*/, size_t /*bytes*/) {
    MF_CHECK(false);
  }

  /// As Encoder::await(), the same.
  virtual void await(Executor& /*other*/) { MF_CHECK(false); }

  // As Encoder's, where Platform::copies_beside(); elsewhere nobody asks.
  virtual CopyId copy_beside(std::span<const BufferCopy> /*copies*/, EventId /*after*/) {
    MF_CHECK(false);
    return {};
  }
  virtual void await_copies(CopyId /*last*/) { MF_CHECK(false); }
  virtual bool has_copied(CopyId /*last*/) { return true; }

  /// Hands over what was recorded. Events count up from 1.
  virtual EventId submit() = 0;
  /// True once the work before the event has finished. Never blocks.
  virtual bool has_passed(EventId event) = 0;
  /// Blocks until the event has passed; returns the sticky error.
  virtual Status wait(EventId event) = 0;
};

/// A piece of hardware. Thread-safe; outlives its buffers and executors.
class Platform {
 public:
  virtual ~Platform() = default;

  /// The name a device is chosen by: "cuda:0", "metal", "emulator".
  virtual std::string_view name() const = 0;
  virtual std::string_view description() const = 0;
  /// As Device::bits_key().
  virtual std::string_view bits_key() const { return description(); }
  /// Zeroed, at least 256-byte aligned, reachable from kernels through its address.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) = 0;
  /// The buffer's address as kernels see it.
  virtual uint64_t device_address(const Buffer& buffer) const = 0;
  virtual Result<std::unique_ptr<Executor>> create_executor() = 0;
  /// True where products of 4- and 8-bit matrices are better left to matrix units.
  virtual bool has_matrix_units() const { return false; }
  /// True where four SIMD groups multiply f16 faster together (dialect/team_halves.h).
  virtual bool multiplies_in_teams() const { return false; }
  /// True when executors copy beside recorded work.
  virtual bool copies_beside() const { return false; }
  /// Shared memory of a group of a kernel for matrix units, and how many groups run at once if each
  /// takes as much as it can.
  virtual uint32_t shared_bytes_max() const { return kSharedBytesMax; }
  virtual uint32_t cores() const { return 1; }
  /// Bytes of shared workspace that one op may use; an op that needs more proceeds piece by piece.
  virtual uint64_t workspace_bytes_max() const { return uint64_t{64} << 20; }
  /// Device::upload() and Device::free_bytes(); the defaults are for memory of the host.
  virtual Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) {
    MF_CHECK(to.host_data() != nullptr && offset_bytes + from.size() <= to.size_bytes());
    if (!from.empty()) std::memcpy(to.host_data() + offset_bytes, from.data(), from.size());
    return {};
  }
  virtual std::optional<uint64_t> free_bytes() const { return std::nullopt; }
  /// As Device's. `other` is a platform of the same kind.
  virtual Status reach(const Platform& other) {
    return make_error(ErrorCode::kUnsupported, "device {} does not reach the memory of {}", name(),
                      other.name());
  }
  virtual double memory_bytes_per_second() const { return 0.0; }
};

}  // namespace moeflux::gpu
