// Device: where memory comes from and work goes to. One object per piece of hardware, no globals.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "tensor/tensor.h"

namespace moeflux {

class Encoder;

enum class MemoryKind {
  kDevice,       // weights, state and scratch
  kHostVisible,  // also written by readers from storage: expert slots, staging
};

/// Thread-safe. Must outlive the buffers and encoders it made.
class Device {
 public:
  virtual ~Device() = default;

  /// The name it is chosen by: "cpu", "reference".
  virtual std::string_view name() const = 0;
  /// What it runs on, for people: "cpu (avx512, 2 threads)".
  virtual std::string_view description() const = 0;
  /// Zero-initialised memory, at least 4096-byte aligned; pages may be touched lazily.
  /// Fails with kResourceExhausted.
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) = 0;
  /// `scratch_bytes` bounds Encoder::scratch(): measured by a dry run on the trace backend.
  virtual Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) = 0;
};

}  // namespace moeflux
