#include "convert/pack/pack_gain.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {
namespace {

// The cost of a read beside its bytes, in bytes. From benchmarks/results/2026-11-23-gguf.md: nine
// reads of 1.77 MB in all were 0.75 to 1.18 times as fast as the pack's one read in decode, 0.89
// and 0.90 in a prompt, three reads of as much 0.92 to 1.13. This gives 0.87 and 0.97. One drive,
// in a virtual machine: doubt it on others.
constexpr double kReadBytes = 32768.0;
// Experts that are written a second time to become what kernels want, as tiles, were 0.75 and 0.77
// times as fast with those nine reads: 0.15 of their bytes more.
constexpr double kArrangeShare = 0.15;
// More has not been measured.
constexpr double kGainMax = 2.0;
// Less is within what two runs of one program differ by.
constexpr double kWorthALine = 1.1;

int reads_of(std::span<const ExpertExtent> extents) {
  int reads = 0;
  const ExpertExtent* last = nullptr;
  for (const ExpertExtent& extent : extents) {
    reads += adjoins(extent, last) ? 0 : 1;
    last = &extent;
  }
  return reads;
}

/// Arrangements that a pack has behind it: its blobs are in the order of the slot.
bool pack_saves_arranging(ExpertArrangement arrangement) {
  switch (arrangement) {
    case ExpertArrangement::kAsStored:
    case ExpertArrangement::kInPlace:
    case ExpertArrangement::kReordered:  // packs keep what is converted as it is stored
      return false;
    case ExpertArrangement::kRowMajorParts:
    case ExpertArrangement::kInputMajorInterleaved:
    case ExpertArrangement::kInputMajorHalves:
    case ExpertArrangement::kAlternateRows:
      return true;
  }
  __builtin_unreachable();
}

}  // namespace

double pack_gain(const ExpertTable& experts) {
  double as_it_is = 0.0;
  double packed = 0.0;
  for (const ExpertLayer& layer : experts.layers) {
    if (layer.num_experts == 0 || layer.extents.empty()) continue;
    double bytes = 0.0;
    for (const ExpertExtent& extent : layer.extents_of(ExpertId{0})) {
      bytes += static_cast<double>(extent.bytes);
    }
    const double arranging = pack_saves_arranging(layer.arrangement) ? kArrangeShare * bytes : 0.0;
    const int reads = reads_of(layer.extents_of(ExpertId{0}));
    as_it_is += layer.num_experts * (bytes + arranging + reads * kReadBytes);
    packed += layer.num_experts * (bytes + kReadBytes);
  }
  return packed == 0.0 ? 1.0 : std::clamp(as_it_is / packed, 1.0, kGainMax);
}

std::string pack_hint(const std::string& path, const ExpertTable& experts, bool streams) {
  const double gain = pack_gain(experts);
  if (!streams || gain < kWorthALine) return {};
  int reads = 0;
  for (const ExpertLayer& layer : experts.layers) {
    if (!layer.extents.empty()) reads = std::max(reads, reads_of(layer.extents_of(ExpertId{0})));
  }
  return formatted(
      "{}: experts come from the drive in {} reads each; packed (moeflux pack) they would arrive "
      "about {:.1f} times as fast",
      path, reads, gain);
}

}  // namespace moeflux
