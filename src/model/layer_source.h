// LayerSource: matrices of layers that a device has no room for, for the layer at hand.
#pragma once

#include "backend/encoder.h"
#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

/// Thread-compatible: the engine's thread only.
class LayerSource {
 public:
  virtual ~LayerSource() = default;
  /// Returns when the layer's matrices lie where its weights say. Layers before it may be gone
  /// then: waits for the work that `encoder` has recorded. Fails with kIo when they cannot be
  /// read.
  virtual Status begin_layer(LayerId layer, Encoder& encoder) = 0;
  /// Records a layer's network on `encoder`, or has its results made elsewhere, of the same bits.
  virtual Status network(LayerId /*layer*/, const ops::GatedFfn& op, Encoder& encoder) {
    encoder.run(op);
    return {};
  }
};

}  // namespace moeflux
