// WeightStore::experts: the spellings in which checkpoints hold routed experts, as extents of an
// ExpertLayer.
#include <array>
#include <functional>

#include "base/format.h"
#include "model/weight_store.h"

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 3> kProjections = {"gate_proj", "up_proj", "down_proj"};

struct PartSource {
  const TensorEntry* entry = nullptr;
  uint64_t offset = 0;  // inside the tensor
};
/// Where part (0 data, 1 scales, 2 biases) of matrix (0 gate, 1 up, 2 down) of an expert lies.
using SourceOf = std::function<PartSource(int64_t expert, size_t matrix, size_t part)>;

struct Part {
  uint64_t bytes;
  size_t slot_offset;
};

std::vector<Part> parts_of(const ExpertMatrix& matrix) {
  const WeightBytes bytes = weight_bytes(matrix.format, matrix.rows, matrix.cols);
  std::vector<Part> parts = {{bytes.data, matrix.data_offset}};
  if (matrix.format.kind == QuantKind::kAffine) {
    parts.push_back({bytes.scales, matrix.scales_offset});
    parts.push_back({bytes.biases, matrix.biases_offset});
  }
  return parts;
}

void fill_extents(ExpertLayer& layer, const SourceOf& source_of) {
  layer.slot_bytes = lay_out_slot(layer.gate, layer.up, layer.down);
  const std::array<std::vector<Part>, 3> parts = {parts_of(layer.gate), parts_of(layer.up),
                                                  parts_of(layer.down)};
  for (int64_t expert = 0; expert < layer.num_experts; ++expert) {
    for (size_t matrix = 0; matrix < parts.size(); ++matrix) {
      for (size_t part = 0; part < parts[matrix].size(); ++part) {
        const PartSource source = source_of(expert, matrix, part);
        layer.extents.push_back({source.entry->file, source.entry->offset_bytes + source.offset,
                                 parts[matrix][part].bytes, parts[matrix][part].slot_offset});
      }
    }
  }
  layer.extents_per_expert =
      static_cast<int32_t>(layer.extents.size() / static_cast<size_t>(layer.num_experts));
}

std::array<ExpertMatrix*, 3> matrices(ExpertLayer& layer) {
  return {&layer.gate, &layer.up, &layer.down};
}

}  // namespace

void WeightStore::experts(LayerId id, std::string_view prefix, const MoeSpec& moe,
                          int64_t hidden_size) {
  ExpertLayer layer;
  layer.num_experts = static_cast<int32_t>(moe.num_experts);
  layer.gate.rows = layer.up.rows = layer.down.cols = moe.moe_intermediate_size;
  layer.gate.cols = layer.up.cols = layer.down.rows = hidden_size;
  const auto under = [&](std::string_view name) {
    const std::string full = full_name(std::string(prefix) + std::string(name));
    return full.substr(0, full.size() - name.size());
  };
  bool found = false;
  if (has(std::string(prefix) + ".switch_mlp.gate_proj.weight")) {
    found = stacked_experts(layer, under(".switch_mlp.gate_proj.weight"));
  } else if (has(std::string(prefix) + ".experts.gate_up_proj")) {
    found = fused_experts(layer, under(".experts.gate_up_proj"));
  } else {
    found = separate_experts(layer, under(".experts.0.gate_proj.weight"));
  }
  if (found) experts_.layers[static_cast<size_t>(index(id))] = std::move(layer);
}

bool WeightStore::stacked_experts(ExpertLayer& layer, const std::string& prefix) {
  std::array<std::vector<const TensorEntry*>, 3> entries;
  for (size_t m = 0; m < kProjections.size(); ++m) {
    ExpertMatrix& matrix = *matrices(layer)[m];
    const std::string module = prefix + ".switch_mlp." + std::string(kProjections[m]);
    const std::optional<QuantFormat> format =
        module_format(module, ".weight", Shape{layer.num_experts, matrix.rows, matrix.cols});
    if (!format) return false;
    matrix.format = *format;
    entries[m] = claim_module(module, ".weight", *format);
  }
  fill_extents(layer, [&](int64_t expert, size_t matrix, size_t part) {
    const TensorEntry* entry = entries[matrix][part];
    const uint64_t stride = entry->size_bytes / static_cast<uint64_t>(layer.num_experts);
    return PartSource{entry, static_cast<uint64_t>(expert) * stride};
  });
  return true;
}

bool WeightStore::fused_experts(ExpertLayer& layer, const std::string& prefix) {
  const std::string gate_up = prefix + ".experts.gate_up_proj";
  const std::string down = prefix + ".experts.down_proj";
  const std::optional<QuantFormat> in_format =
      module_format(gate_up, "", Shape{layer.num_experts, 2 * layer.gate.rows, layer.gate.cols});
  const std::optional<QuantFormat> out_format =
      module_format(down, "", Shape{layer.num_experts, layer.down.rows, layer.down.cols});
  if (!in_format || !out_format) return false;
  layer.gate.format = layer.up.format = *in_format;
  layer.down.format = *out_format;
  const std::vector<const TensorEntry*> in = claim_module(gate_up, "", *in_format);
  const std::vector<const TensorEntry*> out = claim_module(down, "", *out_format);
  fill_extents(layer, [&](int64_t expert, size_t matrix, size_t part) {
    const TensorEntry* entry = matrix == 2 ? out[part] : in[part];
    const uint64_t stride = entry->size_bytes / static_cast<uint64_t>(layer.num_experts);
    const uint64_t up_half = matrix == 1 ? stride / 2 : 0;  // rows of gate, then rows of up
    return PartSource{entry, static_cast<uint64_t>(expert) * stride + up_half};
  });
  return true;
}

bool WeightStore::separate_experts(ExpertLayer& layer, const std::string& prefix) {
  // [expert][matrix] -> parts
  std::vector<std::array<std::vector<const TensorEntry*>, 3>> entries(
      static_cast<size_t>(layer.num_experts));
  for (size_t expert = 0; expert < entries.size(); ++expert) {
    for (size_t m = 0; m < kProjections.size(); ++m) {
      ExpertMatrix& matrix = *matrices(layer)[m];
      const std::string module = format("{}.experts.{}.{}", prefix, expert, kProjections[m]);
      const std::optional<QuantFormat> found =
          module_format(module, ".weight", Shape{matrix.rows, matrix.cols});
      if (!found) return false;
      if (expert == 0) matrix.format = *found;
      if (!(*found == matrix.format)) {
        fail(make_error(ErrorCode::kUnsupported,
                        "module {} is stored as {}, expert 0 of the layer as {}; the experts of a "
                        "layer must share one format",
                        module, found->to_string(), matrix.format.to_string()));
        return false;
      }
      entries[expert][m] = claim_module(module, ".weight", *found);
    }
  }
  fill_extents(layer, [&](int64_t expert, size_t matrix, size_t part) {
    return PartSource{entries[static_cast<size_t>(expert)][matrix][part], 0};
  });
  return true;
}

}  // namespace moeflux
