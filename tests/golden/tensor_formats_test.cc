// Quantised safetensors: every layout against numbers that independent libraries decoded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_index.h"
#include "io/file.h"
#include "model/config/config.h"
#include "model/weights/stored_formats.h"
#include "quant/format_traits.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/host_bytes.h"
#include "tests/support/io/memory_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

const std::string kTensorFormats = tests_directory() + "/golden/formats";

struct Layout {
  std::string name;
  std::string section;  // of config.json
  std::string format;   // what it is
};

std::vector<Layout> layouts() {
  const std::string fp8 = R"("quant_method": "fp8", "weight_block_size": [128, 128])";
  const auto compressed = [](const std::string& format, const std::string& weights) {
    return R"("quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "config_groups": {"group_0": {"weights": {)" + weights + "}}}";
  };
  const auto gptq = [](const std::string& bits, const std::string& group,
                       const std::string& version) {
    return R"("quant_method": "gptq", "bits": )" + bits + R"(, "group_size": )" + group +
           R"(, "checkpoint_format": ")" + version + "\"";
  };
  return {
      {"fp8_block", fp8, "fp8-128x128"},
      {"fp8_block_bf16_scale", fp8, "fp8-128x128"},
      {"fp8_block_ue8m0", fp8, "fp8-128x128 ue8m0"},
      {"fp8_channel", compressed("float-quantized", R"("num_bits": 8, "type": "float")"),
       "fp8 per channel"},
      {"mxfp8", R"("quant_method": "mxfp8", "weight_block_size": [1, 32])", "mxfp8"},
      {"mlx_mxfp8", R"("mode": "mxfp8")", "mxfp8"},
      {"mlx_mxfp4", R"("mode": "mxfp4")", "mxfp4"},
      {"mlx_nvfp4", R"("mode": "nvfp4")", "nvfp4"},
      {"mxfp4", compressed("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float")"), "mxfp4"},
      {"fp4_deepseek_v4", fp8, "mxfp4"},
      {"nvfp4", R"("quant_method": "modelopt", "quant_algo": "NVFP4")", "nvfp4"},
      {"nvfp4_ct", compressed("nvfp4-pack-quantized", R"("num_bits": 4, "type": "float")"),
       "nvfp4"},
      {"int4_g32", compressed("pack-quantized", R"("num_bits": 4, "group_size": 32)"), "int4/32"},
      {"int8_g64", compressed("pack-quantized", R"("num_bits": 8, "group_size": 64)"), "int8/64"},
      {"int4_g128_zero",
       compressed("pack-quantized", R"("num_bits": 4, "group_size": 128, "symmetric": false)"),
       "int4/128 zeros"},
      {"awq_g128", R"("quant_method": "awq", "bits": 4, "group_size": 128)", "awq/128"},
      {"awq_g64", R"("quant_method": "awq", "bits": 4, "group_size": 64)", "awq/64"},
      {"gptq_g128", gptq("4", "128", "gptq"), "gptq-4/128"},
      {"gptq_g64_order", gptq("4", "64", "gptq"), "gptq-4/64 mapped"},
      {"gptq_g64_zero", gptq("4", "64", "gptq"), "gptq-4/64 mapped"},
      {"gptq_v2_g64", gptq("4", "64", "gptq_v2"), "gptq-4/64"},
      {"gptq8_g64", gptq("8", "64", "gptq"), "gptq-8/64"},
  };
}

Result<QuantConfig> quant_config(const std::string& section) {
  auto config = Config::parse(R"({"model_type": "m", "quantization_config": {)" + section + "}}");
  EXPECT_TRUE(config.ok());
  return QuantConfig::read(*config);
}

/// layouts.safetensors, with what a test changes of it.
struct Stored {
  std::vector<std::byte> bytes;
  TensorIndex::Entries entries;

