// Finds the tensors of a checkpoint in which routed experts lie.
#pragma once

#include <set>
#include <string>

#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"

namespace moeflux {

/// Names of the tensors that the table's extents touch; none of a pack, whose files hold no
/// tensors.
std::set<std::string> names_of_expert_tensors(const TensorIndex& index, const ExpertTable& table);

}  // namespace moeflux
