// The types that matrices have in a GGUF file which is said to be of one type.
#pragma once

#include <cstdint>

#include "quant/ggml_types.h"

namespace moeflux {

/// A matrix to which type_of_matrix() gives a type.
struct GgufMatrix {
  bool is_expert = false;
  bool is_embedding = false;  // a token reads one row
  bool is_head = false;       // may be both
  int64_t cols = 0;
};

/// The type of a matrix in a file of mostly `wanted`, as llama.cpp's quantiser chooses where
/// nothing has to be protected. The head is Q6_K. The lowest types leave the embedding more bits.
/// Rows that are no whole blocks get a type of shorter blocks. With MXFP4 all but experts is Q8_0.
const GgmlType& type_of_matrix(const GgmlType& wanted, const GgufMatrix& matrix);

}  // namespace moeflux
