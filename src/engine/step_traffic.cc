#include "engine/step_traffic.h"

#include "plan/dry_run.h"
#include "plan/model_sizes.h"

namespace moeflux {

Result<StepTraffic> StepTraffic::of(const LoadedModel& model) {
  MF_ASSIGN_OR_RETURN(const DryRun token, dry_run(*model.model, 1, 1));
  return StepTraffic(model, token.weight_bytes);
}

StepTraffic::StepTraffic(const LoadedModel& model, uint64_t dense_bytes)
    : model_(&model),
      dense_bytes_(static_cast<double>(dense_bytes)),
      expert_bytes_(mean_expert_bytes(model.experts)),
      states_(model.states()) {}

double StepTraffic::decode_bytes(std::span<const int64_t> lengths, int64_t rows,
                                 uint64_t experts) const {
  double bytes = dense_bytes_;
  bytes += experts > 0 ? static_cast<double>(experts) * expert_bytes_
                       : expected_expert_bytes(*model_, rows);
  for (const int64_t length : lengths) bytes += state_bytes_moved(states_, length);
  return bytes;
}

}  // namespace moeflux