  static Stored read() {
    Stored stored;
    auto text = read_text_file(kTensorFormats + "/layouts.safetensors", uint64_t{1} << 24);
    const TempFolder folder;
    EXPECT_TRUE(text.ok() && write_text_file(folder.path() + "/model.safetensors", *text).ok());
    const auto index = TensorIndex::open(folder.path());
    EXPECT_TRUE(index.ok());
    if (!text.ok() || !index.ok()) return stored;
    stored.entries = index->entries();
    const auto bytes = std::as_bytes(std::span(*text));
    stored.bytes.assign(bytes.begin(), bytes.end());
    return stored;
  }
  TensorIndex index() const {
    std::vector<std::unique_ptr<File>> files;
    files.push_back(std::make_unique<MemoryFile>("layouts", bytes));
    return TensorIndex::from_parts(std::move(files), entries);
  }
  TensorEntry& at(const std::string& name) { return entries.at(name); }
  /// Writes whole number `i` of an I32 or I64 tensor.
  void set_int(const std::string& name, size_t i, int32_t value) {
    const size_t size = at(name).dtype == DType::kI64 ? 8 : 4;
    std::memcpy(&bytes[at(name).offset_bytes + i * size], &value, sizeof(value));
  }
};

class TensorLayouts : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    index_.emplace(Stored::read().index());
    const TensorEntry* values = index_->find(GetParam().name + ".values");
    ASSERT_TRUE(values != nullptr && values->dtype == DType::kF32);
    values_.shape = {values->shape[0], values->shape[1]};
    values_.floats.resize(static_cast<size_t>(values->shape.num_elements()));
    ASSERT_TRUE(
        read_tensor(*index_, *values, std::as_writable_bytes(std::span(values_.floats))).ok());
  }

  std::optional<StoredModule> find(TensorClaims& claims, const std::string& section) {
    const auto quant = quant_config(section);
    EXPECT_TRUE(quant.ok()) << quant.error().to_string();
    return find_module(claims, *quant, GetParam().name, ".weight",
                       Shape{values_.shape[0], values_.shape[1]});
  }

  std::optional<TensorIndex> index_;
  GoldenTensor values_;
};

void expect_rows(const Weight& weight, const GoldenTensor& values) {
  std::vector<float> row(static_cast<size_t>(weight.cols));
  for (int64_t r = 0; r < weight.rows; ++r) {
    decode_row(weight, r, row);
    for (size_t c = 0; c < row.size(); ++c) {
      const float expected = values.row(r)[c];
      ASSERT_TRUE(row[c] == expected || (std::isnan(row[c]) && std::isnan(expected)))
          << "row " << r << " column " << c << ": " << row[c] << ", expected " << expected;
    }
  }
}

TEST_P(TensorLayouts, EveryNumberIsTheOneThatOthersDecode) {
  TensorClaims claims(*index_, {});
  const std::optional<StoredModule> module = find(claims, GetParam().section);
  ASSERT_TRUE(module.has_value()) << claims.finish().error().to_string();
  EXPECT_EQ(module->format.to_string(), GetParam().format);
  const int64_t rows = values_.shape[0];
  const int64_t cols = values_.shape[1];
  Weight stored = lay_out(module->format, rows, cols);
  HostBytes arrived(std::vector<std::byte>(place_parts(stored, 0, 64)));
  const Parts<std::span<std::byte>> parts = stored.bytes_in(arrived.host_data());
  for (const PartRole role : kPartRoles) {
    if (!stored.has(role)) continue;
    ASSERT_TRUE(read_tensor(*index_, *module->parts[role].entry, parts[role]).ok());
  }
  expect_rows(stored.at(arrived, 0), values_);
  const QuantFormat format = format_in_memory(module->format, rows, cols);
  for (const WeightOrder order : {WeightOrder::kRowMajor, WeightOrder::kTiled}) {
    if (order == WeightOrder::kTiled && !format.is_affine()) continue;
    Weight made = lay_out(format.with_order(order), rows, cols);
    HostBytes memory(std::vector<std::byte>(place_parts(made, 0, 64)));
    arrange_matrix(made, made.bytes_in(memory.host_data()), stored, parts);
    expect_rows(made.at(memory, 0), values_);
  }
}

TEST_P(TensorLayouts, AnotherRuleOfTheConfigIsAContradiction) {
  TensorClaims claims(*index_, {});
  const bool is_awq = GetParam().section.find("awq") != std::string::npos;
  EXPECT_FALSE(find(claims, is_awq ? R"("quant_method": "fp8")"
                                   : R"("quant_method": "awq", "bits": 4, "group_size": 64)"));
  const Status status = claims.finish();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("module " + GetParam().name), std::string::npos)
      << status.error().message();
}

