// Makes a table for kernel_table.cc of a folder of kernels, compiled by nvcc from the one kernel
// source. A .cu file includes it. It includes nothing of other folders that has kernels, so that a
// changed kernel compiles one file. The build passes -fmad=false: see dialect/cuda.h.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "backend/gpu/dialect/cuda.h"

#define MF_CUDA_KERNEL(name, ...) reinterpret_cast<const void*>(&kernels::name),
#define MF_CUDA_KERNELS(folder, KERNELS)                           \
  namespace moeflux::gpu {                                         \
  std::span<const void* const> cuda_##folder() {                   \
    static const void* const kTable[] = {KERNELS(MF_CUDA_KERNEL)}; \
    return kTable;                                                 \
  }                                                                \
  }
