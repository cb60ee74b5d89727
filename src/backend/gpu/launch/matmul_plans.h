// The common part of plans of products off matrix units.
#pragma once

#include <cstdint>

#include "backend/gpu/launch/plan.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/ops/head_linear.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

constexpr uint32_t kMatmulThreads = 128;

LinearParams head_params(const Tensor& out, const Tensor& x, const Weight& weight,
                         const HeadRows& rows);
/// The plan of linear and head_linear, without bindings.
Plan product_plan(LinearParams p, const Weight& weight, const Platform& platform);
/// With them: weight, x, output.
Plan bound(Plan plan, const Tensor& out, const Tensor& x, const Weight& weight);

/// Whether many tokens of head_linear, or of its transpose, are multiplied with rows that were
/// unpacked: the bits are the same.
bool takes_unpacked(const LinearParams& p, bool transposed, const Platform& platform);
/// Records these launches, a few heads at a time.
void record_unpacked(Recorder& recorder, const LinearParams& p, bool transposed, const Tensor& out,
                     const Tensor& x, const Weight& weight);

}  // namespace moeflux::gpu
