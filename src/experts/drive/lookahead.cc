#include "experts/drive/lookahead.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {
namespace {

// A trial weighs half after 69 further ones: routing drifts with the text, over hundreds of tokens.
constexpr double kTrialFade = 0.99;
// A layer's own counters outweigh those of its rank in all layers from this many trials on.
constexpr double kPriorTrials = 4.0;
// Assumed precision before the first trial. Published routers recall more than half, but most of
// those experts are cached.
constexpr double kPriorPrecision = 0.25;
constexpr double kAverageFade = 0.98;
// While off, one token in so many is looked at: a router is 0.03 ms of a layer's millisecond.
constexpr uint32_t kProbeEvery = 16;
// Visits of a layer before it may be off: nothing is known yet.
constexpr uint32_t kLearningVisits = 16;
constexpr size_t kGuessesMax = 6;

double net_reads(double precision, const DriveLoad& load) {
  return precision * std::min(1.0, load.spare_reads) - (1.0 - precision) * load.utilisation;
}

void average(double& mean, double value) {
  mean = kAverageFade * mean + (1.0 - kAverageFade) * value;
}

}  // namespace

std::optional<LookaheadMode> parse_lookahead_mode(std::string_view name) {
  if (name == "auto") return LookaheadMode::kAuto;
  if (name == "on") return LookaheadMode::kOn;
  if (name == "off") return LookaheadMode::kOff;
  return std::nullopt;
}

double break_even_precision(const DriveLoad& load) {
  const double saved = std::min(1.0, load.spare_reads);
  const double at_stake = load.utilisation + saved;
  return at_stake > 0.0 ? load.utilisation / at_stake : 1.0;
}

void Lookahead::Counter::add(bool right) {
  tried = kTrialFade * tried + 1.0;
  came_true = kTrialFade * came_true + (right ? 1.0 : 0.0);
}

Lookahead::Lookahead(const Options& options)
    : options_(options),
      counters_(static_cast<size_t>(options.num_layers * options.top_k)),
      ranks_(static_cast<size_t>(options.top_k)),
      visits_(static_cast<size_t>(options.num_layers)) {
  remembered_.reserve(static_cast<size_t>(options.top_k));
  chosen_.reserve(static_cast<size_t>(options.top_k));
}

bool Lookahead::is_on() const {
  if (options_.mode != LookaheadMode::kAuto) return options_.mode == LookaheadMode::kOn;
  return gain_seconds_ > cost_seconds_;
}

bool Lookahead::wants(LayerId layer) {
  if (options_.mode == LookaheadMode::kOff) return false;
  const uint32_t visit = visits_[static_cast<size_t>(index(layer))]++;
  return is_on() || visit < kLearningVisits || visit % kProbeEvery == 0;
}

double Lookahead::precision(LayerId layer, int32_t rank) const {
  const Counter& everywhere = ranks_[static_cast<size_t>(rank)];
  const double prior =
      (everywhere.came_true + kPriorTrials * kPriorPrecision) / (everywhere.tried + kPriorTrials);
  const Counter& here = counter(layer, rank);
  return (here.came_true + kPriorTrials * prior) / (here.tried + kPriorTrials);
}

std::span<const ExpertGuess> Lookahead::choose(LayerId layer, std::span<const ExpertGuess> absent,
                                               const DriveLoad& load) {
  MF_CHECK(absent.size() <= static_cast<size_t>(options_.top_k));
  remembered_.assign(absent.begin(), absent.end());
  remembered_of_ = layer;
  chosen_.clear();
  const auto spare = static_cast<size_t>(std::max(1.0, load.spare_reads));
  const bool all = options_.mode == LookaheadMode::kOn;
  const size_t most = all ? kGuessesMax : std::min(kGuessesMax, spare);
  const double least = break_even_precision(load);
  double gain = 0.0;
  for (const ExpertGuess& guess : absent) {
    if (chosen_.size() == most) break;
    const double right = precision(layer, guess.rank);
    if (!all && right <= least) continue;
    gain += net_reads(right, load) * load.read_seconds;
    chosen_.push_back(guess);
  }
  average(gain_seconds_, gain);
  if (!is_on()) chosen_.clear();
  return chosen_;
}

void Lookahead::settle(LayerId layer, std::span<const int32_t> chosen) {
  if (remembered_of_ != layer) return;
  remembered_of_.reset();
  for (const ExpertGuess& guess : remembered_) {
    const bool right = std::find(chosen.begin(), chosen.end(), index(guess.expert)) != chosen.end();
    counter(layer, guess.rank).add(right);
    ranks_[static_cast<size_t>(guess.rank)].add(right);
  }
}

void Lookahead::note_cost(double seconds) { average(cost_seconds_, seconds); }

}  // namespace moeflux