INSTANTIATE_TEST_SUITE_P(All, TensorLayouts, ::testing::ValuesIn(layouts()),
                         [](const auto& test) { return test.param.name; });

struct Wrong {
  std::string what;
  std::string layout;
  std::string section;  // empty: the layout's own
  ErrorCode code;
  std::vector<std::string> said;
  std::function<void(Stored&)> change;
};

const Layout& layout_of(const std::vector<Layout>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const Layout& l) { return l.name == name; });
}

using Change = std::function<void(Stored&)>;
Change shape(const std::string& name, const Shape& to) {
  return [name, to](Stored& s) { s.at(name).shape = to; };
}
Change erase(const std::string& name) {
  return [name](Stored& s) { s.entries.erase(name); };
}
Change dtype(const std::string& name, DType to) {
  return [name, to](Stored& s) { s.at(name).dtype = to; };
}
Change number(const std::string& name, size_t i, int32_t to) {
  return [name, i, to](Stored& s) { s.set_int(name, i, to); };
}
void nothing(Stored&) {}
constexpr ErrorCode kCorrupt = ErrorCode::kCorruption;

std::vector<Wrong> wrong_floats() {
  return {
      {"scales of blocks that restart",
       "fp8_block",
       "",
       kCorrupt,
       {"[3, 2]", "blocks of 128 x 128"},
       shape("fp8_block.weight_scale_inv", {3, 2})},
      {"transposed scales",
       "fp8_block",
       "",
       kCorrupt,
       {"[136, 160]", "[160, 136]"},
       shape("fp8_block.weight", {160, 136})},
      {"blocks of another size",
       "fp8_block",
       R"("quant_method": "fp8", "weight_block_size": [64, 64])",
       kCorrupt,
       {"blocks of 64 x 64"},
       nothing},
      {"scales of integers",
       "fp8_block",
       "",
       kCorrupt,
       {"I32"},
       dtype("fp8_block.weight_scale_inv", DType::kI32)},
      {"no scales",
       "fp8_block",
       "",
       kCorrupt,
       {"no weight_scale"},
       erase("fp8_block.weight_scale_inv")},
      {"another float",
       "fp8_block",
       "",
       ErrorCode::kUnsupported,
       {"F8_E5M2", "F8_E4M3"},
       dtype("fp8_block.weight", DType::kF8E5M2)},
      {"scales of half the rows",
       "mxfp8",
       "",
       kCorrupt,
       {"[8, 8]"},
       shape("mxfp8.weight_scale_inv", {8, 8})},
      {"no outer scale",
       "nvfp4",
       "",
       kCorrupt,
       {"no weight_scale_2"},
       erase("nvfp4.weight_scale_2")},
      {"two outer scales",
       "nvfp4",
       "",
       kCorrupt,
       {"weight_scale_2 has 8 bytes"},
       [](Stored& s) { s.at("nvfp4.weight_scale_2").size_bytes = 8; }},
      {"scales of another group",
       "mxfp4",
       "",
       kCorrupt,
       {"weight_scale U8 [16, 16]"},
       shape("mxfp4.weight_scale", {16, 16})},
      {"another mode", "mlx_mxfp4", R"("mode": "mxfp8")", kCorrupt, {"mxfp4", "mxfp8"}, nothing},
  };
}

std::vector<Wrong> wrong_pairs() {
  return {
      {"powers of fewer groups",
       "fp4_deepseek_v4",
       "",
       kCorrupt,
       {"weight I8", "scale F8_E8M0 [16, 16]", "MXFP4"},
       shape("fp4_deepseek_v4.scale", {16, 16})},
      {"powers that are numbers",
       "fp4_deepseek_v4",
       "",
       kCorrupt,
       {"scale F32", "MXFP4"},
       dtype("fp4_deepseek_v4.scale", DType::kF32)},
  };
}

