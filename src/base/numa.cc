#include "base/numa.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#if defined(__linux__)
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace moeflux {
namespace {

constexpr int kNumbersMax = 1024;  // of cores and of nodes: as many as the system's masks have

/// The number that `text` begins with, taken off it; none above kNumbersMax.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= kNumbersMax) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// The numbers of a list like "0-3,8"; those before anything else.
std::vector<int> parse_list(std::string_view text) {
  std::vector<int> numbers;
  while (const std::optional<int> first = take_number(text)) {
    std::optional<int> last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    if (!last) break;
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return numbers;
}

std::vector<int> read_list(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_list(line);
}

}  // namespace

std::vector<int> allowed_cores() {
  std::vector<int> cores;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
#endif
  return cores;
}

std::vector<NumaNode> read_numa_nodes(const std::string& root, std::span<const int> allowed) {
  const std::string folder = root + "/sys/devices/system/node/";
  std::vector<NumaNode> nodes;
  for (const int id : read_list(folder + "online")) {
    NumaNode node{.id = id, .cores = read_list(folder + "node" + std::to_string(id) + "/cpulist")};
    std::erase_if(node.cores,
                  [&](int core) { return std::ranges::find(allowed, core) == allowed.end(); });
    if (!node.cores.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<NumaNode> choose_numa_nodes(NumaMode mode, std::vector<NumaNode> nodes, int core) {
  if (mode == NumaMode::kOff || nodes.size() < 2) return {};
  if (mode == NumaMode::kDistribute) return nodes;
  const auto has_core = [core](const NumaNode& node) {
    return std::ranges::find(node.cores, core) != node.cores.end();
  };
  const auto own = std::ranges::find_if(nodes, has_core);
  return {own != nodes.end() ? *own : nodes.front()};
}

int current_core() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

ThreadCores place_threads(int threads, bool pinned, std::span<const NumaNode> nodes,
                          std::span<const int> allowed) {
  ThreadCores placed;
  const size_t count = static_cast<size_t>(std::max(threads, 0));
  if (nodes.empty() && (!pinned || allowed.empty())) return placed;
  const size_t parts = std::max<size_t>(nodes.size(), 1);
  for (size_t i = 0; i < count; ++i) {
    const size_t part = i * parts / count;
    const std::span<const int> cores = nodes.empty() ? allowed : std::span(nodes[part].cores);
    const size_t first = (part * count + parts - 1) / parts;  // thread of this node
    const size_t at = (i - first) % cores.size();
    if (pinned) {
      placed.push_back({cores[at]});
    } else {
      placed.emplace_back(cores.begin(), cores.end());
    }
  }
  return placed;
}

void stay_on_cores(std::span<const int> cores) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
#else
  (void)cores;
#endif
}

bool interleave_pages(void* begin, size_t bytes, std::span<const NumaNode> nodes) {
#if defined(__linux__)
  constexpr size_t kWordBits = 8 * sizeof(unsigned long);
  unsigned long mask[kNumbersMax / kWordBits] = {};
  for (const NumaNode& node : nodes) {
    const auto id = static_cast<size_t>(node.id);
    mask[id / kWordBits] |= 1ul << id % kWordBits;
  }
  // The system takes one bit less than it is told of.
  return syscall(SYS_mbind, begin, bytes, MPOL_INTERLEAVE, mask, kNumbersMax + 1, 0) == 0;
#else
  (void)begin, (void)bytes, (void)nodes;
  return false;
#endif
}

}  // namespace moeflux
