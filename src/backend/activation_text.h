// e^x, activations and the gated unit: one text for the CPU's vectors and for GPU kernels, whose
// compilers' libraries differ in the last bits.
//
// Included inside a namespace that has
//   MF_FN            what functions begin with
//   Real             an f32, or a vector of them with the compiler's operators
//   real(number)     a constant
//   real_fma(a, b, c)               a * b + c, rounded once (in some portable kernels twice)
//   real_at_most(x, limit), real_at_least(x, limit)   which keep NaN
//   real_round(x)                   to the nearest integer, below 2^22
//   real_scale(x, n)                x * 2^n for integers n from -252 to 254, rounded once
// and that may need it more than once in a program: so it has no other guard than its includer's.

/// e^x within 2 ulp; 0 below -104, infinity above 89, NaN stays NaN.
MF_FN Real real_exp(Real x) {
  x = real_at_most(real_at_least(x, real(-104.0f)), real(89.0f));
  const Real n = real_round(x * real(1.44269504f));
  // The first part of ln 2 has few bits: its product is exact.
  Real r = real_fma(n, real(-0.693359375f), x);
  r = real_fma(n, real(2.12194440e-4f), r);
  // Minimax polynomial of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2] (Cephes).
  Real p = real(1.9875691500e-4f);
  p = real_fma(p, r, real(1.3981999507e-3f));
  p = real_fma(p, r, real(8.3334519073e-3f));
  p = real_fma(p, r, real(4.1665795894e-2f));
  p = real_fma(p, r, real(1.6666665459e-1f));
  p = real_fma(p, r, real(5.0000001201e-1f));
  p = real_fma(p, r * r, r + real(1.0f));
  return real_scale(p, n);
}

/// y / (1 + e^-x).
MF_FN Real times_sigmoid(Real y, Real x) { return y / (real(1.0f) + real_exp(-x)); }

/// x / 2 * (1 + tanh(u)) = x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), which keeps
/// its digits where tanh(u) is near -1.
MF_FN Real gelu_tanh(Real x) {
  const Real inner = real_fma(x * x * x, real(0.044715f), x);
  return times_sigmoid(x, real(1.59576912f) * inner);
}

/// x times the share of the normal distribution below x. The share beyond |x| is a polynomial of
/// 1 / (1 + p |x| / sqrt(2)) times e^(-x^2 / 2) / 2, off by at most 8e-8 (Abramowitz and Stegun
/// 7.1.26); beyond 30 it is 0, and e^x is not asked for what would overflow.
MF_FN Real gelu(Real x) {
  const Real size = real_at_most(real_at_least(x, -x), real(30.0f));
  const Real t = real(1.0f) / real_fma(size, real(0.231641888f), real(1.0f));
  Real p = real(1.061405429f);
  p = real_fma(p, t, real(-1.453152027f));
  p = real_fma(p, t, real(1.421413741f));
  p = real_fma(p, t, real(-0.284496736f));
  p = real_fma(p, t, real(0.254829592f));
  const Real beyond = real(0.5f) * (p * t) * real_exp(real(-0.5f) * size * size);
  return real_fma(-size, beyond, real_at_least(x, real(0.0f)));
}

/// log(1 + e^x) = max(x, 0) + log(1 + t) with t = e^-|x|, whose logarithm is twice the arctangent
/// (hyperbolic) of t / (2 + t), at most 1/3: eight terms leave 2e-9 of it.
MF_FN Real soft_plus(Real x) {
  const Real t = real_exp(real_at_most(x, -x));
  const Real s = t / (real(2.0f) + t);
  const Real square = s * s;
  Real p = real(1.0f / 15.0f);
  p = real_fma(p, square, real(1.0f / 13.0f));
  p = real_fma(p, square, real(1.0f / 11.0f));
  p = real_fma(p, square, real(1.0f / 9.0f));
  p = real_fma(p, square, real(1.0f / 7.0f));
  p = real_fma(p, square, real(1.0f / 5.0f));
  p = real_fma(p, square, real(1.0f / 3.0f));
  p = real_fma(p, square, real(1.0f));
  return real_fma(s + s, p, real_at_least(x, real(0.0f)));
}

/// The gated unit whose limit is that of silu(gate).
MF_FN Real capped_silu(Real gate, Real up, Real limit) {
  return real_at_most(times_sigmoid(gate, gate), limit) *
         real_at_most(real_at_least(up, -limit), limit);
}

/// cap * tanh(x / cap), to a few roundings of cap.
MF_FN Real soft_capped(Real x, Real cap) {
  return cap - times_sigmoid(cap + cap, x * (real(-2.0f) / cap));
}

/// The gated unit whose factors are capped apart.
MF_FN Real soft_capped_unit(Real gate, Real up, Real gate_cap, Real up_cap) {
  return times_sigmoid(soft_capped(gate, gate_cap), gate) * soft_capped(up, up_cap);
}

/// The gated unit of GluOptions with its limits, which keep NaN.
MF_FN Real gated_silu(Real gate, Real up, Real alpha, Real limit, Real up_offset) {
  gate = real_at_most(gate, limit);
  up = real_at_most(real_at_least(up, -limit), limit) + up_offset;
  return times_sigmoid(gate, alpha * gate) * up;
}
