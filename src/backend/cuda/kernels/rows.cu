// The kernels of rows for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/rows/all.h"
#include "backend/gpu/kernels/rows/list.h"

MF_CUDA_KERNELS(rows, MF_ROWS_KERNELS)
