// Gates in f64, with the same bits on every machine.
#pragma once

#include "base/portable_math.h"

namespace moeflux::cpu {

inline double sigmoid(double x) { return 1.0 / (1.0 + portable_exp(-x)); }
inline double softplus(double x) { return x > 20.0 ? x : portable_log1p(portable_exp(x)); }

}  // namespace moeflux::cpu
