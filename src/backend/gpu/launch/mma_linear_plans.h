// Products on matrix units as plans.
#pragma once

#include "backend/gpu/launch/recorder.h"
#include "backend/gpu/launch/waiting.h"

namespace moeflux::gpu {

/// Products with the chain that makes their x and a convolution.
void record_products(Recorder& recorder, const Waiting& waiting);
/// x as integers: as the last such launch left them, if nothing was written to x since. Null, and
/// the recorder fails, if there is no room. `order`: of their bytes (kernels/matmul/mma_params.h).
const QuantizedRows* quantize_rows(Recorder& recorder, const Tensor& x, uint32_t order);

}  // namespace moeflux::gpu
