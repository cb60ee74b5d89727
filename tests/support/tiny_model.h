// A checkpoint of a few kilobytes in any of the spellings that real ones have, all with the same
// numbers: what must not matter can be varied, what must be noticed can be broken.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux::testing {

struct TinyTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;
};

enum class ExpertNames : uint8_t {
  kStacked,  // switch_mlp.gate_proj [experts, rows, cols]
  kFused,    // experts.gate_up_proj [experts, rows of gate and of up, cols]
  kSeparate  // experts.0.gate_proj [rows, cols]
};

struct TinyOptions {
  ExpertNames experts = ExpertNames::kStacked;
  /// Norms stored as w of (1 + w) and convolutions as [channels, 1, taps]; otherwise as MLX does.
  bool hugging_face = false;
  std::string prefix = "language_model.model.";  // of all names but the head's
  int bits = 0;                                  // 0: F32; else affine groups of 32
};

struct TinyModel {
  static constexpr int64_t kVocab = 64;
  static constexpr int64_t kContext = 1024;

  Json config;
  std::map<std::string, TinyTensor> tensors;

  /// config.json and model.safetensors into an existing folder. A failure is a gtest failure.
  void write(const std::string& directory) const;
};

/// Two layers, one gated DeltaNet and one attention, with four experts each.
TinyModel make_tiny_model(const TinyOptions& options);

}  // namespace moeflux::testing
