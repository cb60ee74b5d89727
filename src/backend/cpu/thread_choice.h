// How many threads compute, where nobody says: what reads memory fastest in a model's small loops.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/numa.h"

namespace moeflux::cpu {

/// The numbers of threads that are tried on so many cores, ascending: up to 8 cores all of them,
/// else 8, 16, 32 and so on, and all.
std::vector<int> thread_candidates(int cores);

/// The candidate for which `seconds_of` is least. The larger of two within a fiftieth: prompts gain
/// from cores that one token's reads do not need. Calls nothing where there is one candidate.
int choose_threads(int cores, const std::function<double(int)>& seconds_of);

/// As choose_threads(), by some 50 ms of loops over memory, beyond any cache, with threads and
/// memory on these nodes. Every core where the memory for it cannot be had.
int measured_threads(int cores, std::span<const NumaNode> nodes);

}  // namespace moeflux::cpu
