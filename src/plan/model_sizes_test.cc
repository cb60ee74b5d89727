// Sizes of public models from their configs alone, against published figures and counts made
// independently of this program; and what happens in folders without weights.
#include "plan/model_sizes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "model/config/config.h"
#include "model/family/public_models.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::TempFolder;

std::unique_ptr<LoadedModel> describe(const std::string& directory) {
  const std::unique_ptr<Device> device = make_trace_device();
  auto model = describe_model(directory, *device, {});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
  return model.ok() ? std::move(model).value() : nullptr;
}

std::string giga(uint64_t value, int digits) {
  return formatted("{:.{}f}", static_cast<double>(value) / 1e9, digits);
}

// Bytes of a router's parameter: affine groups of 64 with two bf16 each, or bf16.
constexpr double kBits4 = 0.5625;
constexpr double kBits8 = 1.0625;
constexpr double kBf16 = 2.0;

// Sizes in 1e9 bytes, parameters in 1e9, as printed.
struct PublicSizes {
  const char* name;
  uint64_t bytes_per_expert;
  const char* experts;
  const char* dense;
  const char* total;
  const char* active;
  const char* active_experts;
  const char* parameters;
  const char* active_parameters;
  uint64_t kv_bytes_bf16;        // a token
  const char* recurrent_mega;    // f32 matrices, bf16 convolutions
  double router_bytes = kBits8;  // a parameter; the figures follow the habits of each family
};

void PrintTo(const PublicSizes& model, std::ostream* out) { *out << model.name; }

