// The spellings in which checkpoints hold routed experts, as extents of an
// ExpertLayer.
//   stacked    P.switch_mlp.gate_proj.weight [E, m, h] (MLX; conversions of gpt-oss say
//              P.experts.gate_proj, of gemma4 P.experts.switch_glu.gate_proj)
//   fused      P.experts.gate_up_proj [E, 2m, h], P.experts.down_proj [E, h, m] (Hugging Face)
//   fused, input-major
//              P.experts.gate_up_proj [E, h, 2m] with gate and up in alternate columns (gpt-oss)
//   separate   P.experts.7.gate_proj.weight [m, h], or w1, w3, w2 (Hugging Face)
#include "model/expert_claims.h"

#include <array>
#include <functional>
#include <utility>

#include "base/format.h"
#include "model/stored_formats.h"

namespace moeflux {
namespace {

using Projections = std::array<std::string_view, 3>;
constexpr Projections kNamedProjections = {"gate_proj", "up_proj", "down_proj"};
constexpr Projections kNumberedProjections = {"w1", "w3", "w2"};

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

/// As checkpoints hold them: row-major.
std::vector<Part> parts_of(const ExpertMatrix& matrix) {
  const QuantFormat stored = matrix.format.with_order(WeightOrder::kRowMajor);
  const WeightBytes bytes = weight_bytes(stored, matrix.rows, matrix.cols);
  std::vector<Part> parts = {{bytes.data, matrix.data_offset}};
  if (matrix.format.order == WeightOrder::kTiled) {
    parts.push_back({bytes.scales, parts.back().slot_offset + bytes.data});
    parts.push_back({bytes.biases, parts.back().slot_offset + bytes.scales});
  } else if (matrix.format.kind == QuantKind::kAffine) {
    parts.push_back({bytes.scales, matrix.scales_offset});
    parts.push_back({bytes.biases, matrix.biases_offset});
  }
  return parts;
}

std::array<ExpertMatrix*, 3> matrices(ExpertLayer& layer) {
  return {&layer.gate, &layer.up, &layer.down};
}

std::array<ExpertBias*, 3> biases(ExpertLayer& layer) {
  return {&layer.gate_bias, &layer.up_bias, &layer.down_bias};
}

uint64_t bytes_of_expert(const ExpertLayer& layer, const TensorEntry& stacked) {
  return stacked.size_bytes / static_cast<uint64_t>(layer.num_experts);
}

/// Row-major tensors of the checkpoint, in the layer's layout; `stacked_biases` are [E, size]
/// tensors of gate, up and down; empty when there are none.
void fill_extents(ExpertLayer& layer, const SourceOf& source_of,
                  const std::vector<const TensorEntry*>& stacked_biases = {}) {
  lay_out_slot(layer);
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
    for (size_t b = 0; b < stacked_biases.size(); ++b) {
      const TensorEntry& entry = *stacked_biases[b];
      const uint64_t bytes = bytes_of_expert(layer, entry);
      layer.extents.push_back({entry.file,
                               entry.offset_bytes + static_cast<uint64_t>(expert) * bytes, bytes,
                               biases(layer)[b]->offset});
    }
  }
  layer.extents_per_expert =
      static_cast<int32_t>(layer.extents.size() / static_cast<size_t>(layer.num_experts));
}

class ExpertSpellings {
 public:
  ExpertSpellings(TensorClaims& claims, const QuantConfig& quant, const Device& device)
      : claims_(claims), quant_(quant), device_(device) {}

  bool claim(ExpertLayer& layer, const std::string& prefix, bool with_bias);

 private:
  const TensorEntry* claim_bias(const std::string& name, const Shape& shape, DType dtype);
  bool stacked(ExpertLayer& layer, const std::string& prefix, bool with_bias);
  bool fused(ExpertLayer& layer, const std::string& prefix);
  bool fused_input_major(ExpertLayer& layer, const std::string& prefix);
  bool separate(ExpertLayer& layer, const std::string& prefix,
                std::span<const std::string_view> projections);
  std::optional<QuantFormat> find(const std::string& module, std::string_view weight_name,
                                  const Shape& shape) {
    return find_format(claims_, quant_, module, weight_name, shape);
  }

