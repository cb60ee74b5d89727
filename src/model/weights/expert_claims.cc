// The spellings in which checkpoints hold routed experts, as extents of an
// ExpertLayer.
//   stacked    P.switch_mlp.gate_proj.weight [E, m, h] (MLX; conversions of gpt-oss say
//              P.experts.gate_proj, of gemma4 P.experts.switch_glu.gate_proj, Step P.gate_proj)
//   fused      P.experts.gate_up_proj [E, 2m, h], P.experts.down_proj [E, h, m] (Hugging Face)
//   fused, input-major
//              P.experts.gate_up_proj [E, h, 2m] with gate and up in alternate columns (gpt-oss),
//              or, without biases, gate before up; P.experts.down_proj [E, m, h]
//   fused, rows in turn
//              P.experts.gate_up_proj_blocks and what else a registered spelling has, rows of gate
//              and of up in turn where there are biases (gpt-oss)
//              P.experts.w13_weight and P.experts.w2_weight, the same without biases (Inkling)
//   separate   P.experts.7.gate_proj.weight [m, h], or w1, w3, w2 (Hugging Face), in any registered
//              spelling
// Granite calls the fused ones P.input_linear.weight and P.output_linear.weight. Experts without a
// gate are stacked, MLX saying fc1 and fc2 for up_proj and down_proj, or separate.
#include "model/weights/expert_claims.h"

#include <array>
#include <vector>

#include "base/format.h"
#include "model/weights/expert_extents.h"
#include "model/weights/stored_formats.h"

namespace moeflux {
namespace {

using Projections = std::array<std::string_view, 3>;
constexpr Projections kNamedProjections = {"gate_proj", "up_proj", "down_proj"};
constexpr Projections kNumberedProjections = {"w1", "w3", "w2"};
constexpr Projections kPlainLayers = {"", "fc1", "fc2"};  // of experts without a gate

/// Fused experts: modules and what follows their names.
struct FusedNames {
  std::string in;
  std::string out;
  std::string_view weight;
};

class ExpertSpellings {
 public:
  ExpertSpellings(TensorClaims& claims, const QuantConfig& quant, const Device& device)
      : claims_(claims), quant_(quant), device_(device) {}

  bool claim(ExpertLayer& layer, const std::string& prefix, bool with_bias);

 private:
  const TensorEntry* claim_tensor(const std::string& name, const Shape& shape,
                                  const QuantFormat& format);
  const TensorEntry* claim_bias(const std::string& name, const Shape& shape);
  bool stacked(ExpertLayer& layer, const std::string& prefix, const Projections& projections,
               bool with_bias);
  bool fused(ExpertLayer& layer, const FusedNames& names);
  bool can_be_halved(const StoredModule& gate_up, const ExpertLayer& layer);
  bool is_input_major(const ExpertLayer& layer, const std::string& prefix) const;
  bool fused_input_major(ExpertLayer& layer, const std::string& prefix, bool with_bias);
  bool fused_alternate(ExpertLayer& layer, const FusedNames& names, bool with_bias);
  bool separate(ExpertLayer& layer, const std::string& prefix,
                std::span<const std::string_view> projections);
  void take(ExpertLayer& layer, const StoredModule& module);
  std::optional<StoredModule> find(const std::string& module, std::string_view weight_name,
                                   const Shape& shape);
  std::optional<StoredModule> find_unfused(const std::string& module, std::string_view weight_name,
                                           const Shape& shape);

