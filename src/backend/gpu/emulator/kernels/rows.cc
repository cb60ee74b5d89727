// The kernels of rows on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/rows/all.h"

MF_KERNEL_ENTRIES(rows, MF_ROWS_KERNELS)
