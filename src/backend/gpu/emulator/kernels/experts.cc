// The kernels of experts on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/experts/all.h"

MF_KERNEL_ENTRIES(experts, MF_EXPERTS_KERNELS)
