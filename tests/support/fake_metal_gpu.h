// A GPU that takes Metal's commands and runs them on the emulator, as late as it may: what the
// Metal executor decides shows without an Apple machine.
#pragma once

#include <memory>

#include "backend/gpu/emulator/emulator.h"
#include "backend/metal/metal_gpu.h"

namespace moeflux::testing {

/// Requests to the GPU, for tests to look at; outlives it.
struct FakeMetalLog {
  int commits = 0;
  int ran = 0;  // command buffers
  int copies = 0;
  int64_t live_buffers = 0;
  /// The command buffer of this number, from 1, fails when it runs.
  int fails_at = 0;
};

/// A committed command buffer runs when somebody waits for it or one behind it, or looks twice.
/// Aborts where Metal would: commands after commit(), copies of parts of words, no groups.
std::unique_ptr<gpu::MetalGpu> make_fake_metal_gpu(const gpu::EmulatorOptions& options,
                                                   FakeMetalLog* log = nullptr);

}  // namespace moeflux::testing