std::vector<Wrong> wrong_packed() {
  return {
      {"a stated shape that is another",
       "int4_g32",
       "",
       kCorrupt,
       {"weight_shape says [16, 255]", "[16, 256]"},
       number("int4_g32.weight_shape", 1, 255)},
      {"three bits",
       "int4_g32",
       "",
       kCorrupt,
       {"[16, 24]", "4 or 8 bits"},
       shape("int4_g32.weight_packed", {16, 24})},
      {"no groups", "int4_g32", "", kCorrupt, {"[16, 0]"}, shape("int4_g32.weight_scale", {16, 0})},
      {"another group than stated",
       "int4_g32",
       R"("quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 64}}})",
       kCorrupt,
       {"int4/32", "4 bits in groups of 64"},
       nothing},
      {"zero points that are not said",
       "int4_g128_zero",
       R"("quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 128}}})",
       kCorrupt,
       {"int4/128 zeros", "4 bits in groups of 128"},
       nothing},
      {"zero points of other rows",
       "int4_g128_zero",
       "",
       kCorrupt,
       {"weight_zero_point I32 [4, 1]"},
       shape("int4_g128_zero.weight_zero_point", {4, 1})},
  };
}

std::vector<Wrong> wrong_transposed() {
  const std::string gptq = R"("quant_method": "gptq", "bits": )";
  return {
      {"a map beyond the groups",
       "gptq_g64_order",
       "",
       kCorrupt,
       {"g_idx", "groups below 4, column 7 has 4"},
       number("gptq_g64_order.g_idx", 7, 4)},
      {"a map below the groups",
       "gptq_g64_order",
       "",
       kCorrupt,
       {"column 255 has -2"},
       number("gptq_g64_order.g_idx", 255, -2)},
      {"a map of fewer columns",
       "gptq_g64_order",
       "",
       kCorrupt,
       {"g_idx I32 [128]", "I32 [256]"},
       shape("gptq_g64_order.g_idx", {128})},
      {"bits that are not stored",
       "gptq_g128",
       gptq + R"(8, "group_size": 128)",
       kCorrupt,
       {"[32, 16]", "8 bits"},
       nothing},
      {"groups that are not stored",
       "gptq_g128",
       gptq + R"(4, "group_size": 32)",
       kCorrupt,
       {"groups of 32"},
       nothing},
      {"no rule", "gptq_g128", R"("mode": "mxfp4")", kCorrupt, {"AWQ or GPTQ", "mlx"}, nothing},
      {"no zero points", "awq_g64", "", kCorrupt, {"no qzeros"}, erase("awq_g64.qzeros")},
      {"rows that are not there",
       "awq_g64",
       "",
       kCorrupt,
       {"qweight I32 [256, 1]"},
       shape("awq_g64.qweight", {256, 1})},
  };
}

TEST(TensorLayout, WhatDoesNotMakeAMatrixIsSaidInOneLine) {
  const std::vector<Layout> all = layouts();
  std::vector<Wrong> all_wrong = wrong_floats();
  for (Wrong& wrong : wrong_pairs()) all_wrong.push_back(std::move(wrong));
  for (Wrong& wrong : wrong_packed()) all_wrong.push_back(std::move(wrong));
  for (Wrong& wrong : wrong_transposed()) all_wrong.push_back(std::move(wrong));
  for (const Wrong& wrong : all_wrong) {
    SCOPED_TRACE(wrong.what);
    Stored stored = Stored::read();
    const Shape shape = stored.at(wrong.layout + ".values").shape;
    wrong.change(stored);
    const TensorIndex index = stored.index();
    TensorClaims claims(index, {});
    const auto quant =
        quant_config(wrong.section.empty() ? layout_of(all, wrong.layout).section : wrong.section);
    ASSERT_TRUE(quant.ok()) << quant.error().to_string();
    EXPECT_FALSE(find_module(claims, *quant, wrong.layout, ".weight", shape).has_value());
    const Status status = claims.finish();
    expect_error(status, wrong.code, {"module " + wrong.layout});
    for (const std::string& said : wrong.said) expect_error(status, wrong.code, {said});
  }
}

// DeepSeek-V4 calls scales so, and stores those of its base models in f32.
TEST(TensorLayout, ScalesMayBeCalledAsDeepSeekV4Does) {
  for (const char* layout : {"fp8_block", "fp8_block_ue8m0"}) {
    SCOPED_TRACE(layout);
    const std::string name = layout;
    Stored stored = Stored::read();
    const Shape shape = stored.at(name + ".values").shape;
    auto scales = stored.entries.extract(name + ".weight_scale_inv");
    ASSERT_FALSE(scales.empty());
    scales.key() = name + ".scale";
    stored.entries.insert(std::move(scales));
    const TensorIndex index = stored.index();
    TensorClaims claims(index, {});
    const auto module = find_module(claims, *quant_config(layout_of(layouts(), name).section), name,
                                    ".weight", shape);
    ASSERT_TRUE(module.has_value()) << claims.finish().error().to_string();
    EXPECT_EQ(module->format.to_string(), layout_of(layouts(), name).format);
    EXPECT_EQ(module->parts.scales.name, name + ".scale");
  }
}

