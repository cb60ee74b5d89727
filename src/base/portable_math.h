// Elementary functions in plain IEEE arithmetic: libm's differ between platforms, and between the
// processors of one, in the last bit, which would let a seed mean another text.
#pragma once

namespace moeflux {

/// Error below 2 ulp; 0 below -700, infinity above 709.
double portable_exp(double x);

/// The natural logarithm. Error below 2 ulp, near 1 below 1e-16.
double portable_log(double x);

/// log(1 + x) for x from 0 on. Error below 4 ulp.
double portable_log1p(double x);

/// base^exponent for a base above 0. The error grows with the logarithm of the result: below 20 ulp
/// from 1e-8 to 1e8.
double portable_pow(double base, double exponent);

struct SineAndCosine {
  double sine;
  double cosine;
};
/// Error below 1e-15 to 13 million; not a number from 2^40 on.
SineAndCosine portable_sin_cos(double angle);

}  // namespace moeflux
