// The "quantization_config" of tools other than MLX: which of their formats a checkpoint's modules
// may have. It says nothing of which module has which: the tensors do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux {

class Config;

/// One of the formats that compressed-tensors or Model Optimizer name.
struct WeightScheme {
  std::string format;  // "pack-quantized"; "NVFP4"
  bool is_float = false;
  int bits = 0;        // 0: not said
  int group_size = 0;  // 0: not said, or none
  bool symmetric = true;
  bool has_column_map = false;  // columns are in groups by a map of each matrix
};

struct QuantRule {
  std::string method;                 // quant_method: "fp8"; empty when there is none
  std::vector<int64_t> block;         // fp8, mxfp8: rows and columns that share a scale
  std::string experts;                // fp8: what routed experts are, "fp4" or "fp8"; or empty
  std::vector<WeightScheme> schemes;  // compressed-tensors, modelopt
  int bits = 0;                       // awq, gptq
  int group_size = 0;                 // awq, gptq; 0: whole columns
  bool adds_one_to_zeros = false;     // gptq: zero points are stored less one
  bool varies = false;                // awq, gptq: bits and groups differ between modules
  std::vector<int> group_sizes;       // where they vary: all that are said

  /// Reads a quantization_config that has a quant_method. Methods, formats, sparsity and rotations
  /// that are not supported are kUnsupported by name.
  static Result<QuantRule> read(Config section);

  bool has_format(std::string_view format) const;
  /// Fails unless the method is among `methods`, or none is said. `is` says what was found.
  Status expect_method(const std::string& module, std::string_view is,
                       std::initializer_list<std::string_view> methods) const;
};

}  // namespace moeflux
