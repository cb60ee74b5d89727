// The kernels of route on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/route/all.h"

MF_KERNEL_ENTRIES(route, MF_ROUTE_KERNELS)
