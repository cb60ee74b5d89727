// Samplers that leave candidates out, and the temperature that depends on them. Each looks at the
// candidates alone and leaves at least one; options that would keep all are the caller's to see.
#pragma once

#include <cstddef>

#include "sampling/candidates.h"

namespace moeflux {

/// The k best, best first; all of them, in their order, where there are no more than k.
void keep_top_k(Candidates& candidates, size_t k);

/// The fewest, best first, whose probabilities reach p.
void keep_top_p(Candidates& candidates, double p);

/// Keeps candidates of at least min_p times the best one's probability.
void keep_min_p(Candidates& candidates, double min_p);

/// Locally typical ones (Meister et al., 2022): those whose surprise, -log(probability), is nearest
/// to its mean, which is the entropy; as few as have more than p together. Nearest first, equally
/// near ones by is_better().
void keep_typical(Candidates& candidates, double p);

/// Keeps candidates of no less than the highest logit less n standard deviations (Tang et al.,
/// "Top-n-sigma", 2024). The deviation is of all finite logits, temperature does not matter, and
/// minus infinity is never kept.
void keep_within_sigmas(Candidates& candidates, double n);

/// XTC ("exclude top choices"): of those whose probability is at least the threshold, the least
/// likely one alone stays.
void drop_top_choices(Candidates& candidates, double threshold);

/// Changes `temperature` for these candidates: from temperature - range where one has it all to
/// temperature + range where all are equally likely, by entropy as a share of the largest possible
/// one, to the power of the exponent. Not below 0.
struct DynamicTemperature {
  double temperature = 0.0;
  double range = 0.0;
  double exponent = 1.0;
};
double dynamic_temperature(const Candidates& candidates, const DynamicTemperature& options);

}  // namespace moeflux
