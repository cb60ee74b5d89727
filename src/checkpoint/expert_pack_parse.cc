// Reading manifests of expert packs. The file comes from anywhere: every number is checked before
// it is used, and every refusal names the place, what was found and what was expected.
#include <algorithm>
#include <type_traits>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "checkpoint/expert_pack.h"
#include "quant/format_traits.h"
#include "quant/formats/tiled.h"

namespace moeflux {
namespace {

// Far above any model, far below where products of two of them overflow.
constexpr int64_t kLayersMax = 1 << 20;
constexpr int64_t kExpertsMax = 1 << 20;
constexpr int64_t kExtentMax = int64_t{1} << 28;
constexpr int64_t kStrideMax = int64_t{1} << 40;

/// Getters of one JSON object; the first problem is kept and the rest of the answers do not matter.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse(formatted("is {}, expected an object", json_excerpt(object)));
  }

  const Json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  int64_t integer(const char* key, int64_t low, int64_t high) {
    const Json* value = find(key);
    // The lower bound is never negative, so unsigned numbers are all there are.
    if (value != nullptr && value->is_number_unsigned()) {
      const auto found = value->get<uint64_t>();
      if (found >= static_cast<uint64_t>(low) && found <= static_cast<uint64_t>(high)) {
        return static_cast<int64_t>(found);
      }
    }
    refuse(formatted("has {} {}, expected an integer from {} to {}", key, shown(value), low, high));
    return low;
  }

  std::string text(const char* key) {
    const Json* value = find(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    refuse(formatted("has {} {}, expected a string", key, shown(value)));
    return {};
  }

  uint64_t checksum(const char* key) {
    const std::optional<uint64_t> found = parse_checksum(text(key));
    if (!found)
      refuse(formatted("has {} {}, expected 16 hexadecimal digits", key, shown(find(key))));
    return found.value_or(0);
  }

  DType dtype() {
    const std::optional<DType> found = parse_dtype(text("dtype"));
    if (found == DType::kF32 || found == DType::kF16 || found == DType::kBf16) return *found;
    refuse(formatted("has dtype {}, expected \"F32\", \"F16\" or \"BF16\"", shown(find("dtype"))),
           ErrorCode::kUnsupported);
    return DType::kF32;
  }

  void refuse(const std::string& problem, ErrorCode code = ErrorCode::kCorruption) {
    if (status_.ok()) status_ = make_error(code, "{} {}", where_, problem);
  }
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  static std::string shown(const Json* value) {
    return value == nullptr ? "missing" : json_excerpt(*value);
  }

  const Json& object_;
  std::string where_;
  Status status_;
};

/// A format by its name and what else it says.
Result<QuantFormat> parse_named_format(Fields& fields, int64_t rows, int64_t cols) {
  const FormatTraits* found = find_format(fields.text("format"));
  if (found == nullptr || found == &plain_format || found == &affine_format) {
    fields.refuse(
        formatted("has format {}, which is not known", json_excerpt(*fields.find("format"))),
        ErrorCode::kUnsupported);
  }
  MF_RETURN_IF_ERROR(fields.status());
  QuantFormat format = QuantFormat::of(*found);
  if (const Json* outer_scale = fields.find("outer_scale"); outer_scale != nullptr) {
    if (*outer_scale != Json(true) || found->block.elements == 0) {
      fields.refuse(
          formatted("has outer_scale {} beside {}, expected true beside a format of blocks",
                    json_excerpt(*outer_scale), found->name));
    }
    format = format.with_outer_scale();
  }
  const auto number = [&](const char* key, auto& value, int64_t max) {
    if (fields.find(key) == nullptr) return;
    value = static_cast<std::remove_reference_t<decltype(value)>>(fields.integer(key, 0, max));
  };
  number("bits", format.bits, 64);
  number("group_size", format.group_size, 1 << 16);
  number("group_rows", format.group_rows, 1 << 16);
  number("variant", format.variant, 255);
  if (fields.find("dtype") != nullptr) {
    const std::optional<DType> dtype = parse_dtype(fields.text("dtype"));
    if (!dtype) fields.refuse("has a dtype that is not known", ErrorCode::kUnsupported);
    format.dtype = dtype.value_or(format.dtype);
  }
  MF_RETURN_IF_ERROR(fields.status());
  if (is_valid(format, cols)) return format;
  fields.refuse(formatted("is {} x {} in {} with properties that contradict each other", rows, cols,
                          found->name));
  return fields.status().error();
}

Result<QuantFormat> parse_format(Fields& fields, int64_t rows, int64_t cols) {
  if (fields.find("format") != nullptr) return parse_named_format(fields, rows, cols);
  QuantFormat format = QuantFormat::plain(fields.dtype());
  if (fields.find("bits") == nullptr) {
    MF_RETURN_IF_ERROR(fields.status());
    return format;
  }
  format =
      QuantFormat::affine(static_cast<int>(fields.integer("bits", 2, 8)),
                          static_cast<int>(fields.integer("group_size", 32, 128)), format.dtype);
  const std::string order = fields.text("order");
  if (order == "tiled") {
    format.order = WeightOrder::kTiled;
  } else if (order != "row-major") {
    fields.refuse(
        formatted("has order {}, expected \"tiled\" or \"row-major\"", json_excerpt(Json(order))),
        ErrorCode::kUnsupported);
  }
  MF_RETURN_IF_ERROR(fields.status());
  const bool fits = is_valid(format, cols) &&
                    (format.order == WeightOrder::kRowMajor || tiled::is_tileable(format, rows));
  if (!fits) {
    fields.refuse(
        formatted("is {} x {} in {}, which contradict each other", rows, cols, format.to_string()));
  }
  MF_RETURN_IF_ERROR(fields.status());
  return format;
}

/// Takes the parts of a blob in order and refuses one that is not aligned, not after the one
/// before, or not inside.
class BlobParts {
 public:
  explicit BlobParts(uint64_t stride) : stride_(stride) {}

