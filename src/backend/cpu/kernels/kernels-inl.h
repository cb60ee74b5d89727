// All kernels and their table, written once and compiled once per instruction set.
//
// A file of isa/ includes kernel_table.h and its intrinsics, defines MF_INLINE, opens a namespace
// of its own, includes its vec_*-inl.h and then this file. Nothing here may use a header with
// inline functions: the linker keeps one copy of those, and it could be the one this machine cannot
// run.

#include "backend/cpu/kernels/math-inl.h"
//
#include "backend/cpu/kernels/rows-inl.h"
//
#include "backend/cpu/kernels/codecs-inl.h"
//
#include "backend/cpu/kernels/matmul-inl.h"
//
#include "backend/cpu/kernels/attention-inl.h"
#include "backend/cpu/kernels/delta-inl.h"
#include "backend/cpu/kernels/route-inl.h"
#include "backend/cpu/kernels/transposed-inl.h"

constexpr KernelTable make_table(const char* name) {
  return {.name = name,
          .matmul = matmul,
          .glu_matmul = glu_matmul,
          .transposed_matmul = transposed_matmul,
          .permute = permute,
          .attention = attention,
          .attention_fold = attention_fold,
          .recurrence = recurrence,
          .row_decays = row_decays,
          .l2_normalize = l2_normalize,
          .causal_conv = causal_conv,
          .route = route,
          .rope = rope,
          .rms_norm = rms_norm,
          .add = add,
          .scale = scale,
          .to_f16 = to_f16,
          .to_q8 = to_q8,
          .soft_cap = soft_cap,
          .glu = glu,
          .glu_fused = glu_fused,
          .mul_activated = mul_activated,
          .weighted_sum = weighted_sum,
          .expand_streams = expand_streams,
          .sum_gated = sum_gated,
          .dot = dot,
          .exp = exp_array};
}
