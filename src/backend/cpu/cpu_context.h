// Operations of the CPU compute with this: kernels, threads, and memory that they keep.
//
// Work is cut so that every output element is computed by one task with a fixed order of
// operations: bits depend neither on the cut nor on who runs which task. Every file in ops/ defines
// `void run(CpuContext& context, const ops::X& op)` for the operation that it is named after; the
// list of them is generated.
#pragma once

#include "backend/cpu/isa_choice.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/pending_products.h"
#include "backend/cpu/row_products.h"
#include "backend/cpu/spaces.h"
#include "backend/cpu/weight_kernels.h"
#include "backend/cpu/workers.h"

namespace moeflux::cpu {

struct CpuContext {
  /// `precision` is not kAuto.
  CpuContext(const KernelSet& set, Precision precision, int threads, const ThreadCores& cores,
             std::chrono::microseconds look)
      : kernels(*set.ops),
        select(*set.select),
        gated_unit(precision == Precision::kQ16 ? kernels.glu_fused : kernels.glu),
        weights(set, precision),
        workers(threads, cores, look),
        rows(kernels, workers),
        pending(weights, workers) {}
  CpuContext(const CpuContext&) = delete;
  CpuContext& operator=(const CpuContext&) = delete;

  const KernelTable& kernels;
  const SelectKernels& select;
  /// The bits of q16's gated units are those of GPU kernels.
  decltype(KernelTable::glu) const gated_unit;
  const WeightKernels weights;
  Workers workers;
  RowProducts rows;
  PendingProducts pending;
  Spaces spaces;
};

}  // namespace moeflux::cpu
