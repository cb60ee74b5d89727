#include "convert/random/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/tensor_index.h"
#include "quant/formats/affine.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::read_bytes;
using testing::TempFolder;

std::vector<std::byte> bytes_of(const SyntheticTensor& tensor, uint64_t seed) {
  std::vector<std::byte> bytes(tensor.size_bytes());
  fill_synthetic(tensor, seed, 0, bytes);
  return bytes;
}

SyntheticCheckpoint small_checkpoint() {
  SyntheticCheckpoint checkpoint{.config_json = "{}\n"};
  checkpoint.add_linear("a", {3, 5, 128}, {.bits = 4, .group_size = 32}, 0.5f);
  checkpoint.add_vector("odd", {7}, DType::kBf16, -1.0f, 1.0f);
  checkpoint.add_linear("b", {64, 256}, {.bits = 8, .group_size = 64}, 0.25f);
  checkpoint.add_vector("scalars", {9}, DType::kF32, 2.0f, 3.0f);
  return checkpoint;
}

TEST(SyntheticTensor, BytesFollowFromSeedNameAndPlaceAlone) {
  for (const SyntheticTensor& tensor : small_checkpoint().tensors) {
    const std::vector<std::byte> whole = bytes_of(tensor, 1);
    EXPECT_NE(whole, bytes_of(tensor, 2)) << tensor.name;
    for (const size_t piece : {1u, 7u, 64u, 100u}) {
      std::vector<std::byte> pieces(whole.size());
      for (size_t i = 0; i < whole.size(); i += piece) {
        const size_t count = std::min(piece, whole.size() - i);
        fill_synthetic(tensor, 1, i, std::span(pieces).subspan(i, count));
      }
      EXPECT_EQ(pieces, whole) << tensor.name << " in pieces of " << piece;
    }
  }
}

TEST(SyntheticTensor, VectorsStayBetweenTheirBounds) {
  SyntheticCheckpoint checkpoint;
  checkpoint.add_vector("f32", {4096}, DType::kF32, -6.0f, -2.0f);
  checkpoint.add_vector("bf16", {4096}, DType::kBf16, -6.0f, -2.0f);
  for (const SyntheticTensor& tensor : checkpoint.tensors) {
    const std::vector<std::byte> bytes = bytes_of(tensor, 0);
    double sum = 0.0;
    for (int64_t i = 0; i < 4096; ++i) {
      const float value = load_float(bytes.data(), i, tensor.dtype);
      ASSERT_GE(value, -6.0f);
      ASSERT_LE(value, -2.0f);
      sum += value;
    }
    EXPECT_NEAR(sum / 4096, -4.0, 0.1) << tensor.name;
  }
}

TEST(SyntheticLinear, WeightsHaveMeanZeroAndTheDeviationAskedFor) {
  for (const int bits : {4, 8}) {
    const float deviation = 0.02f;
    SyntheticCheckpoint checkpoint;
    checkpoint.add_linear("m", {64, 1024}, {.bits = bits, .group_size = 64}, deviation);
    ASSERT_EQ(checkpoint.tensors.size(), 3u);
    const auto codes = bytes_of(checkpoint.tensors[0], 0);
    const auto scales = bytes_of(checkpoint.tensors[1], 0);
    const auto biases = bytes_of(checkpoint.tensors[2], 0);
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < 64 * 1024; ++i) {
      const float scale = load_float(scales.data(), i / 64, DType::kBf16);
      const float bias = load_float(biases.data(), i / 64, DType::kBf16);
      // The middle of all codes is exactly zero.
      ASSERT_EQ(bias, -scale * static_cast<float>((1 << bits) - 1) / 2.0f);
      const double w = scale * static_cast<float>(affine::code_at(codes.data(), i, bits)) + bias;
      sum += w;
      squares += w * w;
    }
    const double n = 64.0 * 1024.0;
    EXPECT_NEAR(sum / n, 0.0, 0.02 * deviation) << bits;
    // 8-bit scales are powers of two: within a factor of the square root of two, or a third.
    EXPECT_NEAR(std::sqrt(squares / n), deviation, (bits == 4 ? 0.1 : 0.42) * deviation) << bits;
  }
}

TEST(WriteSynthetic, NeitherThreadsNorShardsChangeATensor) {
  const TempFolder one;
  const TempFolder many;
  const SyntheticCheckpoint checkpoint = small_checkpoint();
  ASSERT_TRUE(write_synthetic(checkpoint, {.directory = one.path(), .seed = 5, .threads = 1}).ok());
  ASSERT_TRUE(
      write_synthetic(checkpoint,
                      {.directory = many.path(), .seed = 5, .threads = 3, .shard_bytes_max = 2000})
          .ok());
  const auto left = TensorIndex::open(one.path());
  const auto right = TensorIndex::open(many.path());
  ASSERT_TRUE(left.ok()) << left.error().to_string();
  ASSERT_TRUE(right.ok()) << right.error().to_string();
  EXPECT_EQ(left->num_files(), 1);
  EXPECT_GT(right->num_files(), 2);
  ASSERT_EQ(left->entries().size(), checkpoint.tensors.size());
  for (const SyntheticTensor& tensor : checkpoint.tensors) {
    const std::vector<std::byte> expected = bytes_of(tensor, 5);
    for (const TensorIndex* index : {&*left, &*right}) {
      const TensorEntry* entry = index->find(tensor.name);
      ASSERT_NE(entry, nullptr) << tensor.name;
      EXPECT_EQ(entry->dtype, tensor.dtype);
      EXPECT_EQ(entry->shape, tensor.shape);
      std::vector<std::byte> bytes(entry->size_bytes);
      ASSERT_TRUE(read_tensor(*index, *entry, bytes).ok());
      EXPECT_EQ(bytes, expected) << tensor.name;
    }
  }
  EXPECT_EQ(read_bytes(one / "config.json"), "{}\n");
}

TEST(WriteSynthetic, TellsHowFarItIsUpToTheEnd) {
  const TempFolder folder;
  const SyntheticCheckpoint checkpoint = small_checkpoint();
  std::vector<uint64_t> seen = {0};
  ASSERT_TRUE(write_synthetic(checkpoint, {.directory = folder.path(),
                                           .shard_bytes_max = 2000,
                                           .progress = [&](uint64_t n) { seen.push_back(n); }})
                  .ok());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), checkpoint.size_bytes());
}

TEST(WriteSynthetic, AStoppedWriterLeavesNoConfig) {
  const TempFolder folder;
  std::stop_source stop;
  stop.request_stop();
  testing::expect_error(
      write_synthetic(small_checkpoint(), {.directory = folder.path(), .stop = stop.get_token()}),
      ErrorCode::kCancelled, {"stopped"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace moeflux
