// The expert pack: routed experts in the order in which they are read and computed with. This is
// the definition of docs/formats/expert_pack.md: what the manifest says, how a blob is laid out,
// what is refused.
//
// A layer's experts lie in one file as blobs of equal stride, each a cache slot's contents: gate,
// up, down, then biases. After the blobs comes a table of their checksums.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "io/file.h"
#include "quant/weight.h"

namespace moeflux {

constexpr std::string_view kExpertPackName = "expert_pack.json";
/// The notes of a packing that has not finished; gone when expert_pack.json is there.
constexpr std::string_view kExpertPackNotesName = "expert_pack.unfinished.json";
constexpr std::string_view kExpertPackFolder = "experts";
constexpr int64_t kExpertPackVersion = 1;
constexpr uint64_t kExpertPackBytesMax = uint64_t{64} << 20;  // of the manifest
/// Blobs are aligned as direct reads ask of offsets, sizes and addresses.
constexpr uint64_t kBlobAlignment = 4096;
/// Matrices and biases inside a blob begin at a cache line.
constexpr uint64_t kBlobPartAlignment = 64;

/// Offsets are relative to the blob.
struct PackedBias {
  DType dtype = DType::kF32;
  int64_t size = 0;  // 0: there is none
  uint64_t offset = 0;
  uint64_t bytes() const;
  friend bool operator==(const PackedBias&, const PackedBias&) = default;
};

struct PackedLayer {
  int32_t layer = 0;
  std::string file;         // relative to the model's folder
  std::string gate_tensor;  // where the source held the first gate: tells its naming scheme
  int32_t num_experts = 0;
  uint64_t stride = 0;
  std::array<Weight, 3> matrices;  // gate (maybe without rows), up, down; places are in the blob
  std::array<PackedBias, 3> biases;
  uint64_t table_checksum = 0;  // of the table of checksums

  uint64_t table_offset() const { return static_cast<uint64_t>(num_experts) * stride; }
  uint64_t table_bytes() const { return static_cast<uint64_t>(num_experts) * sizeof(uint64_t); }
  uint64_t file_bytes() const { return table_offset() + table_bytes(); }
  friend bool operator==(const PackedLayer&, const PackedLayer&) = default;
};

struct ExpertPackManifest {
  uint64_t source = 0;  // checkpoint_fingerprint() of what was packed
  uint64_t recipe = 0;  // of the source and of how it was packed: equal recipes, equal packs
  uint64_t model = 0;   // dense_fingerprint() of the folder the pack belongs to
  std::vector<PackedLayer> layers;  // ascending
};

/// Places matrices and biases one after another: fills their offsets and the stride.
void lay_out_blob(PackedLayer& layer);

/// "experts/layer-00012.experts".
std::string packed_layer_name(int32_t layer);

/// Under which key a matrix's manifest says where the part lies.
const char* offset_key(PartRole role);

/// Parses and checks a manifest; `what` names it in messages. Everything that holds for the result
/// without looking at other files: ranges, formats, parts inside the blob in order and apart,
/// layers ascending, no overflow. Names of files are the caller's to check (join_inside).
Result<ExpertPackManifest> parse_expert_pack(std::string_view text, std::string_view what);
std::string expert_pack_text(const ExpertPackManifest& manifest);

/// One layer of a manifest by itself.
Result<PackedLayer> parse_packed_layer(const Json& json, const std::string& what);
Json packed_layer_json(const PackedLayer& layer);

/// The checksums of a layer's blobs, read from the end of its open file. Fails with kCorruption
/// when the file does not have the length that the manifest means, or the table its checksum.
Result<std::vector<uint64_t>> read_blob_checksums(const File& file, const PackedLayer& layer);
std::vector<std::byte> blob_checksum_table(const std::vector<uint64_t>& checksums);

}  // namespace moeflux
