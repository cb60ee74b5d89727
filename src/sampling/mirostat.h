// Mirostat (Basu et al., 2021): keeps the candidates whose surprise a text can bear, and learns
// from the surprise of what was drawn. `mu` is the surprise aimed at, in bits; it starts at twice
// tau.
#pragma once

#include "sampling/candidates.h"

namespace moeflux {

/// Version 1: estimates from the best hundred how fast probabilities fall with rank (Zipf's
/// exponent), and keeps the k best, of which the k-th has a surprise of about mu. Minus infinity is
/// left out first.
void keep_for_mirostat(Candidates& candidates, double mu);

/// Version 2: keeps those whose surprise is at most mu, and the best one.
void keep_for_mirostat_2(Candidates& candidates, double mu);

/// mu after a token of so many bits of surprise among the candidates that were kept.
struct MirostatRate {
  double tau = 0.0;  // the surprise wanted
  double eta = 0.0;  // how fast mu follows
};
inline double next_mu(double mu, double surprise, const MirostatRate& rate) {
  return mu - rate.eta * (surprise - rate.tau);
}

}  // namespace moeflux
