// The kernels of attention for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/attention/all.h"
#include "backend/gpu/kernels/attention/list.h"

MF_CUDA_KERNELS(attention, MF_ATTENTION_KERNELS)
