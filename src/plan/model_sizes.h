// How large a model is and what a token of it touches: the figures by which models are compared.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "load/model_loader.h"

namespace moeflux {

struct ModelSizes {
  uint64_t parameters = 0;
  /// Without embeddings, which are lookups, and with the experts that a token is routed to.
  uint64_t active_parameters = 0;
  uint64_t experts = 0;           // in all layers
  uint64_t bytes_per_expert = 0;  // of the largest
  uint64_t experts_bytes = 0;
  uint64_t dense_bytes = 0;             // everything else in memory, as stored
  uint64_t table_bytes = 0;             // of tables of which tokens read rows from the drive
  uint64_t active_bytes_per_token = 0;  // read when nothing is cached and one token is evaluated
  uint64_t active_experts_bytes_per_token = 0;
  uint64_t kv_bytes_per_token = 0;  // added to a sequence's state; layers with a window included
  uint64_t recurrent_bytes = 0;     // of a sequence's state, whatever its length

  uint64_t total_bytes() const { return experts_bytes + dense_bytes + table_bytes; }
};

ModelSizes measure_model(const LoadedModel& model);

/// Bytes that are read for an expert, by the formats of its matrices: "q4_k", or "q4_k, q4_k, q6_k"
/// of gate, up and down where they differ. The largest where layers of the same formats differ.
std::map<std::string, uint64_t> expert_bytes_by_format(const ExpertTable& experts);

/// Bytes of the distinct experts that a step of so many tokens uses when every expert is equally
/// likely: exact for one token, more than natural text needs for several.
double expected_expert_bytes(const LoadedModel& model, int64_t tokens);

/// Bytes of a sequence's state that the step of its token `length` - 1 reads.
double state_bytes_seen(const LoadedModel& model, int64_t length);
/// The same with the states of a fixed size that the step writes. A token's part of the others is
/// nothing beside them.
double state_bytes_moved(std::span<const LayerStateSpec> states, int64_t length);

/// An expert's bytes on average over layers: counters of experts do not tell layers apart. 0
/// without experts.
double mean_expert_bytes(const ExpertTable& experts);

}  // namespace moeflux