// The figures count matrices and convolutions; Kimi-K3's count all that a token reads. Two differ
// in the last digit from a count of every parameter, which is used here: gpt-oss-120b (116.83 with
// the biases of experts) and GLM-4.5 (32.86 with biases of attention).
constexpr PublicSizes kModels[] = {
    {"qwen3.5-35b-a3b", 1769472, "18.12", "1.39", "19.5", "1.670", "0.566", "34.66", "2.95", 20480,
     "64.4"},
    {"qwen3.6-35b-a3b", 1769472, "18.12", "1.39", "19.5", "1.670", "0.566", "34.66", "2.95", 20480,
     "64.4"},
    {"qwen3.5-122b-a10b", 5308416, "65.23", "3.48", "68.7", "5.089", "2.038", "122.11", "9.01",
     24576, "153.6"},
    {"qwen3.5-397b-a17b", 7077888, "217.43", "5.58", "223.0", "9.254", "4.247", "396.35", "16.33",
     30720, "192.1"},
    {"qwen3.8-flash-next", 2764800, "67.95", "2.82", "173.2", "3.790", "1.327", "176.94", "6.67",
     25344, "115.7"},
    {"qwen3-next-80b-a3b", 1769472, "43.49", "1.36", "44.8", "2.032", "0.849", "79.67", "3.56",
     24576, "77.3"},
    {"qwen3-30b-a3b", 2654208, "16.31", "0.87", "17.2", "1.718", "1.019", "30.53", "3.04", 98304,
     "0.0"},
    {"qwen3-235b-a22b", 10616832, "127.74", "4.52", "132.3", "12.158", "7.984", "235.09", "21.57",
     192512, "0.0"},
    {"qwen3-coder-480b-a35b", 26542080, "263.30", "6.82", "270.1", "19.461", "13.165", "480.15",
     "34.54", 253952, "0.0"},
    {"deepseek-v3", 24772608, "367.82", "9.78", "377.6", "20.756", "11.494", "671.03", "36.63",
     70272, "0.0", kBf16},
    {"ax-k1", 24772608, "285.38", "6.67", "292.0", "17.899", "11.891", "518.98", "31.60", 70272,
     "0.0", kBf16},
    {"sarvam-105b", 14155776, "56.17", "3.50", "59.7", "6.403", "3.511", "106.03", "11.34", 36864,
     "0.0", kBf16},
    {"ax-k2-light", 1769472, "10.65", "0.81", "11.5", "1.282", "0.665", "20.31", "2.24", 27648,
     "0.0", kBf16},
    {"hy4-preview", 21233664, "418.56", "14.74", "433.3", "27.399", "13.080", "769.91", "48.32",
     95232, "0.0", kBf16},
    {"mistral-large-4", 63700992, "578.91", "11.87", "590.8", "29.250", "18.091", "1050.12",
     "51.84", 99072, "0.0", kBf16},
    {"dots3-note-prev", 13271040, "152.88", "4.45", "157.3", "8.793", "4.778", "279.55", "15.48",
     90112, "0.0", kBf16},
    {"cogito-v2-671b", 24772608, "367.82", "9.78", "377.6", "20.754", "11.494", "671.02", "36.62",
     70272, "0.0", kBf16},
    {"kimi-k2", 24772608, "570.76", "6.83", "577.6", "18.063", "11.891", "1026.41", "31.69", 70272,
     "0.0", kBf16},
    {"kimi-k2.5", 24772608, "570.76", "6.83", "577.6", "18.063", "11.891", "1026.41", "31.69",
     70272, "0.0", kBf16},
    {"glm-4.5", 13271040, "188.98", "9.57", "198.6", "18.587", "9.449", "352.80", "32.86", 376832,
     "0.0", kBf16},
    {"glm-4.5-air", 9732096, "56.06", "4.08", "60.1", "7.236", "3.504", "106.85", "12.80", 188416,
     "0.0", kBf16},
    {"glm-4.7-flash", 5308416, "15.63", "1.22", "16.9", "2.023", "0.977", "29.94", "3.58", 54144,
     "0.0", kBf16},
    {"minimax-m2", 7962624, "126.38", "2.28", "128.7", "5.884", "3.949", "228.69", "10.42", 253952,
     "0.0"},
    {"mixtral-8x7b", 99090432, "25.37", "0.90", "26.3", "7.172", "6.342", "46.70", "12.75", 131072,
     "0.0", kBits4},
    {"mixtral-8x22b", 169869312, "76.10", "3.00", "79.1", "21.916", "19.025", "140.63", "38.96",
     229376, "0.0", kBits4},
    {"olmoe-1b-7b", 3538944, "3.62", "0.27", "3.9", "0.663", "0.453", "6.92", "1.18", 131072, "0.0",
     kBits4},
    {"deepseek-v2", 13271040, "125.28", "7.40", "132.7", "11.800", "4.698", "235.74", "20.85",
     69120, "0.0", kBf16},
    {"deepseek-v2-lite", 4866048, "8.10", "0.74", "8.8", "1.384", "0.759", "15.71", "2.45", 31104,
     "0.0", kBf16},
    {"gpt-oss-20b", 14014080, "10.76", "1.01", "11.8", "2.032", "1.345", "20.91", "3.61", 49152,
     "0.0"},
    {"gpt-oss-120b", 14014080, "64.58", "1.20", "65.8", "2.896", "2.018", "116.83", "5.13", 73728,
     "0.0"},
    {"deepseek-v3.2", 24772608, "367.82", "10.28", "378.1", "21.251", "11.494", "671.88", "37.48",
     85888, "0.0", kBf16},
    {"glm-5", 21233664, "407.69", "10.95", "418.6", "23.150", "12.740", "743.91", "40.83", 109824,
     "0.0", kBf16},
    {"glm-5.2", 21233664, "407.69", "10.64", "418.3", "22.844", "12.740", "743.38", "40.30", 95232,
     "0.0", kBf16},
    {"glm-5.3-flash", 14155776, "171.23", "5.11", "176.3", "9.508", "4.756", "313.33", "16.74",
     11968, "147.6"},
    {"deepseek-v4-flash", 14155776, "155.83", "4.314", "160.1", "7.669", "3.652", "284.33", "13.27",
     50912, "6.1", kBf16},
    {"deepseek-v4-pro", 37158912, "870.41", "14.978", "885.4", "28.057", "13.600", "1573.00",
     "48.85", 72312, "9.3", kBf16},
    {"deepseek-v4.1-flash", 19906560, "305.76", "4.775", "421.1", "9.180", "4.778", "748.49",
     "16.13", 44160, "0.0"},
    {"minimax-m3", 31850496, "232.38", "7.41", "239.8", "13.980", "7.262", "426.17", "24.73",
     137472, "0.0", kBf16},
    {"lfm2-8b-a1b", 6193152, "4.36", "0.33", "4.7", "0.877", "0.545", "8.34", "1.56", 12288, "0.1"},
    {"hy3", 10616832, "161.04", "4.95", "166.0", "11.382", "6.710", "295.03", "20.18", 327680,
     "0.0"},
    {"step-3.5-flash", 8847360, "107.02", "3.79", "110.8", "6.470", "2.973", "196.96", "11.46",
     184320, "0.0"},
    {"laguna-xs.2", 1769472, "17.67", "1.16", "18.8", "1.592", "0.552", "33.44", "2.81", 163840,
     "0.0"},
    {"laguna-s-2.1", 5308416, "63.87", "2.28", "66.1", "4.598", "2.495", "117.56", "8.14", 196608,
     "0.0"},
    {"trinity-mini", 3538944, "13.59", "1.11", "14.7", "1.728", "0.849", "26.12", "3.06", 65536,
     "0.0"},
    {"trinity-large", 15925248, "220.15", "4.10", "224.3", "7.196", "3.440", "398.64", "12.76",
     245760, "0.0"},
    {"ernie-4.5-21b-a3b", 6635520, "11.47", "0.81", "12.3", "1.888", "1.075", "21.83", "3.35",
     57344, "0.0"},
    {"ernie-4.5-300b-a47b", 49545216, "161.72", "6.76", "168.5", "26.495", "20.214", "299.48",
     "47.08", 221184, "0.0"},
    {"k-exaone-236b-a23b", 21233664, "127.74", "5.35", "133.1", "12.801", "7.984", "236.57",
     "22.72", 196608, "0.0"},
    {"solar-open-100b", 8847360, "54.36", "3.40", "57.8", "6.340", "3.397", "102.65", "11.25",
     196608, "0.0"},
    {"dots.llm1", 9732096, "75.99", "4.34", "80.3", "7.550", "3.562", "142.77", "13.39", 1015808,
     "0.0"},
    {"kimi-linear-48b-a3b", 3981312, "26.50", "1.14", "27.6", "1.759", "0.828", "49.12", "3.11",
     8064, "43.4"},
    {"kimi-k3", 18579456, "1531.54", "32.23", "1563.8", "58.924", "27.349", "2779.48", "104.19",
     27648, "449.4"},
    {"ling-3.0-tiny", 1327104, "3.91", "0.54", "4.4", "0.646", "0.244", "7.89", "1.14", 6912,
     "19.5"},
    {"ling-3.0-flash", 3317760, "67.95", "2.06", "70.0", "2.899", "1.062", "124.41", "5.10", 8064,
     "76.0"},
    {"nemotron-3-nano-30b-a3b", 5612544, "16.52", "1.25", "17.8", "1.823", "0.775", "31.58", "3.23",
     6144, "49.1"},
    {"nemotron-3-super-120b-a12b", 3096576, "63.42", "4.50", "67.9", "6.925", "2.725", "120.67",
     "12.23", 8192, "170.2"},
    {"granite-4.0-h-small", 5308416, "15.29", "2.84", "18.1", "4.959", "2.123", "32.21", "8.80",
     16384, "152.8"},
    {"granite-4.0-h-tiny", 1327104, "3.40", "0.51", "3.9", "0.829", "0.319", "6.94", "1.47", 8192,
     "57.3"},
    {"llama-4-scout", 70778880, "54.36", "6.26", "60.6", "9.080", "3.397", "107.77", "16.14",
     196608, "0.0"},
    {"llama-4-maverick", 70778880, "217.43", "7.98", "225.4", "9.092", "1.699", "400.71", "16.15",
     196608, "0.0"},
    {"mellum2-12b-a2.5b", 3483648, "6.24", "0.59", "6.8", "1.247", "0.780", "12.15", "2.21", 57344,
     "0.0"},
    {"sarvam-30b", 7077888, "16.31", "1.78", "18.1", "1.944", "0.764", "32.15", "3.45", 19456,
     "0.0"},
    {"flint-40b-a2.8b", 1769472, "21.29", "1.10", "22.4", "1.428", "0.499", "39.79", "2.52", 100352,
     "0.0"},
    {"kolibri-1-78b-a3.8b", 2211840, "42.47", "1.49", "44.0", "1.970", "0.664", "78.10", "3.46",
     102400, "0.0"},
    {"beam-1.0-501b-a23b", 22118400, "277.45", "4.54", "282.0", "12.776", "8.670", "501.27",
     "22.65", 212992, "0.0"},
    {"muse-spark-816b-a42b", 28311552, "449.36", "11.95", "461.3", "25.065", "14.043", "819.99",
     "44.44", 253952, "0.0"},
    {"lara-4-mini", 884736, "3.85", "0.25", "4.1", "0.369", "0.120", "7.28", "0.65", 40960, "15.0"},
    {"zaya1-8b", 7077888, "4.53", "0.48", "5.0", "0.760", "0.283", "8.84", "1.29", 40960, "0.2"},
    {"inkling", 31850496, "521.84", "10.92", "532.8", "22.458", "12.231", "947.03", "39.82", 495616,
     "6.4"},
    {"inkling-small", 14155776, "144.96", "3.38", "148.3", "6.310", "3.397", "263.66", "11.17",
     172032, "2.6"},
    {"inkling-2-small", 17915904, "330.23", "3.80", "334.0", "10.154", "6.880", "593.72", "17.96",
     196608, "3.2"},
    {"inkling-2-mini", 4478976, "13.76", "0.91", "14.7", "1.511", "0.860", "26.07", "2.67", 196608,
     "1.9"},
    {"qwen3-vl-30b-a3b", 2654208, "16.31", "0.87", "17.2", "1.718", "1.019", "30.53", "3.04", 98304,
     "0.0"},
};

