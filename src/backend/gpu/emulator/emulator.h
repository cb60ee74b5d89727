// The emulator as a platform: kernels run as ordinary C++ on this machine, one thread after
// another, with every mistake a GPU would let pass reported. For tests, and to see what a kernel
// does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/gpu/launch/executor.h"

namespace moeflux::gpu {

/// Memory of the host that kernels of several emulators reach.
class EmulatedHost;
std::shared_ptr<EmulatedHost> make_emulated_host();

struct EmulatorOptions {
  /// Chooses the order in which groups, SIMD groups and lanes run; 0: as they are numbered. Results
  /// must not depend on it.
  uint64_t seed = 0;
  /// Has the kernels for matrix units run, which it computes slowly.
  bool matrix_units = false;
  /// Bytes of a memory of its own, of which no more can be allocated; none: memory is the host's.
  std::optional<uint64_t> memory_bytes = {};
  /// Bytes that can be allocated in all, of its own memory and of the host's that kernels reach:
  /// what other programs have left, and what the system allows.
  std::optional<uint64_t> own_bytes_max = {};
  std::optional<uint64_t> host_bytes_max = {};
  /// Null: the host's memory is reached by this emulator alone.
  std::shared_ptr<EmulatedHost> host = {};
  /// Chooses when copies beside launches are made: any time between the event they wait for and
  /// the call that waits for them.
  uint64_t copy_seed = 0;
  /// They are made at once instead.
  bool copies_at_once = false;
  /// The copy that fails, counted from 1; 0: none.
  uint64_t failing_copy = 0;
  /// The rate that its memory is said to have, for plans; 0: none.
  double memory_bytes_per_second = 0.0;
  /// workspace_bytes_max(): so few that small problems are computed piece by piece.
  uint64_t workspace_bytes = uint64_t{128} << 10;
  /// Shared memory that a group can have.
  uint32_t shared_bytes = kMmaSharedBytesMax;
  /// Multiprocessors that work is shared out to: so few that small problems reach the kernels for
  /// large ones.
  uint32_t cores = 4;
};

/// Without kernels a platform can be planned for, and nothing runs on it: kUnsupported then.
Status check_emulator_runs();
std::unique_ptr<Platform> make_emulator_platform(const EmulatorOptions& options);

}  // namespace moeflux::gpu
