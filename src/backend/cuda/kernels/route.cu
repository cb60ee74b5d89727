// The kernels of route for CUDA (folder.h).
#include "backend/cuda/kernels/folder.h"
#include "backend/gpu/kernels/route/all.h"
#include "backend/gpu/kernels/route/list.h"

MF_CUDA_KERNELS(route, MF_ROUTE_KERNELS)