  TensorClaims& claims_;
  const QuantConfig& quant_;
  const Device& device_;
};

bool ExpertSpellings::claim(ExpertLayer& layer, const std::string& prefix, bool with_bias) {
  const auto under = [&](std::string_view name) {
    const std::string full = claims_.full_name(prefix + std::string(name));
    return full.substr(0, full.size() - name.size());
  };
  for (const std::string stack : {".switch_mlp.", ".experts.", ".experts.switch_glu."}) {
    const std::string gate = stack + "gate_proj.weight";
    if (claims_.has(prefix + gate)) return stacked(layer, under(gate) + stack, with_bias);
  }
  if (claims_.has(prefix + ".experts.gate_up_proj")) {
    const std::string full = under(".experts.gate_up_proj");
    return with_bias ? fused_input_major(layer, full) : fused(layer, full);
  }
  if (claims_.has(prefix + ".experts.0.w1.weight")) {
    return separate(layer, under(".experts.0.w1.weight"), kNumberedProjections);
  }
  return separate(layer, under(".experts.0.gate_proj.weight"), kNamedProjections);
}

const TensorEntry* ExpertSpellings::claim_bias(const std::string& name, const Shape& shape,
                                               DType dtype) {
  const TensorEntry* entry = claims_.claim(name);
  if (entry == nullptr) return nullptr;
  if (entry->shape == shape && entry->dtype == dtype) return entry;
  claims_.fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected {} {}", name,
                          dtype_name(entry->dtype), entry->shape.to_string(), dtype_name(dtype),
                          shape.to_string()));
  return nullptr;
}

bool ExpertSpellings::stacked(ExpertLayer& layer, const std::string& prefix, bool with_bias) {
  std::array<std::vector<const TensorEntry*>, 3> entries;
  std::vector<const TensorEntry*> bias_entries;
  for (size_t m = 0; m < kNamedProjections.size(); ++m) {
    ExpertMatrix& matrix = *matrices(layer)[m];
    const std::string module = prefix + std::string(kNamedProjections[m]);
    const std::optional<QuantFormat> format =
        find(module, ".weight", Shape{layer.num_experts, matrix.rows, matrix.cols});
    if (!format) return false;
    matrix.format = *format;
    entries[m] = claim_parts(claims_, module, ".weight", *format);
    if (!with_bias) continue;
    ExpertBias& bias = *biases(layer)[m];
    bias = {format->dtype, matrix.rows, 0};
    bias_entries.push_back(
        claim_bias(module + ".bias", Shape{layer.num_experts, matrix.rows}, format->dtype));
    if (bias_entries.back() == nullptr) return false;
  }
  choose_orders_of_stored(layer, device_);
  fill_extents(
      layer,
      [&](int64_t expert, size_t matrix, size_t part) {
        const TensorEntry* entry = entries[matrix][part];
        return PartSource{entry, static_cast<uint64_t>(expert) * bytes_of_expert(layer, *entry)};
      },
      bias_entries);
  return true;
}

bool ExpertSpellings::fused(ExpertLayer& layer, const std::string& prefix) {
  const std::string gate_up = prefix + ".experts.gate_up_proj";
  const std::string down = prefix + ".experts.down_proj";
  const std::optional<QuantFormat> in_format =
      find(gate_up, "", Shape{layer.num_experts, 2 * layer.gate.rows, layer.gate.cols});
  const std::optional<QuantFormat> out_format =
      find(down, "", Shape{layer.num_experts, layer.down.rows, layer.down.cols});
  if (!in_format || !out_format) return false;
  layer.gate.format = layer.up.format = *in_format;
  layer.down.format = *out_format;
  const std::vector<const TensorEntry*> in = claim_parts(claims_, gate_up, "", *in_format);
  const std::vector<const TensorEntry*> out = claim_parts(claims_, down, "", *out_format);
  choose_orders_of_stored(layer, device_);
  fill_extents(layer, [&](int64_t expert, size_t matrix, size_t part) {
    const TensorEntry* entry = matrix == 2 ? out[part] : in[part];
    const uint64_t stride = bytes_of_expert(layer, *entry);
    const uint64_t up_half = matrix == 1 ? stride / 2 : 0;  // rows of gate, then rows of up
    return PartSource{entry, static_cast<uint64_t>(expert) * stride + up_half};
  });
  return true;
}

