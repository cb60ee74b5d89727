// The kernels of norm on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/norm/all.h"

MF_KERNEL_ENTRIES(norm, MF_NORM_KERNELS)
