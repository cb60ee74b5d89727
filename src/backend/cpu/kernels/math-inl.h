// exp, the activations and gated units on vectors.
// Included inside the namespace of one ISA; see kernels-inl.h.

// The words of activation_text.h.
#define MF_FN MF_INLINE
using Real = Vec;
MF_INLINE Vec real(float number) { return vset(number); }
MF_INLINE Vec real_at_most(Vec x, Vec limit) {
  return vmin(limit, x);
}  // NaN is the second operand
MF_INLINE Vec real_at_least(Vec x, Vec limit) { return vmax(limit, x); }
MF_INLINE Vec real_round(Vec x) { return vround(x); }
MF_INLINE Vec real_scale(Vec x, Vec n) { return vscale(x, n); }
namespace plain {
MF_INLINE Vec real_fma(Vec a, Vec b, Vec c) { return vfma(a, b, c); }
#include "backend/activation_text.h"
}  // namespace plain
namespace fused {
MF_INLINE Vec real_fma(Vec a, Vec b, Vec c) { return vfused(a, b, c); }
#include "backend/activation_text.h"
}  // namespace fused
#undef MF_FN

MF_INLINE Vec vexp(Vec x) { return plain::real_exp(x); }

MF_INLINE Vec vactivate(Vec x, ActivationKind activation) {
  switch (activation) {
    case ActivationKind::kSilu:
      return plain::times_sigmoid(x, x);
    case ActivationKind::kSigmoid:
      return plain::times_sigmoid(vset(1.0f), x);
    case ActivationKind::kGeluTanh:
      return plain::gelu_tanh(x);
    case ActivationKind::kIdentity:
      return x;
    case ActivationKind::kRelu:
      return vmax(vset(0.0f), x);
  }
  __builtin_unreachable();
}

/// log(1 + e^x) within 4 ulp.
MF_INLINE Vec vsoftplus(Vec x) {
  // The part above max(x, 0) is log(1 + e) = 2 atanh(e / (2 + e)) with e = e^-|x|: s is at most
  // 1 / 3, and the series ends where the next term is below 2^-26 of the sum.
  const Vec e = vexp(vmin(x, -x));
  const Vec s = vdiv(e, vadd(vset(2.0f), e));
  const Vec z = vmul(s, s);
  Vec p = vset(2.0f / 15.0f);
  p = vfma(p, z, vset(2.0f / 13.0f));
  p = vfma(p, z, vset(2.0f / 11.0f));
  p = vfma(p, z, vset(2.0f / 9.0f));
  p = vfma(p, z, vset(2.0f / 7.0f));
  p = vfma(p, z, vset(2.0f / 5.0f));
  p = vfma(p, z, vset(2.0f / 3.0f));
  p = vfma(p, z, vset(2.0f));
  return vfma(s, p, vmax(vset(0.0f), x));
}

MF_INLINE Vec vglu(Vec gate, Vec up, const GluArgs& args) {
  if (args.activation == ActivationKind::kRelu) return vmul(vmax(vset(0.0f), gate), up);
  if (args.activation == ActivationKind::kGeluTanh) return vmul(plain::gelu_tanh(gate), up);
  return plain::gated_silu(gate, up, vset(args.alpha), vset(args.limit), vset(args.up_offset));
}
/// With one rounding for a multiply-add in portable kernels, too.
MF_INLINE Vec vglu_fused(Vec gate, Vec up, const GluArgs& args) {
  if (args.activation == ActivationKind::kRelu) return vmul(vmax(vset(0.0f), gate), up);
  if (args.activation == ActivationKind::kGeluTanh) return vmul(fused::gelu_tanh(gate), up);
  return fused::gated_silu(gate, up, vset(args.alpha), vset(args.limit), vset(args.up_offset));
}

/// Full or partial loads and stores: every lane is computed by the same instructions wherever a row
/// ends, so results do not depend on how work was cut.
MF_INLINE Vec vload_some(const float* p, int64_t left) {
  return left >= kLanes ? vload(p) : vload_partial(p, left);
}
MF_INLINE void vstore_some(float* p, Vec v, int64_t left) {
  if (left >= kLanes) {
    vstore(p, v);
  } else {
    vstore_partial(p, v, left);
  }
}

static void exp_array(float* out, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vexp(vload_some(x + i, n - i)), n - i);
  }
}
