// exp, the activations and gated units on vectors.
// Included inside the namespace of one ISA; see kernels-inl.h.

/// e^x within 2 ulp; 0 below -104, infinity above 89, NaN stays NaN.
MF_INLINE Vec vexp(Vec x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  x = vmin(vset(89.0f), vmax(vset(-104.0f), x));  // NaN passes as the second operand
  const Vec n = vround(vmul(x, vset(kLog2E)));
  Vec r = vfma(n, vset(-kLn2High), x);
  r = vfma(n, vset(-kLn2Low), r);
  // Minimax polynomial of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2] (Cephes).
  Vec p = vset(1.9875691500e-4f);
  p = vfma(p, r, vset(1.3981999507e-3f));
  p = vfma(p, r, vset(8.3334519073e-3f));
  p = vfma(p, r, vset(4.1665795894e-2f));
  p = vfma(p, r, vset(1.6666665459e-1f));
  p = vfma(p, r, vset(5.0000001201e-1f));
  p = vfma(p, vmul(r, r), vadd(r, vset(1.0f)));
  return vscale(p, n);
}

/// 1 / (1 + e^-x) times `x_or_one`.
MF_INLINE Vec vsigmoid_of(Vec x, Vec x_or_one) {
  return vdiv(x_or_one, vadd(vset(1.0f), vexp(vsub(vset(0.0f), x))));
}

/// gelu_tanh(x) = x / 2 * (1 + tanh(u)) = x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715
/// x^3).
MF_INLINE Vec vgelu_tanh(Vec x) {
  constexpr float kTwoRootTwoOverPi = 1.59576912f;
  const Vec inner = vfma(vmul(vmul(x, x), x), vset(0.044715f), x);
  return vsigmoid_of(vmul(vset(kTwoRootTwoOverPi), inner), x);
}

MF_INLINE Vec vactivate(Vec x, ActivationKind activation) {
  switch (activation) {
    case ActivationKind::kSilu:
      return vsigmoid_of(x, x);
    case ActivationKind::kSigmoid:
      return vsigmoid_of(x, vset(1.0f));
    case ActivationKind::kGeluTanh:
      return vgelu_tanh(x);
    case ActivationKind::kIdentity:
      return x;
  }
  __builtin_unreachable();
}

/// Limits keep NaN, the second operand of vmin and vmax.
MF_INLINE Vec vglu(Vec gate, Vec up, const GluArgs& args) {
  if (args.activation == ActivationKind::kGeluTanh) return vmul(vgelu_tanh(gate), up);
  const Vec limit = vset(args.limit);
  gate = vmin(limit, gate);
  up = vadd(vmin(limit, vmax(vset(-args.limit), up)), vset(args.up_offset));
  return vmul(vsigmoid_of(vmul(vset(args.alpha), gate), gate), up);
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
