// Measures the tiers of one machine: the bus, kernels that read host memory, a layer's round trip
// through the host, memory read by CPU threads while copies run, pinning. Prints one JSON object a
// line, so that a run that is cut short keeps what it has.
//   tiers_bench [THREADS]
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// The least time of five runs, in seconds.
double least_time(const std::function<void()>& run) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto began = Clock::now();
    run();
    least = std::min(least, seconds_since(began));
  }
  return least;
}

std::byte* pinned(size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
  std::memset(memory, 0x3c, bytes);
  return static_cast<std::byte*>(memory);
}

std::byte* on_device(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  check(cudaMemset(memory, 0x3c, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return static_cast<std::byte*>(memory);
}

// --- the bus

/// Copies of `bytes` each out of a gigabyte, queued one after the other.
void copies(std::byte* host, std::byte* device, size_t bytes, size_t total) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const size_t count = std::max<size_t>(4, std::min<size_t>(total / bytes, 512));
  for (const bool to_device : {true, false}) {
    double call = 0;
    const double time = least_time([&] {
      const auto began = Clock::now();
      for (size_t i = 0; i < count; ++i) {
        const size_t at = i * bytes % (total - bytes + 1) / 256 * 256;
        check(to_device
                  ? cudaMemcpyAsync(device + at, host + at, bytes, cudaMemcpyHostToDevice, stream)
                  : cudaMemcpyAsync(host + at, device + at, bytes, cudaMemcpyDeviceToHost, stream),
              "cudaMemcpyAsync");
      }
      call = seconds_since(began) / static_cast<double>(count);
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    });
    std::printf(
        "{\"test\": \"copy\", \"to_device\": %s, \"bytes\": %zu, \"us\": %.2f, \"gb_s\": %.1f, "
        "\"host_us_a_call\": %.2f}\n",
        to_device ? "true" : "false", bytes, 1e6 * time / static_cast<double>(count),
        1e-9 * static_cast<double>(bytes * count) / time, 1e6 * call);
  }
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

// --- kernels that read host memory

/// Sums of rows as a product reads them: a warp a row of `row` bytes of codes, 16 bytes a lane, and
/// as many bytes of scales and biases as a 16th of it, from where they lie.
__global__ void read_rows(const uint4* codes, const uint32_t* scales, uint32_t rows,
                          uint32_t row_packs, uint32_t* out) {
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (warp >= rows) return;
  uint32_t sum = 0;
  for (uint32_t i = lane; i < row_packs; i += 32) {
    const uint4 pack = codes[size_t{warp} * row_packs + i];
    sum += pack.x ^ pack.y ^ pack.z ^ pack.w;
  }
  for (uint32_t i = lane; i < row_packs / 4; i += 32)
    sum += scales[size_t{warp} * (row_packs / 4) + i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) out[warp] = sum;
}

/// The same bytes in the order in which they lie.
__global__ void read_packs(const uint4* packs, uint32_t count, uint32_t* out) {
  uint32_t sum = 0;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const uint4 pack = packs[i];
    sum += pack.x ^ pack.y ^ pack.z ^ pack.w;
  }
  if (sum == 0x12345678) out[0] = sum;
}

/// `experts` experts of 1.77 MB in one launch, as a layer of decode reads them.
void mapped_reads(const std::byte* memory, const char* where, uint32_t experts, uint32_t* out) {
  constexpr uint32_t kRowPacks = 64;  // 2048 codes of 4 bits
  const uint32_t rows = experts * 1536;
  const size_t code_bytes = size_t{rows} * kRowPacks * 16, all = code_bytes + code_bytes / 16 * 1;
  const int launches = 64;
  size_t at = 0;
  const size_t total = size_t{1} << 30;
  const auto next = [&] {
    at = at + 2 * all > total ? 0 : at + (all + 4095) / 4096 * 4096;
    return memory + at;
  };
  for (const bool by_row : {true, false}) {
    const double time = least_time([&] {
      for (int i = 0; i < launches; ++i) {
        const std::byte* from = next();
        if (by_row) {
          read_rows<<<rows / 8, 256>>>(reinterpret_cast<const uint4*>(from),
                                       reinterpret_cast<const uint32_t*>(from + code_bytes), rows,
                                       kRowPacks, out);
        } else {
          const auto count = static_cast<uint32_t>(all / 16);
          read_packs<<<std::min(count / 256, 1056u), 256>>>(reinterpret_cast<const uint4*>(from),
                                                            count, out);
        }
      }
      check(cudaDeviceSynchronize(), "kernels over mapped memory");
    });
    std::printf(
        "{\"test\": \"kernel_read\", \"memory\": \"%s\", \"order\": \"%s\", \"experts\": %u, "
        "\"bytes\": %zu, \"us\": %.1f, \"gb_s\": %.1f}\n",
        where, by_row ? "rows" : "contiguous", experts, all, 1e6 * time / launches,
        1e-9 * static_cast<double>(all) * launches / time);
  }
}

// --- a layer's way through the host

__global__ void say_ids(volatile uint32_t* word, volatile uint32_t* ids, uint32_t value) {
  if (threadIdx.x < 8) ids[threadIdx.x] = value + threadIdx.x;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *word = value;
}

__global__ void await_word(volatile uint32_t* word, uint32_t value) {
  if (threadIdx.x == 0) {
    while (*word < value) {
    }
  }
  __threadfence_system();
}

__global__ void work(uint32_t* out) { out[threadIdx.x] += 1; }

void round_trips(uint32_t* out) {
  auto* words = reinterpret_cast<volatile uint32_t*>(pinned(4096));
  auto* said = words;
  auto* answer = words + 64;
  auto* ids = words + 128;
  const uint32_t layers = 1000;
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const auto spin = [&](uint32_t value) {
    while (*said < value) {
    }
  };
  // The host launches what follows once it has seen the ids.
  double time = least_time([&] {
    *said = 0;
    for (uint32_t i = 1; i <= layers; ++i) {
      say_ids<<<1, 32, 0, stream>>>(said, ids, i);
      spin(i);
      work<<<1, 32, 0, stream>>>(out);
      work<<<1, 32, 0, stream>>>(out);
    }
    check(cudaStreamSynchronize(stream), "launches");
  });
  std::printf("{\"test\": \"layer_through_host\", \"how\": \"launch after ids\", \"us\": %.2f}\n",
              1e6 * time / layers);
  // The work below is queued and waits for the host's word.
  time = least_time([&] {
    *said = 0;
    *answer = 0;
    for (uint32_t i = 1; i <= layers; ++i) {
      say_ids<<<1, 32, 0, stream>>>(said, ids, i);
      await_word<<<1, 32, 0, stream>>>(answer, i);
      work<<<1, 32, 0, stream>>>(out);
      work<<<1, 32, 0, stream>>>(out);
      spin(i);
      *answer = i;
    }
    check(cudaStreamSynchronize(stream), "words");
  });
  std::printf(
      "{\"test\": \"layer_through_host\", \"how\": \"queued, waits for a word\", \"us\": %.2f}\n",
      1e6 * time / layers);
  // The same without a host in it.
  time = least_time([&] {
    for (uint32_t i = 1; i <= layers; ++i) {
      say_ids<<<1, 32, 0, stream>>>(said, ids, i);
      work<<<1, 32, 0, stream>>>(out);
      work<<<1, 32, 0, stream>>>(out);
    }
    check(cudaStreamSynchronize(stream), "no host");
  });
  std::printf("{\"test\": \"layer_through_host\", \"how\": \"no host\", \"us\": %.2f}\n",
              1e6 * time / layers);
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

/// A copy on a second stream, its event, and work that waits for it.
void copies_awaited(uint32_t* out) {
  const uint32_t times = 1000;
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  cudaStream_t copying;
  check(cudaStreamCreateWithFlags(&copying, cudaStreamNonBlocking), "cudaStreamCreate");
  cudaEvent_t event;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  std::byte* host = pinned(size_t{2} << 20);
  std::byte* device = on_device(size_t{2} << 20);
  for (const size_t bytes : {size_t{64}, size_t{8192}, size_t{1769472}}) {
    const double time = least_time([&] {
      for (uint32_t i = 0; i < times; ++i) {
        check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, copying), "copy");
        check(cudaEventRecord(event, copying), "record");
        check(cudaStreamWaitEvent(stream, event, 0), "wait");
        work<<<1, 32, 0, stream>>>(out);
      }
      check(cudaStreamSynchronize(stream), "copies with events");
    });
    std::printf("{\"test\": \"copy_then_event\", \"bytes\": %zu, \"us\": %.2f}\n", bytes,
                1e6 * time / times);
  }
}