// Tools without types for them write both as bytes.
TEST(TensorLayout, PairsAndPowersOfDeepSeekV4MayBeBytes) {
  const std::string name = "fp4_deepseek_v4";
  Stored stored = Stored::read();
  const Shape shape = stored.at(name + ".values").shape;
  stored.at(name + ".weight").dtype = DType::kU8;
  stored.at(name + ".scale").dtype = DType::kU8;
  const TensorIndex index = stored.index();
  TensorClaims claims(index, {});
  const auto module = find_module(claims, *quant_config(layout_of(layouts(), name).section), name,
                                  ".weight", shape);
  ASSERT_TRUE(module.has_value()) << claims.finish().error().to_string();
  EXPECT_EQ(module->format.to_string(), "mxfp4");
}

/// A matrix [64, 96] as the config says, in four bits: its format, or what is wrong with it.
std::string format_of(const std::string& section, const std::map<std::string, Shape>& tensors) {
  constexpr uint64_t kRoom = 4096;
  Stored stored;
  for (const auto& [name, shape] : tensors) {
    const DType dtype = name.find("scale") != std::string::npos ? DType::kF16 : DType::kI32;
    stored.entries["m." + name] = {
        .offset_bytes = stored.bytes.size(),
        .size_bytes = static_cast<uint64_t>(shape.num_elements() * dtype_bits(dtype) / 8),
        .dtype = dtype,
        .shape = shape};
    stored.bytes.resize(stored.bytes.size() + kRoom);
  }
  if (tensors.contains("g_idx")) {
    for (int32_t i = 64; i < 96; ++i) stored.set_int("m.g_idx", static_cast<size_t>(i), 1);
  }
  const TensorIndex index = stored.index();
  TensorClaims claims(index, {});
  const auto module = find_module(claims, *quant_config(section), "m", ".weight", Shape{64, 96});
  return module ? module->format.to_string() : claims.finish().error().message();
}

// Two groups of 96 columns have 64 and 32 of them, or 48 each.
TEST(TensorLayout, GroupsOfGptqThatVaryAreOfASizeThatTheConfigSays) {
  const auto found = [](const std::string& other, bool has_map) {
    std::map<std::string, Shape> tensors = {
        {"qweight", {12, 64}}, {"qzeros", {2, 8}}, {"scales", {2, 64}}};
    if (has_map) tensors["g_idx"] = {96};
    return format_of(
        R"("quant_method": "gptq", "bits": 4, "group_size": 64, "dynamic": {"+:a": {)" + other +
            "}}",
        tensors);
  };
  for (const bool has_map : {false, true}) {
    EXPECT_EQ(found(R"("bits": 8)", has_map), "gptq-4/64");
    EXPECT_EQ(found(R"("group_size": 32)", has_map), "gptq-4/64");
  }
  EXPECT_EQ(found(R"("group_size": 48)", true), "gptq-4/48 mapped");
  EXPECT_NE(found(R"("group_size": 48)", false).find("module m has qweight"), std::string::npos);
}

TEST(TensorLayout, AMapIsMissedWhereTheGroupOfTheModuleHasOne) {
  const auto found = [](const std::string& width) {
    const auto group = [](const std::string& rest) {
      return R"({"weights": {"num_bits": 4, "type": "int", )" + rest + "}}";
    };
    return format_of(
        R"("quant_method": "compressed-tensors", "format": "pack-quantized",)"
        R"("config_groups": {"a": )" +
            group(R"("strategy": "group", "actorder": "group", "group_size": )" + width) +
            R"(, "b": )" + group(R"("strategy": "channel")") + "}",
        {{"weight_packed", {64, 12}}, {"weight_scale", {64, 1}}});
  };
  EXPECT_EQ(found("32"), "int4/channel");
}

}  // namespace
}  // namespace moeflux::testing
