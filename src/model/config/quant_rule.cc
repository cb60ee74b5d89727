#include "model/config/quant_rule.h"

#include <algorithm>

#include "base/format.h"
#include "model/config/config.h"

namespace moeflux {
namespace {

constexpr std::string_view kSupported =
    "MLX's modes, fp8, fbgemm_fp8, mxfp8, mxfp4, compressed-tensors, modelopt, quark, awq, gptq "
    "and auto-round are";

void refuse(Config& section, std::string_view key, const Json& value, std::string_view supported) {
  section.fail(ErrorCode::kUnsupported,
               formatted("{} {} is not supported; {}", key, json_excerpt(value), supported));
}

/// Calls visit(name, entry) for the objects of an object, if there is one.
template <typename Visit>
void for_each_entry(Config& section, std::string_view key, const Visit& visit) {
  const Json* entries = section.find(key);
  if (entries == nullptr) return;
  if (!entries->is_object()) {
    return section.fail(ErrorCode::kInvalidArgument,
                        formatted("{} is {}, expected an object", key, json_excerpt(*entries)));
  }
  for (const auto& [name, entry] : entries->items()) {
    if (entry.is_object()) {
      visit(name, entry);
    } else if (!entry.is_null()) {
      section.fail(ErrorCode::kInvalidArgument,
                   formatted("{}: {} is {}, expected an object", key, name, json_excerpt(entry)));
    }
  }
}

// -1 and null stand for one group.
int group_of(Config& section) {
  const int64_t group = section.int_or("group_size", 0, {-1, 65536});
  return static_cast<int>(std::max<int64_t>(group, 0));
}

void read_fp8(Config& section, QuantRule& rule) {
  const std::string format = section.string_or("fmt", "e4m3");
  if (format != "e4m3") refuse(section, "fmt", format, "e4m3 is");
  rule.block = section.ints_or("weight_block_size", {});
  if (!rule.block.empty() && rule.block.size() != 2) {
    section.fail(ErrorCode::kInvalidArgument,
                 formatted("weight_block_size has {} numbers, expected 2", rule.block.size()));
  }
}

bool is_among(std::string_view value, std::initializer_list<std::string_view> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void check_tensor_format(Config& section, std::string_view format) {
  if (is_among(format, {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                        "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"})) {
    return;
  }
  refuse(section, "format", format,
         "pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized, "
         "mxfp4-pack-quantized and mxfp8-quantized are");
}

WeightScheme read_weights(Config weights, std::string format, Config& group) {
  WeightScheme scheme{.format = std::move(format)};
  const std::string type = weights.string_or("type", "int");
  if (!is_among(type, {"int", "float"})) refuse(weights, "type", type, "int and float are");
  scheme.is_float = type == "float";
  scheme.bits = static_cast<int>(weights.int_or("num_bits", 8, {1, 64}));
  scheme.group_size = group_of(weights);
  scheme.symmetric = weights.bool_or("symmetric", true);
  const std::string strategy = weights.string_or("strategy", "tensor");
  if (!is_among(strategy, {"tensor", "channel", "group", "tensor_group", "block"})) {
    refuse(weights, "strategy", strategy, "tensor, channel, group, tensor_group and block are");
  }
  const std::string order = weights.string_or("actorder", "");
  if (!is_among(order, {"", "group", "weight", "static", "dynamic"})) {
    refuse(weights, "actorder", order, "group, weight, static and dynamic are");
  }
  scheme.has_column_map = is_among(order, {"group", "dynamic"});
  group.absorb(weights);
  return scheme;
}

void read_compressed(Config& section, QuantRule& rule) {
  const std::string outer = section.string_or("format", "dense");
  const Json* groups = section.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty() || groups->size() > 64) {
    section.fail(ErrorCode::kInvalidArgument,
                 formatted("config_groups is {}, expected an object of 1 to 64 groups",
                           groups == nullptr ? "missing" : json_excerpt(*groups)));
    return;
  }
  if (outer != "mixed-precision") check_tensor_format(section, outer);
  for (const auto& [name, value] : groups->items()) {
    if (!value.is_object()) {
      section.fail(
          ErrorCode::kInvalidArgument,
          formatted("config_groups: {} is {}, expected an object", name, json_excerpt(value)));
      return;
    }
    Config group(value, "config.json: quantization_config: config_groups: " + name);
    const std::string format = group.string_or("format", outer);
    check_tensor_format(group, format);
    rule.schemes.push_back(read_weights(group.object("weights"), format, group));
    section.absorb(group);
  }
  if (const Json* transform = section.find("transform_config");
      transform != nullptr && !transform->empty()) {
    section.fail(ErrorCode::kUnsupported,
                 "transform_config is set; rotated weights are not supported");
  }
  Config sparsity = section.object("sparsity_config");
  const std::string sparse = sparsity.string_or("format", "dense");
  if (sparse != "dense") refuse(sparsity, "format", sparse, "no sparsity is");
  section.absorb(sparsity);
}

void add_algorithm(Config& section, const std::string& algorithm, QuantRule& rule) {
  if (!is_among(algorithm, {"NVFP4", "W4A16_NVFP4", "FP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN",
                            "MXFP8"})) {
    return refuse(section, "quant_algo", algorithm,
                  "NVFP4, W4A16_NVFP4, FP8, FP8_PB_WO, FP8_PER_CHANNEL_PER_TOKEN, MXFP8 and "
                  "MIXED_PRECISION are");
  }
  if (!rule.has_format(algorithm)) rule.schemes.push_back({.format = algorithm, .is_float = true});
}

void read_modelopt(Config& section, QuantRule& rule) {
  Config nested = section.object("quantization");
  Config& from = nested.has("quant_algo") ? nested : section;
  const std::string algorithm = from.string_or("quant_algo", "");
  if (algorithm != "MIXED_PRECISION") {
    add_algorithm(from, algorithm, rule);
  } else if (const Json* layers = from.find("quantized_layers");
             layers != nullptr && layers->is_object()) {
    for (const auto& [name, value] : layers->items()) {
      const bool is_said =
          value.is_object() && value.contains("quant_algo") && value["quant_algo"].is_string();
      add_algorithm(from, is_said ? value["quant_algo"].get<std::string>() : json_excerpt(value),
                    rule);
    }
  } else {
    from.fail(ErrorCode::kInvalidArgument, "quantized_layers is missing, expected an object");
  }
  if (&from == &nested) section.absorb(nested);
}

void read_awq(Config& section, QuantRule& rule) {
  std::string version = section.string_or("version", "gemm");
  std::transform(version.begin(), version.end(), version.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  if (version != "gemm") refuse(section, "version", version, "gemm is");
  rule.bits = static_cast<int>(section.int_or("bits", 4, {1, 64}));
  if (rule.bits != 4) refuse(section, "bits", rule.bits, "4 is");
  rule.group_size = group_of(section);
}

void read_gptq(Config& section, QuantRule& rule) {
  rule.bits = static_cast<int>(section.int_or("bits", 4, {1, 64}));
  if (rule.bits != 4 && rule.bits != 8) {
    refuse(section, "bits", rule.bits, "4 and 8 are");
  }
  rule.group_size = group_of(section);
  const std::string format = section.string_or("checkpoint_format", "gptq");
  if (!is_among(format, {"gptq", "gptq_v2"})) {
    refuse(section, "checkpoint_format", format, "gptq and gptq_v2 are");
  }
  rule.adds_one_to_zeros = format == "gptq";
  const std::string pack = section.string_or("pack_dtype", "int32");
  if (pack != "int32") refuse(section, "pack_dtype", pack, "int32 is");
  if (section.bool_or("is_marlin_format", false)) {
    refuse(section, "is_marlin_format", true, "false is");
  }
  const Json* dynamic = section.find("dynamic");
  rule.varies = dynamic != nullptr && !dynamic->is_null();
  if (!rule.varies) return;
  rule.group_sizes = {rule.group_size};
  for (const Json& module : *dynamic) {
    if (!module.is_object() || !module.contains("group_size")) continue;
    Config own(module, "config.json: quantization_config: dynamic");
    rule.group_sizes.push_back(group_of(own));
    section.absorb(own);
  }
}

/// The type of an entry's weights in Quark's configs, of which a list says several stages.
void read_quark_weights(Config entry, Config& section) {
  const Json* value = entry.find("weight");
  bool is_known = value == nullptr;
  if (value != nullptr && value->is_object()) {
    Config weights = entry.object("weight");
    const std::string type = weights.string_or("dtype", "");
    const bool has_powers = weights.string_or("qscheme", "") == "per_group" &&
                            weights.int_or("group_size", 0, {-1, 65536}) == 32;
    entry.absorb(weights);
    is_known = type == "fp8_e4m3" || type == "int8" || (type == "fp4" && has_powers);
  }
  if (!is_known) refuse(entry, "weight", *value, "fp8_e4m3, int8 and fp4 per_group of 32 are");
  section.absorb(entry);
}

void read_quark(Config& section) {
  read_quark_weights(section.object("global_quant_config"), section);
  for_each_entry(section, "layer_quant_config", [&](const std::string& name, const Json& layer) {
    const std::string path = "config.json: quantization_config: layer_quant_config: " + name;
    read_quark_weights(Config(layer, path), section);
  });
}

/// AutoRound's files are AWQ's or GPTQ's by their packing_format, which old ones call backend.
/// Modules have bits and groups of their own in extra_config; 16 bits and more are floats.
void read_auto_round(Config& section, QuantRule& rule) {
  const std::string backend = section.string_or("backend", "auto_round");
  const std::string packing = section.string_or("packing_format", backend);
  const std::string type = section.string_or("data_type", "int");
  if (type != "int") refuse(section, "data_type", type, "int is");
  const auto says = [&](std::string_view word) { return packing.find(word) != std::string::npos; };
  if (says("awq")) {
    rule.method = "awq";
    read_awq(section, rule);
  } else if (says("gptq") || packing == "auto_round") {
    rule.method = "gptq";
    read_gptq(section, rule);
    rule.adds_one_to_zeros = says("gptq") && !says("gptqmodel");
  } else {
    refuse(section, "packing_format", packing,
           "auto_round, auto_round:auto_gptq, auto_round:gptqmodel and auto_round:auto_awq are");
  }
  if (section.has("extra_config")) rule.group_sizes.push_back(rule.group_size);
  for_each_entry(section, "extra_config", [&](const std::string& name, const Json& module) {
    Config own(module, "config.json: quantization_config: extra_config: " + name);
    const int64_t bits = own.int_or("bits", rule.bits, {1, 64});
    if (bits >= 16) return;
    if (bits != 4 && bits != 8) refuse(own, "bits", bits, "4, 8 and 16 are");
    if (module.contains("group_size")) rule.group_sizes.push_back(group_of(own));
    rule.varies = true;
    section.absorb(own);
  });
}

}  // namespace

Result<QuantRule> QuantRule::read(Config section) {
  QuantRule rule;
  rule.method = section.string_or("quant_method", "");
  if (rule.method == "fbgemm_fp8") rule.method = "fp8";  // rows have scales
  if (rule.method == "fp8" || rule.method == "mxfp8") {
    read_fp8(section, rule);
  } else if (rule.method == "compressed-tensors") {
    read_compressed(section, rule);
  } else if (rule.method.starts_with("modelopt")) {
    rule.method = "modelopt";
    read_modelopt(section, rule);
  } else if (rule.method == "awq") {
    read_awq(section, rule);
  } else if (rule.method == "gptq") {
    read_gptq(section, rule);
  } else if (rule.method == "quark") {
    read_quark(section);
  } else if (rule.method.ends_with("auto-round")) {  // intel/auto-round, as it was called first
    read_auto_round(section, rule);
  } else if (rule.method != "mxfp4") {
    refuse(section, "quant_method", rule.method, kSupported);
  }
  MF_RETURN_IF_ERROR(section.status());
  return rule;
}

bool QuantRule::has_format(std::string_view format) const {
  return std::any_of(schemes.begin(), schemes.end(),
                     [&](const WeightScheme& scheme) { return scheme.format == format; });
}

Status QuantRule::expect_method(const std::string& module, std::string_view is,
                                std::initializer_list<std::string_view> methods) const {
  if (method.empty() || is_among(method, methods)) return {};
  return make_error(ErrorCode::kCorruption,
                    "module {} is stored as {}, config.json's quant_method is {}", module, is,
                    method);
}

}  // namespace moeflux
