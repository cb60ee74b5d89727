// Writes a checkpoint twice: as the MLX conversion with quantised linear modules, and as a twin in
// the original's layout whose F32 weights are what the quantised ones decode to. A model must
// compute the same from both.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tensor/dtype.h"

namespace moeflux::testing {

struct QuantizedCopyOptions {
  int bits = 4;
  int router_bits = 8;
  DType scale_dtype = DType::kBf16;
  /// Latent attention's kv_b_proj becomes embed_q and unembed_out; otherwise it is quantised whole,
  /// as older conversions did.
  bool split_kv_b = true;
};

/// Counts of converted weights, so that a test can see that it tests something.
struct QuantizedCopyReport {
  /// Modules by the last parts of their names, layers and experts left out: "mlp.gate".
  std::map<std::string, int> modules;
  int plain_tensors = 0;
};

/// `from` holds config.json and float tensors in a Hugging Face layout; `quantized` and `twin` are
/// existing folders. Modules take groups of 64 numbers, or 32 where 64 does not divide their rows.
/// A failure is a gtest failure.
QuantizedCopyReport write_quantized_copy(const std::string& from, const std::string& quantized,
                                         const std::string& twin,
                                         const QuantizedCopyOptions& options);

}  // namespace moeflux::testing
