// The kernels of delta on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/delta/all.h"

MF_KERNEL_ENTRIES(delta, MF_DELTA_KERNELS)
