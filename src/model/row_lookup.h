// RowLookup: rows of large tables that stay on a drive, for the tokens of a step.
#pragma once

#include "backend/encoder.h"
#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

/// Thread-compatible: the engine's thread only.
class RowLookup {
 public:
  virtual ~RowLookup() = default;
  /// Writes the rows of the layer's table, f32 [n, width] of the step's tokens, through `encoder`,
  /// once they have arrived. Fails with kIo when they cannot be read.
  virtual Status write_rows(LayerId layer, Encoder& encoder, Tensor to) = 0;
};

}  // namespace moeflux
