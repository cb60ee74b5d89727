// Whether a model whose experts stream would be faster as an expert pack: what its reads say.
#pragma once

#include <string>

#include "experts/expert_table.h"

namespace moeflux {

/// How many times as fast experts arrive that come in one read each, which is what a pack gives,
/// as the table's do; at least 1. An estimate: see the .cc for what it rests on.
double pack_gain(const ExpertTable& experts);

/// One line that names the gain and its reason, where experts of `path` stream and it is worth a
/// line; else empty.
std::string pack_hint(const std::string& path, const ExpertTable& experts, bool streams);

}  // namespace moeflux
