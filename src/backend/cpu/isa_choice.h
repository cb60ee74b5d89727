// Which compiled kernels this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cpu/kernels/int8_table.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "base/result.h"

namespace moeflux::cpu {

/// The kernels this machine supports, best first; "generic" is always the last.
std::vector<const KernelTable*> supported_kernels();

/// The kernels called `isa`, or the best ones for "". Fails with kUnsupported when the machine (or
/// the build) lacks them, and with kInvalidArgument when no such instruction set is known.
Result<const KernelTable*> choose_kernels(std::string_view isa);

/// The int8 kernels this machine supports, best first; "generic" is always the last.
std::vector<const Int8Kernels*> supported_int8_kernels();
/// The best ones that need no wider registers than `kernels`.
const Int8Kernels& choose_int8_kernels(const KernelTable& kernels);

}  // namespace moeflux::cpu