class PublicModelSizes : public ::testing::TestWithParam<PublicSizes> {
 protected:
  static std::unique_ptr<LoadedModel> assume() {
    const auto found = find_public_model(GetParam().name);
    EXPECT_TRUE(found.ok()) << found.error().to_string();
    const std::unique_ptr<Device> device = make_trace_device();
    auto model = assume_model(found->config_json, *device, {});
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().to_string());
    return model.ok() ? std::move(model).value() : nullptr;
  }
};

TEST_P(PublicModelSizes, AgreeToThePrintedDigits) {
  const PublicSizes& expected = GetParam();
  const auto model = assume();
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(model->assumed_weights.starts_with("assumed affine-4/64")) << model->assumed_weights;
  const ModelSizes sizes = measure_model(*model);
  double router_parameters = 0.0;
  for (const LayerSpec& layer : model->spec().layers) {
    router_parameters += static_cast<double>(layer.moe.num_experts * model->spec().hidden_size);
  }
  const double extra = router_parameters * (expected.router_bytes - kBits8);
  const auto with_routers = [&](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) + extra);
  };
  EXPECT_EQ(giga(sizes.parameters, 2), expected.parameters);
  EXPECT_EQ(giga(sizes.active_parameters, 2), expected.active_parameters);
  EXPECT_EQ(sizes.bytes_per_expert, expected.bytes_per_expert);
  EXPECT_EQ(giga(sizes.experts_bytes, 2), expected.experts);
  // The figures leave out biases and norms: up to 2.7 MB, of GLM-4.5's attention.
  EXPECT_NEAR(static_cast<double>(with_routers(sizes.dense_bytes)) / 1e9, std::stod(expected.dense),
              0.005 + 0.0028);
  EXPECT_EQ(giga(with_routers(sizes.total_bytes()), 1), expected.total);
  EXPECT_NEAR(static_cast<double>(with_routers(sizes.active_bytes_per_token)) / 1e9,
              std::stod(expected.active), 0.0005 + 0.0028);
  EXPECT_EQ(giga(sizes.active_experts_bytes_per_token, 3), expected.active_experts);
}

