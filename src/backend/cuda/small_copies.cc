#include "backend/cuda/small_copies.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_status.h"
#include "base/check.h"
#include "base/cpu_pause.h"

namespace moeflux::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than decoded tokens take. Then the runtime waits, which also learns of a device's errors.
constexpr std::chrono::milliseconds kSpinMax{20};
constexpr int kPausesPerLook = 4;
constexpr int kLooksPerClock = 64;

uint64_t load(uint64_t& word) {
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire);
}

template <typename Params>
Status launch(cudaStream_t stream, const void* kernel, Params& params, std::string_view call) {
  void* arguments[] = {&params};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kSmallCopyThreads);
  config.stream = stream;
  return cuda_status(cudaLaunchKernelExC(&config, kernel, arguments), call);
}

}  // namespace

Status small_write(cudaStream_t stream, std::byte* to, std::span<const std::byte> from) {
  MF_CHECK(from.size() <= kSmallWriteBytes);
  if (from.empty()) return {};
  SmallWriteParams params;
  params.to = to;
  params.bytes = static_cast<uint32_t>(from.size());
  std::memcpy(params.words, from.data(), from.size());
  return launch(stream, small_write_kernel(), params, "cudaLaunchKernelExC of small_write");
}

Result<std::unique_ptr<SmallReader>> SmallReader::create(int device) {
  constexpr size_t kWordsBytes = kSmallReadBytes / sizeof(uint32_t) * sizeof(uint64_t);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> words,
                      CudaBuffer::allocate(device, kWordsBytes, MemoryKind::kHostVisible));
  return std::unique_ptr<SmallReader>(new SmallReader(std::move(words)));
}

Status SmallReader::read(cudaStream_t stream, std::span<std::byte> to, const std::byte* from) {
  MF_CHECK(to.size() <= kSmallReadBytes);
  const std::span<uint64_t> words(this->words(), (to.size() + 3) / 4);
  for (uint64_t& word : words) std::atomic_ref<uint64_t>(word).store(0);
  SmallReadParams params{from, reinterpret_cast<uint64_t*>(cuda_address(*words_)),
                         static_cast<uint32_t>(to.size())};
  MF_RETURN_IF_ERROR(
      launch(stream, small_read_kernel(), params, "cudaLaunchKernelExC of small_read"));
  MF_RETURN_IF_ERROR(await(stream, words));
  for (size_t i = 0; i < words.size(); ++i) {
    const auto word = static_cast<uint32_t>(load(words[i]));
    const std::span<std::byte> bytes = to.subspan(4 * i);
    std::memcpy(bytes.data(), &word, std::min(bytes.size(), sizeof(word)));
  }
  return {};
}

Status SmallReader::await(cudaStream_t stream, std::span<uint64_t> words) {
  const auto is_there = [](uint64_t& word) { return (load(word) & kArrived) != 0; };
  const Clock::time_point end = Clock::now() + kSpinMax;
  for (int looks = 1; !words.empty(); ++looks) {
    if (is_there(words.front())) {
      words = words.subspan(1);
      continue;
    }
    if (looks % kLooksPerClock == 0 && Clock::now() >= end) break;
    for (int i = 0; i < kPausesPerLook; ++i) cpu_pause();
  }
  if (words.empty()) return {};
  MF_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
  MF_CHECK(std::all_of(words.begin(), words.end(), is_there));
  return {};
}

}  // namespace moeflux::gpu