// --- memory as CPU threads read it

uint64_t sum_of(const uint64_t* from, size_t count) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (size_t i = 0; i + 4 <= count; i += 4) {
    a += from[i];
    b += from[i + 1];
    c += from[i + 2];
    d += from[i + 3];
  }
  return a + b + c + d;
}

/// GB/s that `threads` threads read of `bytes`, over about half a second.
double read_rate(const std::byte* memory, size_t bytes, int threads) {
  std::atomic<uint64_t> sum{0};
  std::atomic<uint64_t> read{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> pool;
  const size_t part = bytes / static_cast<size_t>(threads) / 64 * 64;
  const auto began = Clock::now();
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const auto* from = reinterpret_cast<const uint64_t*>(memory + static_cast<size_t>(t) * part);
      const size_t step = (size_t{1} << 20) / 8;
      for (size_t at = 0; !over; at = at + 2 * step > part / 8 ? 0 : at + step) {
        sum += sum_of(from + at, step);
        read += step * 8;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  over = true;
  const double time = seconds_since(began);
  for (std::thread& thread : pool) thread.join();
  if (sum == 1) std::printf(" ");
  return 1e-9 * static_cast<double>(read) / time;
}

void cpu_reads(std::byte* host, std::byte* device, size_t bytes, int threads_max) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (const bool with_copies : {false, true}) {
    for (int threads = 1; threads <= threads_max; threads *= 2) {
      std::atomic<bool> over{false};
      uint64_t copied = 0;
      const auto began = Clock::now();
      double copy_time = 1;
      std::thread copier([&] {
        const size_t piece = size_t{64} << 20;
        for (size_t at = 0; with_copies && !over; at = (at + piece) % bytes) {
          check(cudaMemcpyAsync(device + at, host + at, piece, cudaMemcpyHostToDevice, stream),
                "copy");
          check(cudaStreamSynchronize(stream), "copy");
          copied += piece;
        }
        copy_time = seconds_since(began);
      });
      const double rate = read_rate(host, bytes, threads);
      over = true;
      copier.join();
      std::printf(
          "{\"test\": \"cpu_read\", \"threads\": %d, \"gb_s\": %.1f, \"copies_gb_s\": %.1f}\n",
          threads, rate, 1e-9 * static_cast<double>(copied) / copy_time);
    }
  }
}

// --- pinning

void touch(std::byte* memory, size_t bytes, int threads) {
  std::vector<std::thread> pool;
  const size_t part = bytes / static_cast<size_t>(threads);
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([=] {
      for (size_t at = 0; at < part; at += 4096)
        memory[static_cast<size_t>(t) * part + at] = std::byte{1};
    });
  }
  for (std::thread& thread : pool) thread.join();
}

