#include "experts/drive/arrival_check.h"

#include "base/format.h"
#include "checkpoint/checksum.h"

namespace moeflux {

ArrivalCheck::ArrivalCheck(const ExpertTable& table, const TensorIndex& files)
    : table_(table), files_(files) {
  for (const ExpertLayer& layer : table.layers) done_.emplace_back(layer.checksums.size());
}

Status ArrivalCheck::check(ExpertKey key, std::span<const std::byte> slot) {
  const ExpertLayer& layer = table_.layer(key.layer);
  std::vector<bool>& done = done_[static_cast<size_t>(index(key.layer))];
  const auto expert = static_cast<size_t>(index(key.expert));
  if (done.empty() || done[expert]) return {};
  const uint64_t found = checksum64(slot.first(layer.checked_bytes));
  if (found != layer.checksums[expert]) {
    const ExpertExtent& first = layer.extents_of(key.expert).front();
    return make_error(ErrorCode::kCorruption,
                      "{}: {} bytes at offset {} have checksum {}, expected {}; the file is "
                      "damaged",
                      files_.file(first.file).path(), layer.checked_bytes, first.offset,
                      checksum_text(found), checksum_text(layer.checksums[expert]));
  }
  done[expert] = true;
  return {};
}

}  // namespace moeflux
