// The rows of sequences that have several each in one launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/gpu/launch/plan.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/sequence_rows.h"

namespace moeflux::gpu {

struct Segment {
  size_t sequence = 0;  // its number
  uint32_t row = 0;     // the first one
  uint32_t rows = 0;
};

/// for_each_run() of runs of a row each, but that all sequences from the first one on that has
/// several are one run.
template <typename Sequence, typename Visit>
void for_each_joined(std::span<const Sequence> sequences, int64_t rows, const Visit& visit) {
  size_t singles = 0;
  while (singles < sequences.size() && sequences[singles].rows == 1) ++singles;
  if (sequences.size() - singles < 2) return for_each_run(sequences, rows, /*joins=*/true, visit);
  const auto begin = static_cast<int64_t>(singles);
  for_each_run(sequences.first(singles), begin, /*joins=*/true, visit);
  visit(sequences.subspan(singles),
        [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, begin, rows - begin); });
}

/// The sequences that have rows, those with the most first: groups start in their order, and the
/// longest ones must not be the last to end.
template <typename Sequence>
void list_segments(std::span<const Sequence> sequences, std::vector<Segment>& segments) {
  segments.clear();
  uint32_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto rows = static_cast<uint32_t>(sequences[i].rows);
    if (rows > 0) segments.push_back({i, row, rows});
    row += rows;
  }
  // A sort allocates, also where rows of one token each leave nothing to do.
  if (std::ranges::is_sorted(segments, std::ranges::greater{}, &Segment::rows)) return;
  std::ranges::stable_sort(segments, std::ranges::greater{}, &Segment::rows);
}

/// The tables that kernels/segments.h describes.
struct SegmentTables {
  Binding segments;
  Binding blocks;
  uint32_t num_blocks = 0;

  bool is_null() const { return segments.buffer == nullptr; }
};

/// A block is so many units, of which a row has `row_units`. False if the recorder fails.
bool place_segments(Recorder& recorder, std::span<const Segment> segments, uint32_t block,
                    uint32_t row_units, SegmentTables& tables);
/// The most bytes that they take.
size_t segment_bytes(std::span<const Segment> segments, uint32_t block, uint32_t row_units);

}  // namespace moeflux::gpu
