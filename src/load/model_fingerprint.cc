#include "load/model_fingerprint.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "load/expert_tensors.h"

namespace moeflux {
namespace {

constexpr uint64_t kSampleBytes = 4096;

/// Name, type and shape of a tensor, and the checksum of its middle.
Result<std::string> describe_tensor(const TensorIndex& index, const std::string& name,
                                    const TensorEntry& entry) {
  std::vector<std::byte> sample(std::min<uint64_t>(kSampleBytes, entry.size_bytes));
  const uint64_t begin = (entry.size_bytes - sample.size()) / 2;
  MF_RETURN_IF_ERROR(index.file(entry.file).read_at(entry.offset_bytes + begin, sample));
  return formatted("{} {} {} {} {}\n", name.size(), name, dtype_name(entry.dtype),
                   entry.shape.to_string(), checksum_text(checksum64(sample)));
}

std::string describe_format(const Weight& matrix) {
  const QuantFormat format = matrix.format.with_order(WeightOrder::kRowMajor);
  return formatted(" {} {}x{}", format.to_string(), matrix.rows, matrix.cols);
}

/// How often each half-byte lies in an expert's bytes, which no order of them changes. Zeros are
/// left out: packs pad with them.
Result<std::string> count_half_bytes(const TensorIndex& index, const ExpertLayer& layer,
                                     ExpertId expert) {
  std::array<uint64_t, 16> counts{};
  std::vector<std::byte> bytes;
  for (const ExpertExtent& extent : layer.extents_of(expert)) {
    bytes.resize(extent.bytes);
    MF_RETURN_IF_ERROR(index.file(extent.file).read_at(extent.offset, bytes));
    for (const std::byte byte : bytes) {
      ++counts[static_cast<size_t>(byte & std::byte{15})];
      ++counts[static_cast<size_t>(byte >> 4)];
    }
  }
  std::string text;
  for (size_t value = 1; value < counts.size(); ++value) text += formatted(" {}", counts[value]);
  return text;
}

Result<std::string> describe_experts(const LoadedModel& model) {
  std::string text;
  const ExpertLayer* first = nullptr;
  const ExpertLayer* last = nullptr;
  for (const ExpertLayer& layer : model.experts.layers) {
    text += formatted("{}", layer.num_experts);
    if (layer.num_experts > 0) {
      first = first == nullptr ? &layer : first;
      last = &layer;
      for (const Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
        if (matrix->rows == 0) continue;
        text += describe_format(*matrix);
      }
    }
    text += "\n";
  }
  if (first == nullptr) return text;
  for (const ExpertLayer* layer : {first, last}) {
    MF_ASSIGN_OR_RETURN(const std::string counts,
                        count_half_bytes(model.index, *layer, ExpertId{0}));
    text += counts + "\n";
  }
  return text;
}

}  // namespace

Result<uint64_t> model_fingerprint(const LoadedModel& model) {
  MF_ASSIGN_OR_RETURN(const SortedJson config, parse_sorted_json(model.config_json, "config.json"));
  std::string text = config.dump() + "\n";
  if (model.spec().for_short_texts) text += "positions of short texts\n";
  const std::set<std::string> experts = names_of_expert_tensors(model.index, model.experts);
  for (const auto& [name, entry] : model.index.entries()) {
    if (experts.contains(name)) continue;
    MF_ASSIGN_OR_RETURN(const std::string tensor, describe_tensor(model.index, name, entry));
    text += tensor;
  }
  MF_ASSIGN_OR_RETURN(const std::string described, describe_experts(model));
  return checksum64(text + described);
}

}  // namespace moeflux
