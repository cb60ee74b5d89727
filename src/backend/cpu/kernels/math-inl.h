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
MF_INLINE Vec vsoftplus(Vec x) { return plain::soft_plus(x); }

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
    case ActivationKind::kSoftplus:
      return vsoftplus(x);
    case ActivationKind::kGelu:
      return plain::gelu(x);
    case ActivationKind::kCappedSilu:  // gated units, which know their limits
    case ActivationKind::kSoftCapped:
      break;
  }
  __builtin_unreachable();
}

MF_INLINE Vec vglu(Vec gate, Vec up, const GluArgs& args) {
  if (args.activation == ActivationKind::kRelu) return vmul(vmax(vset(0.0f), gate), up);
  if (args.activation == ActivationKind::kGeluTanh) return vmul(plain::gelu_tanh(gate), up);
  if (args.activation == ActivationKind::kCappedSilu) {
    return plain::capped_silu(gate, up, vset(args.limit));
  }
  if (args.activation == ActivationKind::kSoftCapped) {
    return plain::soft_capped_unit(gate, up, vset(args.limit), vset(args.alpha));
  }
  return plain::gated_silu(gate, up, vset(args.alpha), vset(args.limit), vset(args.up_offset));
}
/// With one rounding for a multiply-add in portable kernels, too.
MF_INLINE Vec vglu_fused(Vec gate, Vec up, const GluArgs& args) {
  if (args.activation == ActivationKind::kRelu) return vmul(vmax(vset(0.0f), gate), up);
  if (args.activation == ActivationKind::kGeluTanh) return vmul(fused::gelu_tanh(gate), up);
  if (args.activation == ActivationKind::kCappedSilu) {
    return fused::capped_silu(gate, up, vset(args.limit));
  }
  if (args.activation == ActivationKind::kSoftCapped) {
    return fused::soft_capped_unit(gate, up, vset(args.limit), vset(args.alpha));
  }
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
