// Exponential and logarithm in plain IEEE arithmetic: libm's differ between platforms in the last
// bit, which would let a seed mean another text.
#pragma once

namespace moeflux {

/// Error below 2 ulp; 0 below -700.
double portable_exp(double x);

/// The natural logarithm of a number above 0 that is not subnormal. Error below 2 ulp, near 1 below
/// 1e-16.
double portable_log(double x);

}  // namespace moeflux
