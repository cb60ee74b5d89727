// The kernels of experts for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/experts/all.h"
#include "backend/gpu/kernels/experts/list.h"

MF_CUDA_KERNELS(experts, MF_EXPERTS_KERNELS)