  TensorClaims& claims_;
  const QuantConfig& quant_;
  const Device& device_;
};

std::optional<StoredModule> ExpertSpellings::find(const std::string& module,
                                                  std::string_view weight_name,
                                                  const Shape& shape) {
  std::optional<StoredModule> found = find_module(claims_, quant_, module, weight_name, shape);
  const Status agrees = found ? check_experts(quant_, *found) : Status();
  if (agrees.ok()) return found;
  claims_.fail(agrees.error());
  return std::nullopt;
}

/// A stack whose matrices are not two. Scales of halves would say nothing of them.
std::optional<StoredModule> ExpertSpellings::find_unfused(const std::string& module,
                                                          std::string_view weight_name,
                                                          const Shape& shape) {
  std::optional<StoredModule> found = find(module, weight_name, shape);
  if (!found) return std::nullopt;
  const Parts<uint64_t> one = part_bytes(found->format, shape[1], shape[2]);
  for (const PartRole role : kPartRoles) {
    const auto& [name, entry] = found->parts[role];
    if (entry == nullptr || entry->size_bytes == one[role] * static_cast<uint64_t>(shape[0])) {
      continue;
    }
    claims_.fail(make_error(ErrorCode::kCorruption,
                            "tensor {} is {} {}, expected one for each of {} matrices", name,
                            entry->type_name(), entry->shape.to_string(), shape[0]));
    return std::nullopt;
  }
  return found;
}

void ExpertSpellings::take(ExpertLayer& layer, const StoredModule& module) {
  claim_parts(claims_, module);
  layer.tensors_beside.insert(layer.tensors_beside.end(), module.others.begin(),
                              module.others.end());
}

bool ExpertSpellings::claim(ExpertLayer& layer, const std::string& prefix, bool with_bias) {
  const auto under = [&](std::string_view name) {
    const std::string full = claims_.full_name(prefix + std::string(name));
    return full.substr(0, full.size() - name.size());
  };
  const auto under_module = [&](std::string_view module) {
    const std::string full = full_module_name(claims_, prefix + std::string(module), ".weight");
    return full.substr(0, full.size() - module.size());
  };
  const size_t first = layer.first_matrix();
  for (const std::string stack : {".switch_mlp.", ".experts.", ".experts.switch_glu.", "."}) {
    for (const Projections& names : {kNamedProjections, kPlainLayers}) {
      if (names[first].empty()) continue;
      const std::string own = formatted("{}{}.weight", stack, names[first]);
      if (claims_.has(prefix + own)) return stacked(layer, under(own) + stack, names, with_bias);
    }
  }
  const auto fused_names = [](const std::string& full) {
    return FusedNames{full + ".experts.gate_up_proj", full + ".experts.down_proj", ""};
  };
  if (claims_.has(prefix + ".experts.gate_up_proj")) {
    const std::string full = under(".experts.gate_up_proj");
    return with_bias || is_input_major(layer, full) ? fused_input_major(layer, full, with_bias)
                                                    : fused(layer, fused_names(full));
  }
  if (claims_.has(prefix + ".experts.w13_weight")) {
    const std::string full = under(".experts.w13_weight") + ".experts.";
    return fused_alternate(layer, {full + "w13_weight", full + "w2_weight", ""}, false);
  }
  if (claims_.has(prefix + ".input_linear.weight")) {
    const std::string full = under(".input_linear.weight");
    return fused(layer, {full + ".input_linear", full + ".output_linear", ".weight"});
  }
  if (const auto codes = find_codes(claims_, prefix + ".experts.gate_up_proj", "")) {
    const std::string full = under(std::string_view(*codes).substr(prefix.size()));
    return with_bias ? fused_alternate(layer, fused_names(full), true)
                     : fused(layer, fused_names(full));
  }
  if (find_codes(claims_, prefix + ".experts.0.w1", ".weight")) {
    return separate(layer, under_module(".experts.0.w1"), kNumberedProjections);
  }
  const std::string module = formatted(".experts.0.{}", kNamedProjections[first]);
  return separate(layer, under_module(module), kNamedProjections);
}

// A tensor of all experts beside or in place of a module, such as biases. It has the dtype of a
// plain or affine module's floats; beside others it has any float type.
const TensorEntry* ExpertSpellings::claim_tensor(const std::string& name, const Shape& shape,
                                                 const QuantFormat& format) {
  const TensorEntry* entry = claims_.claim(name);
  if (entry == nullptr) return nullptr;
  const bool has_own = format.is_plain() || format.is_affine();
  const bool has_type = has_own ? entry->dtype == format.dtype : is_plain_float(entry->dtype);
  if (entry->shape == shape && has_type) return entry;
  claims_.fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected {} {}", name,
                          dtype_name(entry->dtype), entry->shape.to_string(),
                          has_own ? dtype_name(format.dtype) : "floats", shape.to_string()));
  return nullptr;
}

// Biases of a stack, in any float type: GGUF keeps them in F32 beside weights of another.
const TensorEntry* ExpertSpellings::claim_bias(const std::string& name, const Shape& shape) {
  const TensorEntry* entry = claims_.claim(name);
  if (entry == nullptr || (entry->shape == shape && is_plain_float(entry->dtype))) return entry;
  claims_.fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected floats {}", name,
                          entry->type_name(), entry->shape.to_string(), shape.to_string()));
  return nullptr;
}

bool ExpertSpellings::stacked(ExpertLayer& layer, const std::string& prefix,
                              const Projections& projections, bool with_bias) {
  std::array<StoredModule, 3> modules;
  std::vector<const TensorEntry*> bias_entries;
  for (size_t m = layer.first_matrix(); m < projections.size(); ++m) {
    Weight& matrix = *matrices_of(layer)[m];
    const std::string module = prefix + std::string(projections[m]);
    const std::optional<StoredModule> found =
        find_unfused(module, ".weight", Shape{layer.num_experts, matrix.rows, matrix.cols});
    if (!found) return false;
    modules[m] = *found;
    matrix.format = found->format;
    take(layer, *found);
    if (!with_bias) continue;
    bias_entries.push_back(claim_bias(module + ".bias", Shape{layer.num_experts, matrix.rows}));
    if (bias_entries.back() == nullptr) return false;
    *biases_of(layer)[m] = {bias_entries.back()->dtype, matrix.rows, 0};
  }
  choose_orders_of_stored(layer, device_);
  fill_extents(
      layer,
      [&](int64_t expert, size_t matrix, PartRole role) {
        const TensorEntry* entry = modules[matrix].parts[role].entry;
        return PartSource{entry, static_cast<uint64_t>(expert) * bytes_of_expert(layer, *entry)};
      },
      bias_entries);
  return true;
}

