// Reads a row-major affine matrix of a checkpoint into memory in tiled order.
#pragma once

#include "backend/device.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "quant/weight.h"

namespace moeflux {

struct AffineEntries {
  const TensorEntry& codes;
  const TensorEntry& scales;
  const TensorEntry& biases;
};

/// Fills `tiles`, which are `device`'s, with the tiles of a tileable `weight` whose entries have
/// been checked. Reads front to back in pieces of a few panels: a matrix is never in memory twice.
/// Memory that the host cannot address is uploaded to, piece by piece.
Status read_as_tiles(Device& device, const Tensor& tiles, const TensorIndex& index,
                     const AffineEntries& entries, const Weight& weight);

}  // namespace moeflux
