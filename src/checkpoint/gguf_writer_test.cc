// Headers that are written read as what they were made of.
#include "checkpoint/gguf_writer.h"

#include <gtest/gtest.h>

#include "checkpoint/gguf.h"
#include "tests/support/expect_error.h"
#include "tests/support/io/memory_file.h"

namespace moeflux::gguf {
namespace {

using testing::expect_error;

KeyWriter toy_keys() {
  KeyWriter keys;
  keys.text("general.architecture", "toy");
  return keys;
}

Container read(const Layout& layout) {
  std::vector<std::unique_ptr<File>> files;
  files.push_back(
      std::make_unique<MemoryFile>("m.gguf", layout.header + std::string(layout.data_bytes, '\0')));
  auto container = Container::read(std::move(files));
  EXPECT_TRUE(container.ok()) << (container.ok() ? "" : container.error().to_string());
  return container.ok() ? std::move(container).value() : Container();
}

TEST(GgufWriter, KeysReadBackWithTheirTypes) {
  KeyWriter keys = toy_keys();
  keys.u32("toy.many", 4294967295);
  keys.f32("toy.eps", 1e-6);
  keys.flag("toy.yes", true);
  keys.ints("toy.each", std::vector<int64_t>{3, 0, -1});
  keys.text("toy.empty", "");
  EXPECT_EQ(keys.count(), 6u);
  const auto layout = lay_out_file(keys, {});
  ASSERT_TRUE(layout.ok()) << layout.error().to_string();
  const Container found = read(*layout);
  EXPECT_EQ(found.architecture(), "toy");
  EXPECT_EQ(found.keys().values().size(), 6u);
  EXPECT_EQ(std::get<int64_t>(found.keys().find("toy.many")->data), 4294967295);
  EXPECT_EQ(std::get<double>(found.keys().find("toy.eps")->data), 1e-6f);
  EXPECT_TRUE(std::get<bool>(found.keys().find("toy.yes")->data));
  EXPECT_EQ(*found.keys().ints("toy.each"), (std::vector<int64_t>{3, 0, -1}));
  EXPECT_EQ(*found.keys().text("toy.empty"), "");
}

TEST(GgufWriter, TensorsFollowEachOtherAlignedAndInnermostFirst) {
  const std::vector<PlannedTensor> tensors = {
      {"odd", find_ggml_type("F32"), {3}},
      {"stack", find_ggml_type("Q4_K"), {2, 5, 512}},
      {"matrix", find_ggml_type("Q4_0"), {7, 32}},
  };
  const auto layout = lay_out_file(toy_keys(), tensors);
  ASSERT_TRUE(layout.ok()) << layout.error().to_string();
  EXPECT_EQ(layout->header.size() % 32, 0u);
  EXPECT_EQ(layout->begins, (std::vector<uint64_t>{0, 32, 32 + 2880}));
  EXPECT_EQ(layout->data_bytes, 32u + 2880 + 128);
  const Container found = read(*layout);
  ASSERT_EQ(found.tensors().size(), 3u);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = found.tensors()[i];
    EXPECT_EQ(info.name, tensors[i].name);
    EXPECT_EQ(info.type, tensors[i].type);
    EXPECT_EQ(info.shape, tensors[i].shape);
    EXPECT_EQ(info.size_bytes, tensors[i].size_bytes());
    EXPECT_EQ(info.offset_bytes, layout->header.size() + layout->begins[i]);
  }
}

TEST(GgufWriter, RefusesWhatOurReaderWould) {
  const PlannedTensor tensor{"twice", find_ggml_type("F32"), {4}};
  expect_error(lay_out_file(toy_keys(), std::vector{tensor, tensor}), ErrorCode::kInvalidArgument,
               {"twice"});
  const PlannedTensor longer{std::string(64, 'x'), find_ggml_type("F32"), {4}};
  expect_error(lay_out_file(toy_keys(), std::vector{longer}), ErrorCode::kInvalidArgument, {"64"});
}

}  // namespace
}  // namespace moeflux::gguf
