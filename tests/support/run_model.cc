#include "tests/support/run_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "backend/cpu/cpu_device.h"
#include "backend/cuda/cuda_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/metal/metal_device.h"
#include "backend/reference/reference_device.h"
#include "tests/support/fake_metal_gpu.h"
#include "tests/support/small_gpu.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiling_device.h"

namespace moeflux::testing {
namespace {

class Recorder : public HiddenObserver {
 public:
  explicit Recorder(std::map<int64_t, std::vector<float>>& layers) : layers_(layers) {}
  void hidden_state(Encoder& encoder, int64_t layer, Tensor hidden) override {
    std::vector<float> values(static_cast<size_t>(hidden.num_elements()));
    ASSERT_TRUE(encoder.read(std::as_writable_bytes(std::span(values)), hidden).ok());
    std::vector<float>& all = layers_[layer];
    all.insert(all.end(), values.begin(), values.end());
  }

 private:
  std::map<int64_t, std::vector<float>>& layers_;
};

RouteTraceHeader trace_header(const Engine& engine) {
  RouteTraceHeader header{.num_layers = static_cast<int32_t>(engine.spec().layers.size())};
  for (const LayerSpec& layer : engine.spec().layers) {
    header.num_experts = std::max(header.num_experts, static_cast<int32_t>(layer.moe.num_experts));
    header.top_k = std::max(header.top_k, static_cast<int32_t>(layer.moe.experts_per_token));
  }
  return header;
}

Result<std::unique_ptr<Device>> open_gpu(const std::string& name) {
  if (name == "metal") return make_metal_device();
  if (name == "cuda:0") return make_cuda_device({});
  return make_cuda_device(
      {.shared_kib_max = kSmallGpuSharedKib, .multiprocessors_max = kSmallGpuCores});
}

}  // namespace

std::span<const float> RunOutput::row(int64_t i) const {
  const auto width = static_cast<size_t>(vocab_size);
  return std::span(logits).subspan(static_cast<size_t>(i) * width, width);
}

std::unique_ptr<Device> make_test_device(const RunOptions& options) {
  if (options.device == "reference" && options.record_keys != nullptr) {
    return make_recording_reference(*options.record_keys);
  }
  if (options.device == "reference") return make_reference_device();
  if (options.device == "tiling reference") return make_tiling_device();
  if (options.device == "emulator") return make_emulator_device({.seed = 1});
  if (options.device == "emulator with matrix units") {
    return make_emulator_device({.seed = 1, .matrix_units = true});
  }
  if (options.device == "emulator of a small GPU") {
    return make_emulator_device({.seed = 1,
                                 .matrix_units = true,
                                 .shared_bytes = kSmallGpuSharedKib * 1024,
                                 .cores = kSmallGpuCores});
  }
  if (options.device == "emulator behind metal") {
    return make_metal_device(make_fake_metal_gpu({.seed = 1}));
  }
  if (options.device.starts_with("cuda:0") || options.device == "metal") {
    auto gpu = open_gpu(options.device);
    EXPECT_TRUE(gpu.ok()) << (gpu.ok() ? "" : gpu.error().to_string());
    return gpu.ok() ? std::move(gpu).value() : nullptr;
  }
  constexpr std::string_view kKernelsOf = "cpu ";
  const bool is_plain = !options.device.starts_with(kKernelsOf);
  const CpuOptions cpu{.threads = options.threads,
                       .isa = is_plain ? "" : options.device.substr(kKernelsOf.size()),
                       .precision = options.precision};
  if (options.forced_keys != nullptr) return make_overruled_cpu(cpu, *options.forced_keys);
  auto device = make_cpu_device(cpu);
  EXPECT_TRUE(device.ok());
  return device.ok() ? std::move(device).value() : nullptr;
}

std::vector<std::string> and_built_gpus(std::vector<std::string> devices) {
  std::stringstream built(MOEFLUX_BUILT_GPUS);
  for (std::string name; std::getline(built, name, ',');) devices.push_back(name);
  return devices;
}

std::string missing_gpu(const std::string& device) {
  const std::vector<std::string> gpus = and_built_gpus({});
  if (std::ranges::find(gpus, device) == gpus.end()) return "";
  const auto opened = open_gpu(device);
  if (opened.ok()) return "";
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound) << opened.error().to_string();
  return opened.error().to_string();
}

std::string test_name_of(std::string device) {
  std::ranges::replace_if(
      device, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return device;
}

RunOutput run_model(const std::string& directory, std::span<const TokenId> tokens,
                    const RunOptions& options) {
  RunOutput output;
  const std::unique_ptr<Device> device = make_test_device(options);
  if (device == nullptr) return output;
  // Few tokens have the positions that many have, whatever the model makes of short contexts.
  const int64_t context = options.context_length > 0
                              ? options.context_length
                              : std::max<int64_t>(64, static_cast<int64_t>(tokens.size()));
  auto engine = Engine::open(directory, *device,
                             {.context_length = context,
                              .expert_cache_bytes = options.expert_cache_bytes,
                              .reader_threads = 2,
                              .prefill_chunk = options.prefill_chunk,
                              .cache_type_k = options.cache_type,
                              .cache_type_v = options.cache_type,
                              .forced_routes = options.forced_routes,
                              .forced_weights = options.forced_routes != nullptr});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  if (!engine.ok()) return output;
  output.vocab_size = (*engine)->spec().vocab_size;
  output.expert_capacity_bytes = (*engine)->experts().capacity_bytes();
  auto sequence = (*engine)->create_sequence();
  EXPECT_TRUE(sequence.ok());
  if (!sequence.ok()) return output;
  Recorder recorder(output.hidden_states);
  HiddenObserver* observer = options.hidden_states ? &recorder : options.observer;
  const TempFolder folder;
  std::unique_ptr<RouteTraceWriter> routes;
  if (options.record_routes) {
    auto writer = RouteTraceWriter::create(folder / "routes", trace_header(**engine));
    EXPECT_TRUE(writer.ok()) << (writer.ok() ? "" : writer.error().to_string());
    if (!writer.ok()) return output;
    routes = std::move(writer).value();
    (*engine)->experts().routes().observe(routes.get());
  }
  size_t eval_count = 0;
  while (!tokens.empty()) {
    size_t n = tokens.size();
    if (!options.chunks.empty()) {
      const size_t chunk = std::min(eval_count, options.chunks.size() - 1);
      n = std::min(n, static_cast<size_t>(options.chunks[chunk]));
    }
    const Status done =
        (*engine)->eval(**sequence, tokens.first(n),
                        {.logits = LogitsMode::kAll,
                         .observer = observer,
                         .phase = eval_count == 0 ? StepPhase::kPrompt : StepPhase::kDecode},
                        [&](int64_t, std::span<const float> rows) {
                          output.logits.insert(output.logits.end(), rows.begin(), rows.end());
                          return Status();
                        });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    if (!done.ok()) return {};
    tokens = tokens.subspan(n);
    ++eval_count;
  }
  output.experts = (*engine)->expert_stats();
  if (routes != nullptr) {
    (*engine)->experts().routes().observe(nullptr);
    EXPECT_TRUE(routes->commit().ok());
    auto trace = RouteTrace::read(folder / "routes");
    EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.error().to_string());
    if (trace.ok()) output.routes = std::move(trace).value();
  }
  return output;
}

}  // namespace moeflux::testing