// This program keeps keys, values and convolution states as f32.
TEST_P(PublicModelSizes, StateOfASequenceAgrees) {
  const PublicSizes& expected = GetParam();
  const auto model = assume();
  ASSERT_NE(model, nullptr);
  const ModelSizes sizes = measure_model(*model);
  EXPECT_EQ(sizes.kv_bytes_per_token, 2 * expected.kv_bytes_bf16);
  int64_t convolution_elements = 0;
  for (const LayerStateSpec& layer : state_specs(model->spec())) {
    for (const StateTensor& tensor : layer.tensors) {
      const bool is_convolution = !tensor.is_per_token() && tensor.shape.rank() == 2;
      if (is_convolution) convolution_elements += tensor.shape.num_elements();
    }
  }
  const auto stored = sizes.recurrent_bytes - 2 * static_cast<uint64_t>(convolution_elements);
  EXPECT_EQ(formatted("{:.1f}", static_cast<double>(stored) / 1e6), expected.recurrent_mega);
}

// The configs are in the spelling of their publishers: every key must mean something here.
TEST_P(PublicModelSizes, EveryKeyOfTheConfigIsKnown) {
  const auto model = assume();
  ASSERT_NE(model, nullptr);
  for (const std::string& key : model->spec().unread_keys) ADD_FAILURE() << key;
}

