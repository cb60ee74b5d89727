// The workspace that operations of the reference share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/weight.h"

namespace moeflux::reference {

class Reference {
 public:
  /// Row `row` of a weight that can_decode(), until the next call.
  std::span<const float> decoded_row(const Weight& weight, int64_t row) {
    row_.resize(static_cast<size_t>(weight.cols));
    decode_row(weight, row, row_);
    return row_;
  }

 private:
  std::vector<float> row_;
};

}  // namespace moeflux::reference