bool ExpertSpellings::fused(ExpertLayer& layer, const FusedNames& names) {
  const std::optional<StoredModule> in =
      find(names.in, names.weight, Shape{layer.num_experts, 2 * layer.gate.rows, layer.gate.cols});
  const std::optional<StoredModule> out = find_unfused(
      names.out, names.weight, Shape{layer.num_experts, layer.down.rows, layer.down.cols});
  if (!in || !out) return false;
  layer.gate.format = layer.up.format = in->format;
  layer.down.format = out->format;
  take(layer, *in);
  take(layer, *out);
  if (!can_be_halved(*in, layer)) return false;
  choose_orders_of_stored(layer, device_);
  fill_extents(layer, [&](int64_t expert, size_t matrix, PartRole role) {
    const TensorEntry* entry = (matrix == 2 ? out : in)->parts[role].entry;
    const uint64_t stride = bytes_of_expert(layer, *entry);
    // Rows of gate, then rows of up; they share what a matrix has once.
    const uint64_t own = part_bytes(in->format, layer.gate.rows, layer.gate.cols)[role];
    const uint64_t up_half = matrix == 1 && stride == 2 * own ? own : 0;
    return PartSource{entry, static_cast<uint64_t>(expert) * stride + up_half};
  });
  return true;
}

// Each part of gate_up is that of gate and then that of up, or one for both.
bool ExpertSpellings::can_be_halved(const StoredModule& gate_up, const ExpertLayer& layer) {
  const Parts<uint64_t> half = part_bytes(gate_up.format, layer.gate.rows, layer.gate.cols);
  for (const PartRole role : kPartRoles) {
    if (half[role] == 0) continue;
    const uint64_t stride = bytes_of_expert(layer, *gate_up.parts[role].entry);
    const bool is_common = stride == half[role] && is_one_of_matrix(gate_up.format, role);
    if (stride == 2 * half[role] || is_common) continue;
    claims_.fail(make_error(ErrorCode::kUnsupported,
                            "module {}: {} of {} rows cannot be cut into gate and up between two "
                            "of its scales",
                            gate_up.name, gate_up.format.to_string(), 2 * layer.gate.rows));
    return false;
  }
  return true;
}

bool ExpertSpellings::fused_alternate(ExpertLayer& layer, const FusedNames& names, bool with_bias) {
  const int64_t count = layer.num_experts;
  const int64_t m = layer.gate.rows;
  const int64_t h = layer.gate.cols;
  const std::optional<StoredModule> in = find(names.in, names.weight, Shape{count, 2 * m, h});
  const std::optional<StoredModule> out = find(names.out, names.weight, Shape{count, h, m});
  if (!in || !out) return false;
  std::vector<const TensorEntry*> pieces;
  for (const StoredModule* module : {&*in, &*out}) {
    take(layer, *module);
    for (const PartRole role : kPartRoles) {
      const TensorEntry* entry = module->parts[role].entry;
      if (entry != nullptr) pieces.push_back(entry);
    }
  }
  layer.gate.format = layer.up.format = in->format;
  layer.down.format = out->format;
  if (with_bias) {
    const TensorEntry* in_bias = claim_tensor(names.in + "_bias", Shape{count, 2 * m}, in->format);
    const TensorEntry* out_bias = claim_tensor(names.out + "_bias", Shape{count, h}, out->format);
    if (in_bias == nullptr || out_bias == nullptr) return false;
    pieces.insert(pieces.end(), {in_bias, out_bias});
    layer.gate_bias = layer.up_bias = {in_bias->dtype, m, 0};
    layer.down_bias = {out_bias->dtype, h, 0};
  }
  for (size_t i = 0; i < 3; ++i) {
    Weight& matrix = *matrices_of(layer)[i];
    layer.stored[i] = lay_out(matrix.format, matrix.rows, matrix.cols);
    matrix.format = format_in_memory(matrix.format, matrix.rows, matrix.cols);
  }
  layer.arrangement = ExpertArrangement::kAlternateRows;
  fill_extents_in_turn(layer, pieces);
  return true;
}

