// Nodes of memory with the cores near each, and where threads and buffers go on a machine with more
// than one. Knows nothing about what is computed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace moeflux {

struct NumaNode {
  int id = 0;
  std::vector<int> cores;
};

enum class NumaMode {
  kOff,         // where the system puts threads and memory
  kDistribute,  // an even share of both on each node
  kIsolate,     // both on one node
};

/// The cores that each thread of a pool stays on, by thread; empty: anywhere.
using ThreadCores = std::vector<std::vector<int>>;

/// The cores that this thread may use, ascending. Empty where the system does not tell.
std::vector<int> allowed_cores();

/// Nodes by id, with those of their cores that are among `allowed`; a node without one is left out.
/// `root` has Linux' /sys: "" is the machine's, tests make one up. Empty where there is none.
std::vector<NumaNode> read_numa_nodes(const std::string& root, std::span<const int> allowed);

/// The nodes to compute on: all of them, or the one of `core`. Empty, so that nothing changes, when
/// off and where there are fewer than two.
std::vector<NumaNode> choose_numa_nodes(NumaMode mode, std::vector<NumaNode> nodes, int core);

/// The core that this thread runs on, or -1 where the system does not tell.
int current_core();

/// Consecutive threads share a node, as they share consecutive rows of a weight. Without nodes they
/// stay where the system puts them. Pinned ones have a core each, of their node or of `allowed`.
ThreadCores place_threads(int threads, bool pinned, std::span<const NumaNode> nodes,
                          std::span<const int> allowed);

/// Keeps this thread on these cores. A wish: a core may have been taken away.
void stay_on_cores(std::span<const int> cores);

/// Pages in turn on each of the nodes, of memory at a page's begin that nobody has touched. False
/// where the system refuses, as containers may: a page then lies where it is first touched.
bool interleave_pages(void* begin, size_t bytes, std::span<const NumaNode> nodes);

}  // namespace moeflux
