#include "backend/gpu/launch/segments.h"

#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

u64 word_of(uint32_t first, uint64_t number) { return first | number << 32; }

}  // namespace

size_t segment_bytes(std::span<const Segment> segments, uint32_t block, uint32_t row_units) {
  size_t words = segments.size();
  for (const Segment& s : segments) words += groups_for(uint64_t{s.rows} * row_units, block);
  return words * sizeof(u64) + DeviceTables::kAlignment;
}

bool place_segments(Recorder& recorder, std::span<const Segment> segments, uint32_t block,
                    uint32_t row_units, SegmentTables& tables) {
  std::vector<u64>& words = recorder.table_words();
  words.clear();
  for (const Segment& s : segments) words.push_back(word_of(s.row, s.rows));
  for (size_t i = 0; i < segments.size(); ++i) {
    const uint32_t units = segments[i].rows * row_units;
    for (uint32_t first = 0; first < units; first += block) words.push_back(word_of(first, i));
  }
  Binding all;
  if (!recorder.place_table(std::as_bytes(std::span(words)), all)) return false;
  const size_t bytes = segments.size() * sizeof(u64);
  tables.segments = tables.blocks = all;
  tables.segments.size_bytes = bytes;
  tables.blocks.offset_bytes += bytes;
  tables.blocks.size_bytes -= bytes;
  tables.num_blocks = static_cast<uint32_t>(words.size() - segments.size());
  return true;
}

}  // namespace moeflux::gpu
