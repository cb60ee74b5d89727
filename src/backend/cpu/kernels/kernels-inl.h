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

constexpr KernelTable make_table(const char* name) {
  return {name,  matmul, glu_matmul, permute, attention,     gated_delta,  causal_conv,
          route, rope,   rms_norm,   add,     mul_activated, weighted_sum, exp_array};
}