std::string test_name(const ::testing::TestParamInfo<PublicSizes>& test) {
  std::string name = test.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

// DenseFit counts those without experts.
TEST(PublicModels, AreAllCounted) {
  size_t with_experts = 0;
  for (const PublicModel& model : public_models()) {
    auto config = Config::parse(model.config_json);
    ASSERT_TRUE(config.ok());
    const auto family = find_family(config->model_type());
    ASSERT_TRUE(family.ok());
    const auto spec = (*family)->read_spec(*config);
    ASSERT_TRUE(spec.ok()) << model.name;
    EXPECT_TRUE(spec->unread_keys.empty()) << model.name << ": " << spec->unread_keys.front();
    with_experts += last_moe(*spec).num_experts > 0 ? 1 : 0;
  }
  EXPECT_EQ(with_experts, std::size(kModels));
  expect_error(find_public_model("gpt-5"), ErrorCode::kNotFound, {"'gpt-5'", "synth --list"});
}

INSTANTIATE_TEST_SUITE_P(All, PublicModelSizes, ::testing::ValuesIn(kModels), test_name);

// A claim made without a checkpoint counts what the same claim counts with one.
TEST(AssumedWeights, CountTheParametersThatTheCheckpointHas) {
  const std::string models = testing::tests_directory() + "/golden/models";
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!entry.is_directory()) continue;
    const TempFolder folder;
    testing::write_bytes(folder / "config.json",
                         testing::read_bytes(entry.path().string() + "/config.json"));
    const auto stored = describe(entry.path().string());
    const auto assumed = describe(folder.path());
    ASSERT_TRUE(stored != nullptr && assumed != nullptr) << entry.path();
    EXPECT_TRUE(stored->assumed_weights.empty());
    EXPECT_FALSE(assumed->assumed_weights.empty());
    const ModelSizes a = measure_model(*stored);
    const ModelSizes b = measure_model(*assumed);
    EXPECT_EQ(a.parameters, b.parameters) << entry.path();
    EXPECT_EQ(a.active_parameters, b.active_parameters) << entry.path();
    EXPECT_EQ(a.experts, b.experts) << entry.path();
    EXPECT_EQ(a.kv_bytes_per_token, b.kv_bytes_per_token) << entry.path();
    ++compared;
  }
  EXPECT_GE(compared, 14);
}

