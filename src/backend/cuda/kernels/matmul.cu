// The kernels of matmul for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/matmul/all.h"
#include "backend/gpu/kernels/matmul/list.h"

MF_CUDA_KERNELS(matmul, MF_MATMUL_KERNELS)
