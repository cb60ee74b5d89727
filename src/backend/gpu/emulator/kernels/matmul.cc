// The kernels of matmul on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/matmul/all.h"

MF_KERNEL_ENTRIES(matmul, MF_MATMUL_KERNELS)
