// Reads a row-major affine matrix of a checkpoint into memory in tiled order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "quant/format.h"

namespace moeflux {

struct AffineEntries {
  const TensorEntry& codes;
  const TensorEntry& scales;
  const TensorEntry& biases;
};

/// Fills `out` with the tiles of a tileable matrix of `rows` rows whose entries have been checked.
/// Reads front to back in pieces of a few panels: a matrix is never in memory twice.
Status read_as_tiles(std::span<std::byte> out, const TensorIndex& index,
                     const AffineEntries& entries, const QuantFormat& format, int64_t rows);

}  // namespace moeflux
