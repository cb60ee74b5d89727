// The kernels of delta for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/delta/all.h"
#include "backend/gpu/kernels/delta/list.h"

MF_CUDA_KERNELS(delta, MF_DELTA_KERNELS)