  uint64_t place(Fields& fields, const char* key, uint64_t bytes) {
    const auto offset = static_cast<uint64_t>(fields.integer(key, 0, kStrideMax));
    if (offset % kBlobPartAlignment != 0 || offset < end_ || offset > stride_ ||
        bytes > stride_ - offset) {
      fields.refuse(
          formatted("has {} {} for {} bytes, expected a multiple of {} from {} on that ends "
                    "within the stride of {}",
                    key, offset, bytes, kBlobPartAlignment, end_, stride_));
      return 0;
    }
    end_ = offset + bytes;
    return offset;
  }

 private:
  uint64_t stride_;
  uint64_t end_ = 0;
};

Status parse_matrix(Fields& fields, BlobParts& parts, Weight& matrix) {
  const int64_t rows = fields.integer("rows", 1, kExtentMax);
  const int64_t cols = fields.integer("cols", 1, kExtentMax);
  MF_RETURN_IF_ERROR(fields.status());
  MF_ASSIGN_OR_RETURN(const QuantFormat format, parse_format(fields, rows, cols));
  matrix = lay_out(format, rows, cols);
  for (const PartRole role : kPartRoles) {
    if (!matrix.has(role)) continue;
    Tensor& part = matrix.parts[role];
    part.offset_bytes = parts.place(fields, offset_key(role), part.size_bytes());
  }
  return fields.status();
}

Status parse_bias(const Json& json, const std::string& where, BlobParts& parts, PackedBias& bias) {
  Fields fields(json, where);
  bias.dtype = fields.dtype();
  bias.size = fields.integer("size", 1, kExtentMax);
  MF_RETURN_IF_ERROR(fields.status());
  bias.offset = parts.place(fields, "offset", bias.bytes());
  return fields.status();
}

Status parse_blob(const Fields& layer_fields, PackedLayer& layer) {
  constexpr std::array<const char*, 3> kNames = {"gate", "up", "down"};
  BlobParts parts(layer.stride);
  const Json missing;
  const size_t first = layer_fields.find(kNames[0]) == nullptr ? 1 : 0;  // experts without a gate
  for (size_t m = first; m < kNames.size(); ++m) {
    const Json* json = layer_fields.find(kNames[m]);
    Fields fields(json == nullptr ? missing : *json,
                  formatted("{}: {}", layer_fields.where(), kNames[m]));
    MF_RETURN_IF_ERROR(fields.status());
    MF_RETURN_IF_ERROR(parse_matrix(fields, parts, layer.matrices[m]));
  }
  for (size_t m = first; m < kNames.size(); ++m) {
    const Json& matrix = *layer_fields.find(kNames[m]);
    const auto bias = matrix.find("bias");
    if (bias == matrix.end()) continue;
    MF_RETURN_IF_ERROR(parse_bias(*bias, formatted("{}: {} bias", layer_fields.where(), kNames[m]),
                                  parts, layer.biases[m]));
  }
  return {};
}

Status check_header(Fields& fields) {
  if (fields.text("format") != "moeflux expert pack") {
    fields.refuse(R"(does not have the format "moeflux expert pack")");
  }
  MF_RETURN_IF_ERROR(fields.status());
  const int64_t version = fields.integer("version", 0, INT64_MAX);
  if (version != kExpertPackVersion) {
    fields.refuse(formatted("has version {}, expected {}", version, kExpertPackVersion),
                  ErrorCode::kUnsupported);
  }
  return fields.status();
}

}  // namespace

Result<PackedLayer> parse_packed_layer(const Json& json, const std::string& what) {
  Fields fields(json, what);
  PackedLayer layer;
  layer.layer = static_cast<int32_t>(fields.integer("layer", 0, kLayersMax));
  layer.file = fields.text("file");
  layer.gate_tensor = fields.text("gate_tensor");
  layer.num_experts = static_cast<int32_t>(fields.integer("experts", 1, kExpertsMax));
  layer.stride = static_cast<uint64_t>(fields.integer("stride", kBlobAlignment, kStrideMax));
  layer.table_checksum = fields.checksum("checksums");
  if (layer.stride % kBlobAlignment != 0) {
    fields.refuse(
        formatted("has stride {}, expected a multiple of {}", layer.stride, kBlobAlignment));
  }
  MF_RETURN_IF_ERROR(fields.status());
  MF_RETURN_IF_ERROR(parse_blob(fields, layer));
  return layer;
}

Result<ExpertPackManifest> parse_expert_pack(std::string_view text, std::string_view what) {
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(text, what));
  Fields fields(json, std::string(what));
  MF_RETURN_IF_ERROR(fields.status());
  MF_RETURN_IF_ERROR(check_header(fields));
  ExpertPackManifest manifest;
  manifest.source = fields.checksum("source");
  manifest.recipe = fields.checksum("recipe");
  manifest.model = fields.checksum("model");
  const Json* layers = fields.find("layers");
  if (layers == nullptr || !layers->is_array() || layers->empty()) {
    fields.refuse("has no layers, expected a list of them");
  }
  MF_RETURN_IF_ERROR(fields.status());
  for (const Json& entry : *layers) {
    const std::string where = formatted("{}: entry {} of layers", what, manifest.layers.size());
    MF_ASSIGN_OR_RETURN(PackedLayer layer, parse_packed_layer(entry, where));
    if (!manifest.layers.empty() && layer.layer <= manifest.layers.back().layer) {
      return make_error(ErrorCode::kCorruption, "{} is layer {}, expected one after layer {}",
                        where, layer.layer, manifest.layers.back().layer);
    }
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

}  // namespace moeflux
