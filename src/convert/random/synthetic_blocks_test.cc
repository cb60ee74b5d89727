#include "convert/random/synthetic_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/gguf.h"
#include "quant/format_traits.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

SyntheticTensor matrix_of(const GgmlType& type, float deviation) {
  SyntheticCheckpoint checkpoint;
  checkpoint.add_ggml("m", {64, 1024}, type, deviation);
  return checkpoint.tensors.front();
}

std::vector<float> numbers_of(const SyntheticTensor& tensor, const GgmlType& type) {
  std::vector<std::byte> bytes(tensor.size_bytes());
  fill_synthetic(tensor, 3, 0, bytes);
  std::vector<float> numbers;
  if (type.format->is_plain()) {
    for (int64_t i = 0; i < tensor.shape.num_elements(); ++i) {
      numbers.push_back(load_float(bytes.data(), i, type.format->dtype));
    }
    return numbers;
  }
  const BlockLayout& block = type.format->kind->block;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(block.bytes)) {
    const auto* one = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    for (int e = 0; e < block.elements; ++e) numbers.push_back(block.number(one, e));
  }
  return numbers;
}

TEST(SyntheticBlocks, NumbersOfEveryTypeHaveMeanZeroAndTheDeviationAskedFor) {
  int types = 0;
  for (const GgmlType& type : ggml_types()) {
    if (!can_fill(type)) continue;
    ++types;
    // 0.0022 is what outputs of a network of 512 get, near the least half of Q6_K's scales.
    for (const float deviation : {1.0f, 0.02f, 0.0022f}) {
      const std::vector<float> numbers = numbers_of(matrix_of(type, deviation), type);
      ASSERT_EQ(numbers.size(), 64u * 1024u) << type.name;
      double sum = 0.0;
      double squares = 0.0;
      for (const float number : numbers) {
        ASSERT_TRUE(std::isfinite(number)) << type.name;
        sum += number;
        squares += static_cast<double>(number) * number;
      }
      const auto n = static_cast<double>(numbers.size());
      EXPECT_NEAR(sum / n, 0.0, 0.08 * deviation) << type.name;
      EXPECT_NEAR(std::sqrt(squares / n), deviation, 0.06 * deviation) << type.name;
    }
  }
  EXPECT_EQ(types, 28);
}

TEST(SyntheticBlocks, NoBlockIsOfZeros) {
  for (const GgmlType& type : ggml_types()) {
    if (!can_fill(type) || type.format->is_plain()) continue;
    const std::vector<float> numbers = numbers_of(matrix_of(type, 0.0022f), type);
    const auto elements = static_cast<size_t>(type.block_elements);
    for (size_t i = 0; i < numbers.size(); i += elements) {
      ASSERT_TRUE(std::any_of(numbers.begin() + static_cast<int64_t>(i),
                              numbers.begin() + static_cast<int64_t>(i + elements),
                              [](float number) { return number != 0.0f; }))
          << type.name << " " << i;
    }
  }
}

TEST(SyntheticBlocks, BytesFollowFromSeedNameAndPlaceAlone) {
  for (const GgmlType& type : ggml_types()) {
    if (!can_fill(type)) continue;
    const SyntheticTensor tensor = matrix_of(type, 0.02f);
    std::vector<std::byte> whole(tensor.size_bytes());
    fill_synthetic(tensor, 1, 0, whole);
    std::vector<std::byte> pieces(whole.size());
    constexpr size_t kPiece = 97;
    for (size_t i = 0; i < whole.size(); i += kPiece) {
      const size_t count = std::min(kPiece, whole.size() - i);
      fill_synthetic(tensor, 1, i, std::span(pieces).subspan(i, count));
    }
    EXPECT_EQ(pieces, whole) << type.name;
    fill_synthetic(tensor, 2, 0, pieces);
    EXPECT_NE(pieces, whole) << type.name;
  }
}

TEST(SyntheticBlocks, TypesThatNeedMoreThanBlocksAreNotMade) {
  EXPECT_FALSE(can_fill(*find_ggml_type("NVFP4")));
  EXPECT_FALSE(can_fill(*find_ggml_type("IQ2_TN")));  // nobody here reads it
}

TEST(WriteSyntheticGguf, OurReaderFindsEveryTensorWithItsBytes) {
  const testing::TempFolder folder;
  SyntheticCheckpoint checkpoint;
  checkpoint.add_vector("norm", {5}, DType::kF32, 0.9f, 1.1f);
  checkpoint.add_ggml("stack", {3, 7, 256}, *find_ggml_type("Q6_K"), 0.1f);
  checkpoint.add_ggml("odd", {3, 32}, *find_ggml_type("Q4_0"), 0.1f);
  checkpoint.add_ggml("half", {9, 3}, *find_ggml_type("F16"), 0.1f);
  gguf::KeyWriter keys;
  keys.text("general.architecture", "toy");
  const Status written = write_synthetic_gguf(
      keys, checkpoint, "m.gguf", {.directory = folder.path(), .seed = 5, .threads = 3});
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  const auto container = gguf::Container::open(folder / "m.gguf");
  ASSERT_TRUE(container.ok()) << container.error().to_string();
  ASSERT_EQ(container->tensors().size(), checkpoint.tensors.size());
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const SyntheticTensor& tensor = checkpoint.tensors[i];
    const gguf::TensorInfo& info = container->tensors()[i];
    EXPECT_EQ(info.name, tensor.name);
    EXPECT_EQ(info.shape, tensor.shape);
    std::vector<std::byte> expected(tensor.size_bytes());
    fill_synthetic(tensor, 5, 0, expected);
    std::vector<std::byte> found(info.size_bytes);
    ASSERT_TRUE(container->file(0).read_at(info.offset_bytes, found).ok());
    EXPECT_EQ(found, expected) << tensor.name;
  }
}

TEST(WriteSyntheticGguf, AStoppedWriterLeavesNothing) {
  const testing::TempFolder folder;
  SyntheticCheckpoint checkpoint;
  checkpoint.add_vector("norm", {5}, DType::kF32, 0.9f, 1.1f);
  gguf::KeyWriter keys;
  keys.text("general.architecture", "toy");
  std::stop_source stop;
  stop.request_stop();
  testing::expect_error(
      write_synthetic_gguf(keys, checkpoint, "m.gguf",
                           {.directory = folder.path(), .stop = stop.get_token()}),
      ErrorCode::kCancelled, {"stopped"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace moeflux
