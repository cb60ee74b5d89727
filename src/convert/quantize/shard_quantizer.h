// Makes the tensors of one shard of a quantised model: reads what the source has, decodes it, and
// encodes it anew.
#pragma once

#include <vector>

#include "backend/device.h"
#include "convert/pipeline.h"
#include "convert/quantize/quantize_plan.h"

namespace moeflux {

/// Hands the bytes of each file's tensors to its sink in their order. `host` gives memory that the
/// host addresses.
Status make_quantized_shard(const QuantizedShard& shard, const LoadedModel& source, Device& host,
                            Pipeline& pipeline, const std::vector<ByteSink>& files);

/// Memory that making an expert takes, of the layer that takes most.
uint64_t expert_work_bytes(const LoadedModel& source);

}  // namespace moeflux
