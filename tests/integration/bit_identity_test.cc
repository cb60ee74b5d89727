// The size of the expert cache and the number of threads change no bit of the logits.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>

#include "base/format.h"
#include "base/json.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

// Any tokens will do for bits.
const std::string kAnyTokens = "430,1,77,8191,0,12,300,4096,5,5,5,2048,999,31,7,640";
const std::string kAnyBytes = "43,1,77,191,0,12,30,96,5,5,5,248,99,31,7,64";

std::string tiny_model() { return tests_directory() + "/golden/models/qwen3_5_moe_text"; }

struct Knobs {
  std::string expert_cache = "1GiB";
  int threads = 2;
  std::string precision = "f32";
};

GoldenTensor logits(const std::string& model, const std::string& tokens, const Knobs& knobs) {
  const TempFolder folder;
  const ProgramOutput output = moeflux({"logits", "-m", model, "--tokens", tokens, "--expert-cache",
                                        knobs.expert_cache, "-t", std::to_string(knobs.threads),
                                        "--precision", knobs.precision, "-o", folder / "logits"});
  EXPECT_EQ(output.status, 0) << output.err;
  return output.status == 0 ? read_golden(folder / "logits")["logits"] : GoldenTensor{};
}

void expect_the_same_bits_whatever_the_knobs(const std::string& model, const std::string& tokens,
                                             const std::array<const char*, 4>& caches) {
  for (const std::string precision : {"f32", "int8"}) {
    const GoldenTensor expected = logits(model, tokens, {.precision = precision});
    ASSERT_EQ(expected.rows(), 16);
    for (const std::string cache : caches) {
      for (const int threads : {1, 2, 3}) {
        EXPECT_EQ(logits(model, tokens, {cache, threads, precision}).floats, expected.floats)
            << precision << ", cache " << cache << ", threads " << threads;
      }
    }
  }
}

struct StoredTensor {
  Json shape;
  std::string bytes;  // bf16
};
using Tensors = std::map<std::string, StoredTensor>;

Tensors read_tensors(const std::string& path) {
  const std::string file = read_bytes(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const auto header = parse_json(file.substr(8, header_bytes), path);
  EXPECT_TRUE(header.ok());
  Tensors tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(entry["dtype"], "BF16") << name;
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    tensors[name] = {entry["shape"], file.substr(8 + header_bytes + begin, end - begin)};
  }
  return tensors;
}

void write_tensors(const std::string& path, const Tensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t end = data.size() + tensor.bytes.size();
    header[name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {data.size(), end}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const uint64_t header_bytes = text.size();
  std::string file(sizeof(header_bytes), '\0');
  std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
  write_bytes(path, file + text + data);
}

/// Stacks the matrices of a layer's experts, gate over up, as `transformers` 5 writes them.
void fuse_experts(Tensors& tensors, const std::string& layer, int num_experts) {
  StoredTensor gate_up;
  StoredTensor down;
  for (int expert = 0; expert < num_experts; ++expert) {
    const std::string name = formatted("{}experts.{}.", layer, expert);
    for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
      auto taken = tensors.extract(name + part);
      ASSERT_FALSE(taken.empty()) << name << part;
      StoredTensor& fused = *part == 'd' ? down : gate_up;
      const int64_t rows = taken.mapped().shape[0];
      fused.shape = {num_experts, *part == 'd' ? rows : 2 * rows, taken.mapped().shape[1]};
      fused.bytes += taken.mapped().bytes;
    }
  }
  tensors[layer + "experts.gate_up_proj"] = std::move(gate_up);
  tensors[layer + "experts.down_proj"] = std::move(down);
}

std::string shard_name(size_t shard) {
  return formatted("model-0000{}-of-00003.safetensors", shard + 1);
}

/// tiny_model() with fused experts in three files and their index.
void write_sharded_copy(const std::string& to) {
  Tensors tensors = read_tensors(tiny_model() + "/model.safetensors");
  for (int layer = 0; layer < 4; ++layer) {
    fuse_experts(tensors, formatted("model.layers.{}.mlp.", layer), 8);
  }
  std::array<Tensors, 3> shards;
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  size_t next = 0;
  for (auto& [name, tensor] : tensors) {
    const size_t shard = next++ * shards.size() / tensors.size();
    index["weight_map"][name] = shard_name(shard);
    shards[shard][name] = std::move(tensor);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    write_tensors(to + "/" + shard_name(i), shards[i]);
  }
  write_bytes(to + "/model.safetensors.index.json", index.dump());
  write_bytes(to + "/config.json", read_bytes(tiny_model() + "/config.json"));
}

TEST(BitIdentity, EmbeddedModel) {
  expect_the_same_bits_whatever_the_knobs(fable(), kAnyTokens, {"0", "1MiB", "4MiB", "1GiB"});
}

TEST(BitIdentity, ModelInThreeShardsWithFusedExperts) {
  const TempFolder folder;
  write_sharded_copy(folder.path());
  expect_the_same_bits_whatever_the_knobs(folder.path(), kAnyBytes,
                                          {"0", "128KiB", "256KiB", "1GiB"});
  EXPECT_EQ(logits(folder.path(), kAnyBytes, {}).floats,
            logits(tiny_model(), kAnyBytes, {}).floats);
}

// Every 16th column of the logits of the 16-bit model, which tests/golden/SOURCES.md describes.
TEST(BitIdentity, FourBitsAgreeWithSixteenInDirection) {
  auto golden = read_golden(tests_directory() + "/golden/fable-20m-bf16-logits.safetensors");
  const GoldenTensor& sixteen = golden["logits"];
  std::string tokens;
  for (const int32_t token : golden["tokens"].ints) {
    tokens += formatted("{}{}", tokens.empty() ? "" : ",", token);
  }
  const GoldenTensor four = logits(fable(), tokens, {});
  ASSERT_EQ(four.rows(), sixteen.rows());
  ASSERT_GT(four.rows(), 20);
  for (int64_t i = 0; i < four.rows(); ++i) {
    std::vector<float> columns;
    for (size_t c = 0; c < four.row(i).size(); c += 16) columns.push_back(four.row(i)[c]);
    EXPECT_GT(cosine(columns, sixteen.row(i)), 0.98) << "position " << i;
  }
}

}  // namespace
}  // namespace moeflux::testing
