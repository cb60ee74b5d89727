#include "plan/dense_fit.h"

#include "base/format.h"
#include "plan/memory_plan.h"

namespace moeflux {
namespace {

struct WeightType {
  std::string_view name;
  double bits;  // of a weight, scales included
};

constexpr WeightType kTypes[] = {{"BF16", 16.0},      {"Q8_0", 8.5},       {"Q6_K", 6.5625},
                                 {"Q5_K", 5.5},       {"Q4_K", 4.5},       {"IQ4_XS", 4.25},
                                 {"Q3_K", 3.4375},    {"IQ3_XXS", 3.0625}, {"Q2_K", 2.625},
                                 {"IQ2_XXS", 2.0625}, {"IQ1_S", 1.5625}};

}  // namespace

std::string largest_type_within(uint64_t parameters, uint64_t bytes) {
  for (const WeightType& type : kTypes) {
    const auto size = static_cast<uint64_t>(static_cast<double>(parameters) * type.bits / 8.0);
    if (size > bytes) continue;
    return formatted("{}, whose weights take {}, is the largest type that would fit", type.name,
                     format_bytes(size));
  }
  return "no type of weights would fit";
}

Status check_dense_fit(const LoadedModel& counted, const DenseFit& fit) {
  if (counted.experts.num_experts_total() > 0) return {};
  uint64_t state = 0;
  if (fit.device_bytes == 0) {
    for (const LayerStateSpec& layer : counted.states()) {
      state += SequenceState::bytes_held(layer, fit.context_length, fit.step_tokens);
    }
  }
  const uint64_t reserve = memory_reserve(fit.available_bytes);
  const uint64_t beside = state + reserve;
  const uint64_t room =
      fit.device_bytes + (fit.available_bytes > beside ? fit.available_bytes - beside : 0);
  if (counted.dense.bytes <= room) return {};
  if (fit.device_bytes > 0) {
    return make_error(ErrorCode::kResourceExhausted,
                      "the model has no experts that could stay on the drive: its weights take {}, "
                      "of which the device holds {}, a reserve {}, and {} of the host's memory are "
                      "free; {}",
                      format_bytes(counted.dense.bytes), format_bytes(fit.device_bytes),
                      format_bytes(reserve), format_bytes(fit.available_bytes),
                      largest_type_within(counted.dense.parameters, room));
  }
  return make_error(ErrorCode::kResourceExhausted,
                    "the model has no experts that could stay on the drive: its weights take {}, a "
                    "sequence of {} "
                    "tokens {}, a reserve {}, and {} of memory are free; {}",
                    format_bytes(counted.dense.bytes), fit.context_length, format_bytes(state),
                    format_bytes(reserve), format_bytes(fit.available_bytes),
                    largest_type_within(counted.dense.parameters, room));
}

}  // namespace moeflux
