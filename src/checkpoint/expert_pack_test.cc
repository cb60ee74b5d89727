#include "checkpoint/expert_pack.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/checksum.h"
#include "quant/formats/tiled.h"
#include "quant/ggml_types.h"
#include "tests/support/expect_error.h"
#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

using testing::expect_error;

PackedLayer some_layer(int32_t number) {
  PackedLayer layer;
  layer.layer = number;
  layer.file = packed_layer_name(number);
  layer.gate_tensor = "model.layers.0.mlp.switch_mlp.gate_proj.weight";
  layer.num_experts = 3;
  const QuantFormat affine = QuantFormat::affine(4, 32, DType::kBf16);
  layer.matrices[0] = lay_out(affine.with_order(WeightOrder::kTiled), 48, 96);
  layer.matrices[1] = lay_out(affine, 40, 96);
  layer.matrices[2] = lay_out(QuantFormat::plain(DType::kF16), 96, 7);
  layer.biases[2] = {DType::kF32, 96, 0};
  layer.table_checksum = 0x0123456789abcdefu;
  lay_out_blob(layer);
  return layer;
}

ExpertPackManifest some_manifest() {
  return {
      .source = 1, .recipe = 2, .model = ~uint64_t{0}, .layers = {some_layer(2), some_layer(5)}};
}

/// The manifest's text after `change` has had the first layer.
template <typename Change>
std::string changed(Change change) {
  Json json = *parse_json(expert_pack_text(some_manifest()), "pack");
  change(json["layers"][0]);
  return json.dump();
}

template <typename Change>
void expect_refused(Change change, std::initializer_list<std::string_view> pieces,
                    ErrorCode code = ErrorCode::kCorruption) {
  expect_error(parse_expert_pack(changed(change), "pack.json"), code, pieces);
}

TEST(ExpertPack, PartsFollowOneAnotherInOrderOfConsumption) {
  const PackedLayer layer = some_layer(0);
  EXPECT_EQ(layer.matrices[0].parts.codes.offset_bytes, 0u);
  const uint64_t gate = weight_bytes(layer.matrices[0].format, 48, 96);
  EXPECT_EQ(gate, 48u * 96 / 2 + 2 * 2 * 48 * 3);
  EXPECT_EQ(layer.matrices[1].parts.codes.offset_bytes, 2880u);  // 45 lines
  EXPECT_EQ(layer.matrices[1].parts.scales.offset_bytes, 2880u + 1920);
  EXPECT_EQ(layer.matrices[1].parts.offsets.offset_bytes,
            2880u + 1920 + 256);  // 240 in whole lines
  EXPECT_EQ(layer.matrices[2].parts.codes.offset_bytes, 5312u);
  EXPECT_EQ(layer.biases[2].offset, 5312u + 1344);
  EXPECT_EQ(layer.stride, 8192u);
  EXPECT_EQ(layer.file_bytes(), 3u * 8192 + 24);
}

TEST(ExpertPack, ManifestSurvivesTextAndBack) {
  const ExpertPackManifest manifest = some_manifest();
  const auto parsed = parse_expert_pack(expert_pack_text(manifest), "pack");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  EXPECT_EQ(parsed->source, manifest.source);
  EXPECT_EQ(parsed->recipe, manifest.recipe);
  EXPECT_EQ(parsed->model, manifest.model);
  EXPECT_EQ(parsed->layers, manifest.layers);
}

TEST(ExpertPack, MatricesOfBlocksKeepTheirOuterScale) {
  ExpertPackManifest manifest = some_manifest();
  const QuantFormat blocks = *find_ggml_type("NVFP4")->format;
  PackedLayer& layer = manifest.layers[0];
  layer.matrices[0] = lay_out(blocks.with_outer_scale(), 48, 128);
  layer.matrices[1] = lay_out(blocks, 48, 128);
  lay_out_blob(layer);
  const std::string text = expert_pack_text(manifest);
  const auto parsed = parse_expert_pack(text, "pack");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  EXPECT_EQ(parsed->layers, manifest.layers);
  EXPECT_TRUE(parsed->layers[0].matrices[0].has(PartRole::kOuterScale));
  EXPECT_FALSE(parsed->layers[0].matrices[1].has(PartRole::kOuterScale));

  Json json = *parse_json(text, "pack");
  json["layers"][0]["gate"]["outer_scale"] = 2;
  expect_error(parse_expert_pack(json.dump(), "p"), ErrorCode::kCorruption,
               {"gate", "outer_scale 2", "expected true"});
}