bool ExpertSpellings::fused_input_major(ExpertLayer& layer, const std::string& prefix) {
  const int64_t count = layer.num_experts;
  const int64_t m = layer.gate.rows;
  const int64_t h = layer.gate.cols;
  const std::string in = prefix + ".experts.gate_up_proj";
  const std::string out = prefix + ".experts.down_proj";
  const std::optional<QuantFormat> format = find(in, "", Shape{count, h, 2 * m});
  if (!format) return false;
  if (format->kind != QuantKind::kPlain) {
    claims_.fail(make_error(ErrorCode::kUnsupported,
                            "tensor {} is {}; input-major experts are supported as plain floats",
                            in, format->to_string()));
    return false;
  }
  const std::array<const TensorEntry*, 4> pieces = {
      claim_bias(in, Shape{count, h, 2 * m}, format->dtype),
      claim_bias(out, Shape{count, m, h}, format->dtype),
      claim_bias(in + "_bias", Shape{count, 2 * m}, format->dtype),
      claim_bias(out + "_bias", Shape{count, h}, format->dtype)};
  for (const TensorEntry* piece : pieces) {
    if (piece == nullptr) return false;
  }
  layer.gate.format = layer.up.format = layer.down.format = *format;
  layer.gate_bias = layer.up_bias = {format->dtype, m, 0};
  layer.down_bias = {format->dtype, h, 0};
  layer.arrangement = ExpertArrangement::kInputMajorInterleaved;
  lay_out_slot(layer);
  layer.extents_per_expert = static_cast<int32_t>(pieces.size());
  for (int64_t expert = 0; expert < count; ++expert) {
    size_t slot_offset = 0;
    for (const TensorEntry* piece : pieces) {
      const uint64_t bytes = bytes_of_expert(layer, *piece);
      layer.extents.push_back({piece->file,
                               piece->offset_bytes + static_cast<uint64_t>(expert) * bytes, bytes,
                               slot_offset});
      slot_offset += bytes;
    }
  }
  return true;
}

bool ExpertSpellings::separate(ExpertLayer& layer, const std::string& prefix,
                               std::span<const std::string_view> projections) {
  // [expert][matrix] -> parts
  std::vector<std::array<std::vector<const TensorEntry*>, 3>> entries(
      static_cast<size_t>(layer.num_experts));
  for (size_t expert = 0; expert < entries.size(); ++expert) {
    for (size_t m = 0; m < projections.size(); ++m) {
      ExpertMatrix& matrix = *matrices(layer)[m];
      const std::string module = format("{}.experts.{}.{}", prefix, expert, projections[m]);
      const std::optional<QuantFormat> found =
          find(module, ".weight", Shape{matrix.rows, matrix.cols});
      if (!found) return false;
      if (expert == 0) matrix.format = *found;
      if (!(*found == matrix.format)) {
        claims_.fail(
            make_error(ErrorCode::kUnsupported,
                       "module {} is stored as {}, expert 0 of the layer as {}; the experts of a "
                       "layer must share one format",
                       module, found->to_string(), matrix.format.to_string()));
        return false;
      }
      entries[expert][m] = claim_parts(claims_, module, ".weight", *found);
    }
  }
  choose_orders_of_stored(layer, device_);
  fill_extents(layer, [&](int64_t expert, size_t matrix, size_t part) {
    return PartSource{entries[static_cast<size_t>(expert)][matrix][part], 0};
  });
  return true;
}

}  // namespace

void choose_orders_of_stored(ExpertLayer& layer, const Device& device) {
  for (ExpertMatrix* matrix : matrices(layer)) {
    matrix->format.order = device.preferred_order(matrix->format, matrix->rows, matrix->cols);
    if (matrix->format.order == WeightOrder::kTiled) {
      layer.arrangement = ExpertArrangement::kRowMajorParts;
    }
  }
}

std::optional<ExpertLayer> stored_experts(TensorClaims& claims, const QuantConfig& quant,
                                          const Device& device, std::string_view prefix,
                                          ExpertLayer layer, bool with_bias) {
  if (!ExpertSpellings(claims, quant, device).claim(layer, std::string(prefix), with_bias)) {
    return std::nullopt;
  }
  return layer;
}

}  // namespace moeflux
