#include "checkpoint/expert_pack.h"

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/checksum.h"
#include "quant/format_traits.h"

namespace moeflux {
namespace {

constexpr std::array<const char*, 3> kMatrixNames = {"gate", "up", "down"};

}  // namespace

uint64_t PackedBias::bytes() const {
  return static_cast<uint64_t>(size) * static_cast<uint64_t>(dtype_bits(dtype)) / 8;
}

void lay_out_blob(PackedLayer& layer) {
  uint64_t end = 0;
  const auto place = [&](uint64_t bytes) {
    const uint64_t begin = end;
    end = round_up(end + bytes, kBlobPartAlignment);
    return begin;
  };
  for (Weight& matrix : layer.matrices) {
    if (matrix.rows == 0) continue;
    matrix = lay_out(matrix.format, matrix.rows, matrix.cols);
    end = place_parts(matrix, end, kBlobPartAlignment);
  }
  for (PackedBias& bias : layer.biases) bias.offset = bias.size == 0 ? 0 : place(bias.bytes());
  layer.stride = round_up(end, kBlobAlignment);
}

std::string packed_layer_name(int32_t layer) {
  return formatted("{}/layer-{:05}.experts", kExpertPackFolder, layer);
}

const char* offset_key(PartRole role) {
  switch (role) {
    case PartRole::kCodes:
      return "offset";
    case PartRole::kScales:
      return "scales_offset";
    case PartRole::kOffsets:
      return "biases_offset";
    case PartRole::kOuterScale:
      return "outer_scale_offset";
    case PartRole::kColumnMap:
      return "column_map_offset";
  }
  __builtin_unreachable();
}

static void write_format(Json& entry, const QuantFormat& format) {
  if (!format.is_plain() && !format.is_affine()) {
    const QuantFormat usual = QuantFormat::of(*format.kind);
    entry["format"] = format.kind->name;
    if (format.outer_scale) entry["outer_scale"] = true;
    if (format.dtype != usual.dtype) entry["dtype"] = dtype_name(format.dtype);
    if (format.bits != usual.bits) entry["bits"] = format.bits;
    if (format.group_size != usual.group_size) entry["group_size"] = format.group_size;
    if (format.group_rows != usual.group_rows) entry["group_rows"] = format.group_rows;
    if (format.variant != usual.variant) entry["variant"] = format.variant;
    return;
  }
  entry["dtype"] = dtype_name(format.dtype);
  if (format.is_plain()) return;
  entry["bits"] = format.bits;
  entry["group_size"] = format.group_size;
  entry["order"] = format.order == WeightOrder::kTiled ? "tiled" : "row-major";
}

Json packed_layer_json(const PackedLayer& layer) {
  Json json;
  json["layer"] = layer.layer;
  json["file"] = layer.file;
  json["gate_tensor"] = layer.gate_tensor;
  json["experts"] = layer.num_experts;
  json["stride"] = layer.stride;
  for (size_t m = 0; m < kMatrixNames.size(); ++m) {
    const Weight& matrix = layer.matrices[m];
    if (matrix.rows == 0) continue;
    Json& entry = json[kMatrixNames[m]];
    entry["rows"] = matrix.rows;
    entry["cols"] = matrix.cols;
    write_format(entry, matrix.format);
    for (const PartRole role : kPartRoles) {
      if (matrix.has(role)) entry[offset_key(role)] = matrix.parts[role].offset_bytes;
    }
    const PackedBias& bias = layer.biases[m];
    if (bias.size > 0) {
      entry["bias"] = {
          {"dtype", dtype_name(bias.dtype)}, {"size", bias.size}, {"offset", bias.offset}};
    }
  }
  json["checksums"] = checksum_text(layer.table_checksum);
  return json;
}

std::string expert_pack_text(const ExpertPackManifest& manifest) {
  Json json;
  json["format"] = "moeflux expert pack";
  json["version"] = kExpertPackVersion;
  json["source"] = checksum_text(manifest.source);
  json["recipe"] = checksum_text(manifest.recipe);
  json["model"] = checksum_text(manifest.model);
  json["layers"] = Json::array();
  for (const PackedLayer& layer : manifest.layers) {
    json["layers"].push_back(packed_layer_json(layer));
  }
  return json.dump(1) + "\n";
}

std::vector<std::byte> blob_checksum_table(const std::vector<uint64_t>& checksums) {
  std::vector<std::byte> table(checksums.size() * sizeof(uint64_t));
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::byte>(checksums[i / 8] >> (8 * (i % 8)));
  }
  return table;
}

Result<std::vector<uint64_t>> read_blob_checksums(const File& file, const PackedLayer& layer) {
  if (file.size_bytes() != layer.file_bytes()) {
    return make_error(ErrorCode::kCorruption,
                      "{} has {} bytes, expected {} for {} experts of {} bytes and their checksums",
                      file.path(), file.size_bytes(), layer.file_bytes(), layer.num_experts,
                      layer.stride);
  }
  std::vector<std::byte> table(layer.table_bytes());
  MF_RETURN_IF_ERROR(file.read_at(layer.table_offset(), table));
  const uint64_t found = checksum64(table);
  if (found != layer.table_checksum) {
    return make_error(ErrorCode::kCorruption,
                      "{}: the table of checksums has checksum {}, expected {}; the file is not "
                      "the one that {} was written for, or is damaged",
                      file.path(), checksum_text(found), checksum_text(layer.table_checksum),
                      kExpertPackName);
  }
  std::vector<uint64_t> checksums(static_cast<size_t>(layer.num_experts));
  for (size_t i = 0; i < table.size(); ++i) {
    checksums[i / 8] |= static_cast<uint64_t>(table[i]) << (8 * (i % 8));
  }
  return checksums;
}

}  // namespace moeflux
