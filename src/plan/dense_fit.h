// Whether a model without experts fits memory, asked before its weights are read.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "load/model_loader.h"

namespace moeflux {

struct DenseFit {
  uint64_t available_bytes = 0;  // of the host
  int64_t context_length = 0;    // tokens whose state is set aside
  int64_t step_tokens = 0;
  uint64_t device_bytes = 0;  // of the weights, in a device's own memory, where the state is too
};

/// Fails with kResourceExhausted where the weights of a model without experts and the state of a
/// sequence take more than memory has beside memory_reserve(). Says what they take, what there is,
/// and the largest quantisation that would fit. `counted` has the sizes of the model that will be
/// loaded, and its cache types.
Status check_dense_fit(const LoadedModel& counted, const DenseFit& fit);

/// The GGUF type of most bits a weight whose `parameters` fit `bytes`, with its size; or that none
/// does.
std::string largest_type_within(uint64_t parameters, uint64_t bytes);

}  // namespace moeflux
