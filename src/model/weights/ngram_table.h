// Where the table of an n-gram embedding is stored.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/ngram.h"
#include "model/weights/weight_origin.h"
#include "quant/format.h"

namespace moeflux {

/// Where the rows of a layer's table are stored. Nothing of it is in memory.
struct NgramTable {
  LayerId layer{};
  NgramHashes hashes;
  int64_t row_dim = 0;
  int64_t part_rows = 0;            // of each of `parts`
  std::vector<StoredModule> parts;  // of one format, [part_rows, row_dim]; no entries if assumed

  int64_t width() const { return hashes.heads() * row_dim; }
  const QuantFormat& format() const { return parts.front().format; }
};

}  // namespace moeflux
