// The common part of plans of products off matrix units.
#pragma once

#include <cstdint>

#include "backend/gpu/launch/plan.h"
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

}  // namespace moeflux::gpu
