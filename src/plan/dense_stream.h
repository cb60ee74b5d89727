// Divides the layers of a model without experts, where memory does not hold it all, into those that
// stay and those that are read from the drive for every step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "load/model_loader.h"

namespace moeflux {

/// Commands in flight of the reader of layers: half a megabyte each.
constexpr int kLayerReaderDepth = 64;
/// Threads that bring matrices into the order in which they are computed with: of all but fast
/// drives, reads take longer than so many.
constexpr int kArrangingThreadsMax = 8;

struct DenseStreamRequest {
  uint64_t available_bytes = 0;  // of the host
  int64_t context_length = 0;    // tokens whose state is set aside
  int64_t step_tokens = 0;
  int64_t step_tokens_max = 0;  // that a step may have, so that a prompt takes fewer passes
  /// Bytes of the layers and the ring, as the user asked; 0: the least that can work.
  std::optional<uint64_t> layers_bytes;
  /// The share of a device with memory of its own; null where all memory is the host's. Layers that
  /// it holds whole stay there, with the state and a step's scratch.
  const DensePlaces* device = nullptr;
};

struct DenseStream {
  int64_t step_tokens = 0;
  DensePlaces places;           // with a ring of no slots where all layers stay
  uint64_t layers_bytes = 0;    // of all matrices of layers
  uint64_t streamed_bytes = 0;  // of these, that each step reads
  uint64_t arranged_bytes = 0;  // of these, as they are stored, that are brought into another order
};

/// How fast layers come.
struct LayerSpeeds {
  double drive_bytes_per_second = 0.0;
  double arranged_bytes_per_second = 0.0;  // by all threads that arrange; 0: faster than any drive

  /// The rate of all that is streamed: what has arrived is arranged while more is read.
  double bytes_per_second(const DenseStream& stream) const;
};

/// Threads that arrange on this machine.
int arranging_threads();

/// `counted` has the sizes of the model that will be loaded, and its cache types. Streamed layers
/// lie evenly among the others, so that the drive always has something to do. Fails with
/// kInvalidArgument for a model with experts, and with kResourceExhausted, naming each need, where
/// not even two layers fit.
Result<DenseStream> plan_dense_stream(const LoadedModel& counted,
                                      const DenseStreamRequest& request);

/// One line for the user: what is read for each step, and how many tokens a second such speeds
/// allow.
std::string describe_stream(const DenseStream& stream, const LayerSpeeds& speeds);

}  // namespace moeflux