TEST(ExpertPack, RefusesAnotherFormatOrVersion) {
  Json json = *parse_json(expert_pack_text(some_manifest()), "pack");
  json["version"] = 2;
  expect_error(parse_expert_pack(json.dump(), "p"), ErrorCode::kUnsupported,
               {"p has version 2", "expected 1"});
  json["format"] = "a cake";
  expect_error(parse_expert_pack(json.dump(), "p"), ErrorCode::kCorruption,
               {"moeflux expert pack"});
  expect_error(parse_expert_pack("[]", "p"), ErrorCode::kCorruption, {"p is []", "object"});
  expect_error(parse_expert_pack("{", "p"), ErrorCode::kCorruption, {"p"});
}

TEST(ExpertPack, RefusesNumbersOutOfRange) {
  expect_refused([](Json& layer) { layer["stride"] = 8000; }, {"entry 0", "stride 8000", "4096"});
  expect_refused([](Json& layer) { layer["stride"] = uint64_t{1} << 63; }, {"stride"});
  expect_refused([](Json& layer) { layer["experts"] = 0; }, {"experts 0", "from 1"});
  expect_refused([](Json& layer) { layer["experts"] = -3; }, {"experts -3"});
  expect_refused([](Json& layer) { layer["experts"] = 2.5; }, {"experts 2.5"});
  expect_refused([](Json& layer) { layer["gate"]["rows"] = INT64_MAX; }, {"gate", "rows"});
  expect_refused([](Json& layer) { layer["up"].erase("cols"); }, {"up", "cols missing"});
  expect_refused([](Json& layer) { layer["checksums"] = "0123"; }, {"checksums", "16 hex"});
  expect_refused([](Json& layer) { layer["layer"] = 5; }, {"entry 1", "layer 5", "after"});
}

TEST(ExpertPack, RefusesFormatsThatDoNotGoTogether) {
  expect_refused([](Json& layer) { layer["gate"]["bits"] = 7; }, {"gate", "contradict each other"});
  expect_refused([](Json& layer) { layer["gate"]["bits"] = 3; }, {"tiled"});
  expect_refused([](Json& layer) { layer["gate"]["rows"] = 40; }, {"40 x 96", "tiled"});
  expect_refused([](Json& layer) { layer["up"]["group_size"] = 64; }, {"40 x 96"});
  expect_refused([](Json& layer) { layer["up"]["order"] = "diagonal"; }, {"diagonal"},
                 ErrorCode::kUnsupported);
  expect_refused([](Json& layer) { layer["down"]["dtype"] = "I8"; }, {"I8", "F16"},
                 ErrorCode::kUnsupported);
}

TEST(ExpertPack, RefusesPartsThatOverlapOrLeaveTheBlob) {
  expect_refused([](Json& layer) { layer["up"]["offset"] = 2816; }, {"up", "offset 2816", "2880"});
  expect_refused([](Json& layer) { layer["up"]["offset"] = 2900; }, {"multiple of 64"});
  expect_refused([](Json& layer) { layer["down"]["offset"] = 8128; }, {"stride of 8192"});
  expect_refused([](Json& layer) { layer["down"]["bias"]["offset"] = 8128; }, {"down bias"});
  expect_refused([](Json& layer) { layer["down"]["bias"]["offset"] = 5312; }, {"down bias"});
  expect_refused([](Json& layer) { layer["stride"] = 4096; }, {"stride of 4096"});
}

TEST(BlobChecksums, AreReadFromTheEndOfTheFile) {
  PackedLayer layer = some_layer(0);
  const std::vector<uint64_t> checksums = {1, ~uint64_t{0}, 0x8877665544332211u};
  const std::vector<std::byte> table = blob_checksum_table(checksums);
  layer.table_checksum = checksum64(table);
  std::vector<std::byte> bytes(layer.table_offset());
  bytes.insert(bytes.end(), table.begin(), table.end());
  const auto read = read_blob_checksums(MemoryFile("f", bytes), layer);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(*read, checksums);

  bytes.back() ^= std::byte{1};
  expect_error(read_blob_checksums(MemoryFile("f", bytes), layer), ErrorCode::kCorruption,
               {"f: the table of checksums", checksum_text(layer.table_checksum)});
  bytes.pop_back();
  expect_error(read_blob_checksums(MemoryFile("f", bytes), layer), ErrorCode::kCorruption,
               {"f has 24599 bytes", "expected 24600"});
}

TEST(Checksum, TextIsSixteenDigits) {
  EXPECT_EQ(checksum_text(0xabcu), "0000000000000abc");
  EXPECT_EQ(parse_checksum("0000000000000abc"), 0xabcu);
  for (const char* text :
       {"", "abc", "0000000000000ABC", "000000000000 abc", "00000000000000abc"}) {
    EXPECT_EQ(parse_checksum(text), std::nullopt) << text;
  }
  // The published value of XXH3-64 for no bytes: other programs can check our files.
  EXPECT_EQ(checksum64(std::string_view()), 0x2d06800538d394c2u);
}

}  // namespace
}  // namespace moeflux
