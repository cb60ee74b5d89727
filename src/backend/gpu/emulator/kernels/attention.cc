// The kernels of attention on the emulator.
#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/kernels/attention/all.h"

MF_KERNEL_ENTRIES(attention, MF_ATTENTION_KERNELS)
