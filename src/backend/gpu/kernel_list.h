// Every kernel once: kernels/<folder>/list.h has a line for each. A dialect expands a list into its
// own table: functions for the emulator and CUDA, names for Metal.
//
// A line is X(name, bindings, parameter struct, kWaits or kReadsEarly). A name is words, then what
// the kernel is made for, in this order: how numbers are stored (_f32 _fp8 _q8
// _q4_k _mxfp4, or bits, _w4), tokens of a group (_t1), rows of a group (_r16), and columns
// (_d128). Bits in groups of 32 are _w4_32. mma_ stands before what is computed on matrix units.
// kernel_list_test.cc holds names to that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/gpu/kernels/attention/list.h"
#include "backend/gpu/kernels/delta/list.h"
#include "backend/gpu/kernels/experts/list.h"
#include "backend/gpu/kernels/matmul/list.h"
#include "backend/gpu/kernels/norm/list.h"
#include "backend/gpu/kernels/route/list.h"
#include "backend/gpu/kernels/rows/list.h"

// In the order of folders, which kernel tables of a folder count on.
#define MF_KERNEL_FOLDERS(F)         \
  F(rows, MF_ROWS_KERNELS)           \
  F(norm, MF_NORM_KERNELS)           \
  F(matmul, MF_MATMUL_KERNELS)       \
  F(attention, MF_ATTENTION_KERNELS) \
  F(delta, MF_DELTA_KERNELS)         \
  F(route, MF_ROUTE_KERNELS)         \
  F(experts, MF_EXPERTS_KERNELS)

#define MOEFLUX_GPU_KERNELS(X) \
  MF_ROWS_KERNELS(X)           \
  MF_NORM_KERNELS(X)           \
  MF_MATMUL_KERNELS(X)         \
  MF_ATTENTION_KERNELS(X)      \
  MF_DELTA_KERNELS(X)          \
  MF_ROUTE_KERNELS(X)          \
  MF_EXPERTS_KERNELS(X)

namespace moeflux::gpu {

enum class KernelId : uint16_t {
#define MF_ENUMERATOR(name, ...) name,
  MOEFLUX_GPU_KERNELS(MF_ENUMERATOR)
#undef MF_ENUMERATOR
};

/// A kernel's reads before its inputs are there (dialect/cuda.h): constants only, or also what
/// kernels before the last one wrote. The latter may be set up once the last launch has its inputs,
/// not earlier.
inline constexpr bool kWaits = false;
inline constexpr bool kReadsEarly = true;

struct KernelInfo {
  std::string_view name;
  uint32_t bindings;
  uint32_t params_bytes;
  bool reads_early;
};

inline constexpr auto kKernels = std::to_array<KernelInfo>({
#define MF_INFO(name, bindings, Params, reads) {#name, bindings, sizeof(Params), reads},
    MOEFLUX_GPU_KERNELS(MF_INFO)
#undef MF_INFO
});

constexpr const KernelInfo& kernel_info(KernelId id) { return kKernels[static_cast<size_t>(id)]; }

constexpr bool reads_early(KernelId id) { return kernel_info(id).reads_early; }

}  // namespace moeflux::gpu