class ConfigOnly : public ::testing::Test {
 protected:
  void write(const Json& config) { testing::write_bytes(folder_ / "config.json", config.dump()); }
  Result<std::unique_ptr<LoadedModel>> describe_with(const AssumedFormat& assumed) {
    return describe_model(folder_.path(), *device_, assumed);
  }

  const TempFolder folder_;
  const std::unique_ptr<Device> device_ = make_trace_device();
};

TEST_F(ConfigOnly, RunningStillReportsTheMissingWeights) {
  write(testing::make_tiny_model({}).config);
  for (const WeightLoading loading : {WeightLoading::kRead, WeightLoading::kCheckOnly}) {
    expect_error(load_model(folder_.path(), *device_, loading), ErrorCode::kNotFound,
                 {folder_.path(), "safetensors"});
  }
  EXPECT_TRUE(describe_with({}).ok());
}

TEST_F(ConfigOnly, AnIndexWithoutItsShardsIsNotAnEmptyFolder) {
  write(testing::make_tiny_model({}).config);
  testing::write_bytes(folder_ / "model.safetensors.index.json",
                       R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  expect_error(describe_with({}), ErrorCode::kNotFound, {"model-00001-of-00002.safetensors"});
}

TEST_F(ConfigOnly, BitsAreThoseOfTheConfigElseThoseAskedFor) {
  Json config = testing::make_tiny_model({}).config;
  config["hidden_size"] = 64;
  config["moe_intermediate_size"] = 64;
  write(config);
  const auto bytes_of = [&](const AssumedFormat& assumed) {
    const auto model = describe_with(assumed);
    EXPECT_TRUE(model.ok());
    return measure_model(**model).bytes_per_expert;
  };
  constexpr uint64_t kParameters = 3 * 64 * 64;
  EXPECT_EQ(bytes_of({}), kParameters * 9 / 16);
  EXPECT_EQ(bytes_of({.bits = 2}), kParameters * 5 / 16);
  config["quantization"] = {{"bits", 8}, {"group_size", 32}};
  write(config);
  EXPECT_EQ(bytes_of({.bits = 2}), kParameters * 9 / 8);
  EXPECT_EQ((*describe_with({}))->assumed_weights,
            "assumed affine-8/32 as config.json says (no *.safetensors in the folder)");
  config["quantization"]["model.layers.0.mlp.switch_mlp.down_proj"] = {{"bits", 4},
                                                                       {"group_size", 64}};
  write(config);
  EXPECT_EQ((*describe_with({}))->experts.layers[0].bytes_per_expert(),
            kParameters * 2 / 3 * 9 / 8 + kParameters / 3 * 9 / 16);
}

TEST_F(ConfigOnly, ModesOfSmallFloatsAreAssumedAsConfigSays) {
  Json config = testing::make_tiny_model({}).config;
  config["hidden_size"] = 64;
  config["moe_intermediate_size"] = 64;
  config["quantization"] = {{"mode", "mxfp4"}};
  write(config);
  const auto model = describe_with({});
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_NE((*model)->assumed_weights.find("mxfp4 as config.json says"), std::string::npos);
  EXPECT_EQ((*model)->experts.layers[0].bytes_per_expert(), uint64_t{3 * 64 * 64} * 17 / 32);
  config.erase("quantization");
  config["quantization_config"] = {{"quant_method", "fp8"}};
  write(config);
  const auto other = describe_with({});
  ASSERT_TRUE(other.ok()) << other.error().to_string();
  EXPECT_NE((*other)->assumed_weights.find("quant_method is fp8"), std::string::npos);
}

TEST_F(ConfigOnly, StorageThatIsNotSupportedIsSaidAndAssumedAway) {
  Json config = testing::make_tiny_model({}).config;
  config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  write(config);
  const auto model = describe_with({});
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_NE((*model)->assumed_weights.find("bitsandbytes"), std::string::npos);
  expect_error(load_model(folder_.path(), *device_, WeightLoading::kRead), ErrorCode::kUnsupported,
               {"quantization_config", "bitsandbytes"});
}

}  // namespace
}  // namespace moeflux
