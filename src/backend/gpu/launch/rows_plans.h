// The common part of plans of operations on rows.
#pragma once

#include <cstdint>

#include "backend/gpu/launch/plan.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

constexpr uint32_t kRowsThreads = 256;
constexpr uint32_t kNarrowThreads = 128;  // of rows with a SIMD group each
constexpr uint32_t kStreamThreads = 128;  // of residuals of several streams

RowsParams rows_params(const Tensor& out, const Tensor& a, const Tensor& b);
/// A thread an element.
Plan element_plan(KernelId kernel, const Tensor& out);
/// x += bias, which has a number for each column.
Plan bias_plan(const Tensor& x, const Tensor& bias);
/// out = x, of one shape.
Plan copy_plan(const Tensor& out, const Tensor& x);
/// Four columns a thread where `wide`.
Plan columns_plan(KernelId kernel, const Tensor& out, u32 wide);
/// True when kernels may take four columns at once.
bool has_wide_rows(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace moeflux::gpu