// One of the two shapes tells, whatever the widths.
bool ExpertSpellings::is_input_major(const ExpertLayer& layer, const std::string& prefix) const {
  const int64_t count = layer.num_experts;
  const int64_t m = layer.gate.rows;
  const int64_t h = layer.gate.cols;
  const TensorEntry* in = claims_.index().find(prefix + ".experts.gate_up_proj");
  const TensorEntry* out = claims_.index().find(prefix + ".experts.down_proj");
  return in != nullptr && out != nullptr && in->shape == Shape{count, h, 2 * m} &&
         out->shape == Shape{count, m, h};
}

bool ExpertSpellings::fused_input_major(ExpertLayer& layer, const std::string& prefix,
                                        bool with_bias) {
  const int64_t count = layer.num_experts;
  const int64_t m = layer.gate.rows;
  const int64_t h = layer.gate.cols;
  const std::string in = prefix + ".experts.gate_up_proj";
  const std::string out = prefix + ".experts.down_proj";
  const std::optional<StoredModule> found = find(in, "", Shape{count, h, 2 * m});
  if (!found) return false;
  const QuantFormat& format = found->format;
  if (!format.is_plain()) {
    claims_.fail(make_error(ErrorCode::kUnsupported,
                            "tensor {} is {}; input-major experts are supported as plain floats",
                            in, format.to_string()));
    return false;
  }
  std::vector<const TensorEntry*> pieces = {claim_tensor(in, Shape{count, h, 2 * m}, format),
                                            claim_tensor(out, Shape{count, m, h}, format)};
  if (with_bias) {
    pieces.push_back(claim_tensor(in + "_bias", Shape{count, 2 * m}, format));
    pieces.push_back(claim_tensor(out + "_bias", Shape{count, h}, format));
    layer.gate_bias = layer.up_bias = {format.dtype, m, 0};
    layer.down_bias = {format.dtype, h, 0};
  }
  for (const TensorEntry* piece : pieces) {
    if (piece == nullptr) return false;
  }
  layer.gate.format = layer.up.format = layer.down.format = format;
  layer.arrangement =
      with_bias ? ExpertArrangement::kInputMajorInterleaved : ExpertArrangement::kInputMajorHalves;
  fill_extents_in_turn(layer, pieces);
  return true;
}

bool ExpertSpellings::separate(ExpertLayer& layer, const std::string& prefix,
                               std::span<const std::string_view> projections) {
  std::vector<std::array<StoredModule, 3>> modules(static_cast<size_t>(layer.num_experts));
  for (size_t expert = 0; expert < modules.size(); ++expert) {
    for (size_t m = layer.first_matrix(); m < projections.size(); ++m) {
      Weight& matrix = *matrices_of(layer)[m];
      const std::string module = formatted("{}.experts.{}.{}", prefix, expert, projections[m]);
      const std::optional<StoredModule> found =
          find(module, ".weight", Shape{matrix.rows, matrix.cols});
      if (!found) return false;
      if (expert == 0) matrix.format = found->format;
      if (!(found->format == matrix.format)) {
        claims_.fail(
            make_error(ErrorCode::kUnsupported,
                       "module {} is stored as {}, expert 0 of the layer as {}; the experts of a "
                       "layer must share one format",
                       module, found->format.to_string(), matrix.format.to_string()));
        return false;
      }
      take(layer, *found);
      modules[expert][m] = *found;
    }
  }
  choose_orders_of_stored(layer, device_);
  fill_extents(layer, [&](int64_t expert, size_t matrix, PartRole role) {
    return PartSource{modules[static_cast<size_t>(expert)][matrix].parts[role].entry, 0};
  });
  return true;
}

}  // namespace

void choose_orders_of_stored(ExpertLayer& layer, const Device& device) {
  bool is_converted = false;
  if (!layer.has_gate()) layer.gate.format = layer.up.format;
  for (size_t i = layer.first_matrix(); i < 3; ++i) {
    Weight& matrix = *matrices_of(layer)[i];
    layer.stored[i] = matrix;
    matrix.format = format_in_memory(matrix.format, matrix.rows, matrix.cols);
    is_converted = is_converted || matrix.format.kind != layer.stored[i].format.kind;
    matrix.format.order = device.preferred_order(matrix.format, matrix.rows, matrix.cols);
    if (matrix.format.order == WeightOrder::kTiled) {
      layer.arrangement = ExpertArrangement::kRowMajorParts;
    }
  }
  if (is_converted) layer.arrangement = ExpertArrangement::kReordered;
}

std::optional<ExpertLayer> stored_experts(TensorClaims& claims, const QuantConfig& quant,
                                          const Device& device, std::string_view prefix,
                                          ExpertLayer layer, bool with_bias) {
  if (!ExpertSpellings(claims, quant, device).claim(layer, std::string(prefix), with_bias)) {
    return std::nullopt;
  }
  if (device.takes_unaligned_experts()) compute_in_place(layer);
  return layer;
}

}  // namespace moeflux
