// From a kernel of the host dialect to a function of bytes: unpacks parameters and bindings. Each
// folder of kernels is compiled by a file of its own in emulator/kernels.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "backend/gpu/dialect/host.h"
#include "backend/gpu/emulator/machine.h"

namespace moeflux::gpu::emulator {

template <auto kernel>
struct Unpack;

template <typename Params, typename... Pointers,
          void (*kernel)(const Thread&, const Params&, Pointers...)>
struct Unpack<kernel> {
  static_assert(sizeof...(Pointers) <= Plan::kBindingsMax);

  static void call(const Thread& t, const std::byte* params, const BoundRange* bindings) {
    call(t, *reinterpret_cast<const Params*>(params), bindings,
         std::index_sequence_for<Pointers...>());
  }

 private:
  template <size_t... kIndex>
  static void call(const Thread& t, const Params& params, const BoundRange* bindings,
                   std::index_sequence<kIndex...>) {
    kernel(t, params, Pointers(t, bindings[kIndex])...);
  }
};

/// Whether this build has kernels of the host dialect.
bool has_kernel_entries();

/// The host version of a kernel, if there are any.
KernelEntry kernel_entry(KernelId id);

/// Defines what kernel_entries.cc puts together: the kernels of a folder, in the order of its list.
#define MF_KERNEL_ENTRY(name, ...) &Unpack<&kernels::name>::call,
#define MF_KERNEL_ENTRIES(folder, KERNELS)                                \
  namespace moeflux::gpu::emulator {                                      \
  std::span<const KernelEntry> folder##_entries() {                       \
    static constexpr KernelEntry kEntries[] = {KERNELS(MF_KERNEL_ENTRY)}; \
    return kEntries;                                                      \
  }                                                                       \
  }

}  // namespace moeflux::gpu::emulator
