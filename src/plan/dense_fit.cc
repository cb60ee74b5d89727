#include "plan/dense_fit.h"

#include "base/check.h"
#include "base/format.h"
#include "plan/memory_plan.h"
#include "quant/ggml_types.h"

namespace moeflux {
namespace {

// The largest first.
constexpr std::string_view kTypes[] = {"BF16", "Q8_0",    "Q6_K", "Q5_K",    "Q4_K", "IQ4_XS",
                                       "Q3_K", "IQ3_XXS", "Q2_K", "IQ2_XXS", "IQ1_S"};

constexpr std::string_view kStreamHint = "--stream-dense reads its layers from the drive";

}  // namespace

std::string largest_type_within(uint64_t parameters, uint64_t bytes) {
  for (const std::string_view name : kTypes) {
    const GgmlType* type = find_ggml_type(name);
    MF_CHECK(type != nullptr);
    const double bytes_each =
        static_cast<double>(type->block_bytes) / static_cast<double>(type->block_elements);
    const auto size = static_cast<uint64_t>(static_cast<double>(parameters) * bytes_each);
    if (size > bytes) continue;
    return formatted("{}, whose weights take {}, is the largest type that would fit", name,
                     format_bytes(size));
  }
  return "no type of weights would fit";
}

Status check_dense_fit(const LoadedModel& counted, const DenseFit& fit) {
  if (counted.experts.num_experts_total() > 0) return {};
  const uint64_t state =
      fit.device_bytes == 0 ? state_bytes(counted, fit.context_length, fit.step_tokens) : 0;
  const uint64_t reserve = memory_reserve(fit.available_bytes);
  const uint64_t beside = state + reserve;
  const uint64_t room =
      fit.device_bytes + (fit.available_bytes > beside ? fit.available_bytes - beside : 0);
  if (counted.dense.bytes <= room) return {};
  if (fit.device_bytes > 0) {
    return make_error(ErrorCode::kResourceExhausted,
                      "the model has no experts that could stay on the drive: its weights take {}, "
                      "of which the device holds {}, a reserve {}, and {} of the host's memory are "
                      "free; {}; {}",
                      format_bytes(counted.dense.bytes), format_bytes(fit.device_bytes),
                      format_bytes(reserve), format_bytes(fit.available_bytes),
                      largest_type_within(counted.dense.parameters, room), kStreamHint);
  }
  return make_error(ErrorCode::kResourceExhausted,
                    "the model has no experts that could stay on the drive: its weights take {}, a "
                    "sequence of {} "
                    "tokens {}, a reserve {}, and {} of memory are free; {}; {}",
                    format_bytes(counted.dense.bytes), fit.context_length, format_bytes(state),
                    format_bytes(reserve), format_bytes(fit.available_bytes),
                    largest_type_within(counted.dense.parameters, room), kStreamHint);
}

}  // namespace moeflux
