#include "checkpoint/safetensors_stream.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/safetensors.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux::safetensors {
namespace {

using moeflux::testing::expect_error;
using moeflux::testing::read_bytes;
using moeflux::testing::TempFolder;

const std::vector<PlannedTensor> kTensors = {
    {"a", DType::kU8, {3}, 3}, {"b", DType::kBf16, {2, 2}, 8}, {"none", DType::kF32, {0}, 0}};
constexpr std::string_view kBytes = "abcdefghijk";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

size_t files_in(const TempFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(SafetensorsStream, PiecesNeedNotEndWhereTensorsDo) {
  const TempFolder folder;
  for (size_t piece = 1; piece <= kBytes.size(); ++piece) {
    const auto writer = StreamWriter::create(folder / "streamed", kTensors, {{"k", "v"}});
    ASSERT_TRUE(writer.ok()) << writer.error().to_string();
    EXPECT_EQ((*writer)->bytes_left(), kBytes.size());
    for (size_t i = 0; i < kBytes.size(); i += piece) {
      ASSERT_TRUE((*writer)->write(bytes_of(kBytes.substr(i, piece))).ok());
    }
    EXPECT_EQ((*writer)->bytes_left(), 0u);
    ASSERT_TRUE((*writer)->commit().ok());
    const std::vector<WriteEntry> entries = {
        {"a", DType::kU8, {3}, bytes_of(kBytes.substr(0, 3))},
        {"b", DType::kBf16, {2, 2}, bytes_of(kBytes.substr(3))},
        {"none", DType::kF32, {0}, {}}};
    ASSERT_TRUE(write_file(folder / "whole", entries, {{"k", "v"}}).ok());
    EXPECT_EQ(read_bytes(folder / "streamed"), read_bytes(folder / "whole"));
  }
}

TEST(SafetensorsStream, NothingIsLeftWithoutACommit) {
  const TempFolder folder;
  {
    const auto writer = StreamWriter::create(folder / "x", kTensors, {});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->write(bytes_of(kBytes)).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  }
  EXPECT_EQ(files_in(folder), 0u);
}

TEST(SafetensorsStream, AFileThatIsTooShortIsNotCommitted) {
  const TempFolder folder;
  const auto writer = StreamWriter::create(folder / "x", kTensors, {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->write(bytes_of(kBytes.substr(1))).ok());
  expect_error((*writer)->commit(), ErrorCode::kFailedPrecondition, {"x: ", "1 bytes"});
  ASSERT_TRUE((*writer)->write(bytes_of("z")).ok());
  EXPECT_TRUE((*writer)->commit().ok());
}

TEST(SafetensorsStream, BytesBeyondThePlanAreRefused) {
  const TempFolder folder;
  const auto writer = StreamWriter::create(folder / "x", kTensors, {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->write(bytes_of(kBytes.substr(0, 10))).ok());
  expect_error((*writer)->write(bytes_of("yz")), ErrorCode::kInvalidArgument,
               {"2 bytes", "leaves 1"});
  EXPECT_EQ((*writer)->bytes_left(), 1u);
}

TEST(SafetensorsStream, PlansThatAReaderWouldRefuseAreRefused) {
  const TempFolder folder;
  const auto create = [&](const std::vector<PlannedTensor>& tensors) {
    return StreamWriter::create(folder / "x", tensors, {});
  };
  expect_error(create({{"a", DType::kF32, {2}, 7}}), ErrorCode::kInvalidArgument, {"a"});
  expect_error(create({{"a", DType::kU8, {1}, 1}, {"a", DType::kU8, {1}, 1}}),
               ErrorCode::kInvalidArgument, {"a"});
  expect_error(create({{"__metadata__", DType::kU8, {1}, 1}}), ErrorCode::kInvalidArgument,
               {"__metadata__"});
  EXPECT_EQ(files_in(folder), 0u);
}

}  // namespace
}  // namespace moeflux::safetensors
