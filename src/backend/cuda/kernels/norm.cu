// The kernels of norm for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/norm/all.h"
#include "backend/gpu/kernels/norm/list.h"

MF_CUDA_KERNELS(norm, MF_NORM_KERNELS)
