// Experts computed by a second device beside a first, in memory of the host that both reach. The
// first device's routers write ids here and it copies activations here; the helper computes rows of
// `slots`, which the first one then sums like its own. Both have to give an expert the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/device.h"
#include "backend/encoder.h"
#include "base/result.h"

namespace moeflux {

struct ExpertHelperShape {
  int64_t rows_max = 0;  // of a step that it helps with
  int64_t experts_per_token_max = 0;
  int64_t hidden = 0;
  int64_t intermediate_max = 0;
};

/// Thread-compatible: the engine's thread only.
class ExpertHelper {
 public:
  /// The devices must outlive the helper; `helper` computes in the host's memory, of any device's
  /// buffers. Fails with kResourceExhausted.
  static Result<std::unique_ptr<ExpertHelper>> create(Device& device, Device& helper,
                                                      const ExpertHelperShape& shape);

  int64_t rows_max() const { return shape_.rows_max; }
  // These belong to the step at hand, in memory that the next layer uses again.
  /// i32 [rows, top_k], for Encoder::route().
  Tensor ids(int64_t rows, int64_t top_k);
  /// f32 [rows, top_k, hidden], for Encoder::expert_ffn() and combine_experts().
  Tensor slots(int64_t rows, int64_t top_k);
  /// Records on `encoder` that x [rows, hidden] is brought here.
  void take(Encoder& encoder, Tensor x);

  /// Computes the slots of these experts, when the work recorded up to take() has been waited for:
  /// ids and x are here. The experts' bytes lie in the host's memory. Fails as the helper does.
  Status compute(std::span<const ExpertWeights> experts, const Routes& routes,
                 const GluOptions& glu);

 private:
  explicit ExpertHelper(const ExpertHelperShape& shape) : shape_(shape) {}

  ExpertHelperShape shape_;
  std::unique_ptr<Buffer> ids_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> slots_;
  std::unique_ptr<Buffer> intermediate_;  // the helper's
  std::unique_ptr<Encoder> encoder_;      // of the helper
  Tensor x_now_;                          // of the layer at hand
};

}  // namespace moeflux