void pinning(int threads) {
  const size_t bytes = size_t{8} << 30;
  for (const char* how :
       {"cudaHostAlloc", "register, untouched", "register, touched by all threads",
        "register, huge pages touched by all threads"}) {
    const auto began = Clock::now();
    double touched = 0;
    void* memory = nullptr;
    if (std::strcmp(how, "cudaHostAlloc") == 0) {
      check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
            "cudaHostAlloc");
    } else {
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return;
      (void)madvise(memory, bytes,
                    std::strstr(how, "huge") != nullptr ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
      if (std::strstr(how, ", untouched") == nullptr)
        touch(static_cast<std::byte*>(memory), bytes, threads);
      touched = seconds_since(began);
      check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
            "cudaHostRegister");
    }
    const double time = seconds_since(began);
    std::printf("{\"test\": \"pin_8_gib\", \"how\": \"%s\", \"touch_s\": %.2f, \"s\": %.2f}\n", how,
                touched, time);
    std::fflush(stdout);
    if (std::strcmp(how, "cudaHostAlloc") == 0) {
      check(cudaFreeHost(memory), "cudaFreeHost");
    } else {
      check(cudaHostUnregister(memory), "cudaHostUnregister");
      munmap(memory, bytes);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  if (argc > 1) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), threads);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("{\"test\": \"machine\", \"gpu\": \"%s\", \"cpu_threads\": %d}\n", properties.name,
              threads);
  const size_t total = size_t{1} << 30;
  std::byte* host = pinned(total);
  std::byte* device = on_device(total);
  auto* out = reinterpret_cast<uint32_t*>(on_device(size_t{64} << 20));
  for (const size_t bytes :
       {size_t{8192}, size_t{65536}, size_t{262144}, size_t{884736}, size_t{1769472},
        size_t{4} << 20, size_t{10616832}, size_t{24772608}, size_t{64} << 20, size_t{256} << 20}) {
    copies(host, device, bytes, total);
  }
  void* mapped = nullptr;
  check(cudaHostGetDevicePointer(&mapped, host, 0), "cudaHostGetDevicePointer");
  for (const uint32_t experts : {1u, 2u, 4u, 8u}) {
    mapped_reads(static_cast<std::byte*>(mapped), "host", experts, out);
    mapped_reads(device, "device", experts, out);
  }
  round_trips(out);
  copies_awaited(out);
  cpu_reads(host, device, total, threads);
  pinning(threads);
  return 0;
}
