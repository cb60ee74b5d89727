#include "tests/support/run_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_device.h"
#include "backend/cuda/cuda_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/metal/metal_device.h"
#include "backend/reference/reference_device.h"
#include "tests/support/fake_metal_gpu.h"
#include "tests/support/small_gpu.h"
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

Result<std::unique_ptr<Device>> open_cuda(const std::string& name) {
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
    auto gpu = options.device == "metal" ? make_metal_device() : open_cuda(options.device);
    EXPECT_TRUE(gpu.ok()) << (gpu.ok() ? "" : gpu.error().to_string());
    return gpu.ok() ? std::move(gpu).value() : nullptr;
  }
  auto device = make_cpu_device({.threads = options.threads});
  EXPECT_TRUE(device.ok());
  return device.ok() ? std::move(device).value() : nullptr;
}

std::vector<const char*> and_gpus(std::vector<const char*> devices) {
  for (const char* name : {"cuda:0", "cuda:0 as a small GPU"}) {
    if (open_cuda(name).ok()) devices.push_back(name);
  }
  if (make_metal_device().ok()) devices.push_back("metal");
  return devices;
}

RunOutput run_model(const std::string& directory, std::span<const TokenId> tokens,
                    const RunOptions& options) {
  RunOutput output;
  const std::unique_ptr<Device> device = make_test_device(options);
  if (device == nullptr) return output;
  auto engine = Engine::open(directory, *device,
                             {.context_length = static_cast<int64_t>(tokens.size()),
                              .expert_cache_bytes = options.expert_cache_bytes,
                              .reader_threads = 2});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  if (!engine.ok()) return output;
  output.vocab_size = (*engine)->spec().vocab_size;
  output.expert_capacity_bytes = (*engine)->expert_capacity_bytes();
  auto sequence = (*engine)->create_sequence();
  EXPECT_TRUE(sequence.ok());
  if (!sequence.ok()) return output;
  Recorder recorder(output.hidden_states);
  size_t eval_count = 0;
  while (!tokens.empty()) {
    size_t n = tokens.size();
    if (!options.chunks.empty()) {
      const size_t chunk = std::min(eval_count, options.chunks.size() - 1);
      n = std::min(n, static_cast<size_t>(options.chunks[chunk]));
    }
    const Status done = (*engine)->eval(
        **sequence, tokens.first(n),
        {.logits = LogitsMode::kAll, .observer = options.hidden_states ? &recorder : nullptr},
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
  return output;
}

}  // namespace moeflux::testing
