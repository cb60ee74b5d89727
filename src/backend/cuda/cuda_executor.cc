#include "backend/cuda/cuda_executor.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/kernel_table.h"
#include "backend/cuda/launch_queue.h"
#include "backend/gpu/launch/read_out.h"
#include "backend/gpu/launch/rows_plans.h"
#include "base/cpu_pause.h"

namespace moeflux::gpu {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

// A kernel takes so much from another device: a copy engine takes its time to begin.
constexpr size_t kTakenByKernelMax = size_t{256} << 10;

// How long the host looks for a read's words: longer than decoded tokens take. Then the runtime
// waits, which also learns of a device's errors.
constexpr std::chrono::milliseconds kLookMax{20};
constexpr int kPausesPerLook = 2;
constexpr int kLooksPerClock = 64;

class CudaExecutor : public Executor {
 public:
  CudaExecutor(int device, bool use_graphs, bool overlap)
      : device_(device), launches_(use_graphs, overlap) {}

  ~CudaExecutor() override {
    if (!use_cuda_device(device_).ok()) return;
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    staging_.reset();
    if (copying_ != nullptr) (void)cudaStreamSynchronize(copying_);
    for (const Submitted& submitted : in_flight_) (void)cudaEventDestroy(submitted.passed);
    for (const Copied& copied : copies_) (void)cudaEventDestroy(copied.done);
    for (cudaEvent_t event : spare_events_) (void)cudaEventDestroy(event);
    if (copying_ != nullptr) (void)cudaStreamDestroy(copying_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  Status open() {
    MF_RETURN_IF_ERROR(use_cuda_device(device_));
    MF_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                   "cudaStreamCreateWithFlags"));
    MF_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&copying_, cudaStreamNonBlocking),
                                   "cudaStreamCreateWithFlags"));
    MF_ASSIGN_OR_RETURN(staging_, CudaStaging::create());
    MF_ASSIGN_OR_RETURN(landing_,
                        CudaBuffer::allocate(device_, kReadBytes, MemoryKind::kHostVisible));
    MF_ASSIGN_OR_RETURN(
        std::unique_ptr<Buffer> words,
        CudaBuffer::allocate(device_, ReadOut::kWordsBytes, MemoryKind::kHostVisible));
    read_out_.emplace(std::move(words));
    return {};
  }

  void record(const Plan& plan) override {
    if (!status_.ok()) return;
    note(use_cuda_device(device_));
    note(launches_.record(stream_, plan));
  }

  void write(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    MF_CHECK(offset_bytes + from.size() <= to.size_bytes());
    if (!status_.ok()) return;
    note(use_cuda_device(device_));
    note(launches_.flush(stream_));
    note(staging_->copy(stream_, cuda_address(to) + offset_bytes, from));
  }

  void write_ahead(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    MF_CHECK(offset_bytes + from.size() <= to.size_bytes());
    if (!status_.ok()) return;
    note(use_cuda_device(device_));
    note(staging_->copy(stream_, cuda_address(to) + offset_bytes, from));
  }

  Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) override {
    MF_CHECK(offset_bytes + to.size() <= from.size_bytes());
    if (!status_.ok()) return status_;
    note(use_cuda_device(device_));
    if (!to.empty() && to.size() <= ReadOut::kBytesMax) {
      note(read_few(to, from, offset_bytes));
    } else {
      note(launches_.flush(stream_));
      if (status_.ok()) note(read_many(to, cuda_address(from) + offset_bytes));
    }
    while (status_.ok() && !in_flight_.empty()) retire();
    return status_;
  }

  // Each stream waits for the other, the host for neither.
  void take(Buffer& to, uint64_t to_offset, Executor& other, const Buffer& from,
            uint64_t from_offset, size_t bytes) override {
    MF_CHECK(to_offset + bytes <= to.size_bytes() && from_offset + bytes <= from.size_bytes());
    auto& theirs = static_cast<CudaExecutor&>(other);
    if (!status_.ok() || !theirs.status_.ok()) return;
    await(other);
    const bool is_near = reach(theirs.device_);
    if (is_near && bytes <= kTakenByKernelMax && bytes % sizeof(float) == 0) {
      const Shape words{static_cast<int64_t>(bytes / sizeof(float))};
      // A plan may write to what it binds; this one does not.
      auto& source = const_cast<Buffer&>(from);
      note(launches_.record(stream_,
                            copy_plan(Tensor::view(to, to_offset, words, DType::kF32),
                                      Tensor::view(source, from_offset, words, DType::kF32))));
      note(launches_.launch_kept(stream_));
    } else {
      note(cuda_status(
          cudaMemcpyAsync(cuda_address(to) + to_offset, cuda_address(from) + from_offset, bytes,
                          cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync"));
    }
    const cudaEvent_t copied = mark(stream_);
    note(use_cuda_device(theirs.device_));
    note(cuda_status(cudaStreamWaitEvent(theirs.stream_, copied, 0), "cudaStreamWaitEvent"));
    spare_events_.push_back(copied);
  }

  // A wait is for what an event has recorded when it is called.
  void await(Executor& other) override {
    auto& theirs = static_cast<CudaExecutor&>(other);
    if (!status_.ok() || !theirs.status_.ok()) return;
    note(use_cuda_device(device_));
    note(launches_.flush(stream_));
    launches_.begin_behind(theirs.launches_);
    note(use_cuda_device(theirs.device_));
    theirs.note(theirs.launches_.flush(theirs.stream_));
    const cudaEvent_t computed = theirs.mark(theirs.stream_);
    note(use_cuda_device(device_));
    note(cuda_status(cudaStreamWaitEvent(stream_, computed, 0), "cudaStreamWaitEvent"));
    theirs.spare_events_.push_back(computed);
  }

  // An event that is not in flight any more has passed.
  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) override {
    const CopyId id{++copied_};
    if (!status_.ok()) return id;
    note(use_cuda_device(device_));
    const auto at = std::ranges::find(in_flight_, after, &Submitted::id);
    if (at != in_flight_.end()) {
      note(cuda_status(cudaStreamWaitEvent(copying_, at->passed, 0), "cudaStreamWaitEvent"));
    }
    for (const BufferCopy& c : copies) {
      MF_CHECK(c.to_offset + c.bytes <= c.to->size_bytes());
      MF_CHECK(c.from_offset + c.bytes <= c.from->size_bytes());
      note(cuda_status(
          cudaMemcpyAsync(cuda_address(*c.to) + c.to_offset, cuda_address(*c.from) + c.from_offset,
                          c.bytes, cudaMemcpyDefault, copying_),
          "cudaMemcpyAsync"));
    }
    if (cudaEvent_t event = mark(copying_)) copies_.push_back({id, event});
    return id;
  }

  void await_copies(CopyId last) override {
    if (!status_.ok()) return;
    const auto at = std::ranges::find(copies_, last, &Copied::id);
    if (at == copies_.end()) return;  // seen to be done
    note(use_cuda_device(device_));
    note(launches_.flush(stream_));
    note(cuda_status(cudaStreamWaitEvent(stream_, at->done, 0), "cudaStreamWaitEvent"));
  }

  bool has_copied(CopyId last) override {
    if (!status_.ok()) return true;
    while (!copies_.empty() && copies_.front().id <= last) {
      const cudaError_t code = cudaEventQuery(copies_.front().done);
      if (code == cudaErrorNotReady) return false;
      note(cuda_status(code, "cudaEventQuery"));
      spare_events_.push_back(copies_.front().done);
      copies_.pop_front();
    }
    return true;
  }

  EventId submit() override {
    const EventId id{++submitted_};
    if (!status_.ok()) return id;
    note(use_cuda_device(device_));
    note(launches_.flush(stream_));
    if (cudaEvent_t event = mark(stream_)) in_flight_.push_back({id, event});
    return id;
  }

  bool has_passed(EventId event) override {
    if (!status_.ok()) return stopped_;
    while (!in_flight_.empty() && in_flight_.front().id <= event) {
      const cudaError_t code = cudaEventQuery(in_flight_.front().passed);
      if (code == cudaErrorNotReady) return false;
      if (code != cudaSuccess) {
        note(cuda_status(code, "cudaEventQuery"));
        return stopped_;
      }
      retire();
    }
    return true;
  }

  Status wait(EventId event) override {
    if (!status_.ok()) {
      stop();
      return status_;
    }
    note(use_cuda_device(device_));
    while (status_.ok() && !in_flight_.empty() && in_flight_.front().id <= event) {
      note(cuda_status(cudaEventSynchronize(in_flight_.front().passed), "cudaEventSynchronize"));
      retire();
    }
    if (!status_.ok()) stop();
    return status_;
  }

 private:
  struct Submitted {
    EventId id{};
    cudaEvent_t passed = nullptr;
  };

  struct Reached {
    int device = 0;
    bool is_near = false;
  };

  struct Copied {
    CopyId id{};
    cudaEvent_t done = nullptr;
  };

  void note(const Status& status) {
    if (status_.ok() && !status.ok()) status_ = status;
  }

  // After an error nothing more is launched; what runs still uses its memory until it ends.
  void stop() {
    if (!stopped_ && copying_ != nullptr) (void)cudaStreamSynchronize(copying_);
    if (!stopped_ && stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    stopped_ = true;
  }

  Status synchronize() {
    return cuda_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  // A kernel at the end of the last run stores them in the host's memory: a copy engine takes its
  // time to begin, and the host to learn that it has finished.
  Status read_few(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) {
    MF_RETURN_IF_ERROR(launches_.record(stream_, read_out_->plan(from, offset_bytes, to.size())));
    MF_RETURN_IF_ERROR(launches_.flush(stream_));
    const auto end = std::chrono::steady_clock::now() + kLookMax;
    for (int looks = 1; !read_out_->has_arrived(); ++looks) {
      if (looks % kLooksPerClock == 0 && std::chrono::steady_clock::now() >= end) {
        MF_RETURN_IF_ERROR(synchronize());
        MF_CHECK(read_out_->has_arrived());
        break;
      }
      for (int i = 0; i < kPausesPerLook; ++i) cpu_pause();
    }
    read_out_->take(to);
    return {};
  }

  Status read_many(std::span<std::byte> to, const std::byte* from) {
    if (to.empty()) return synchronize();
    while (!to.empty()) {
      const size_t piece = std::min(to.size(), kReadBytes);
      MF_RETURN_IF_ERROR(cuda_status(
          cudaMemcpyAsync(landing_->host_data(), from, piece, cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync"));
      MF_RETURN_IF_ERROR(synchronize());
      std::memcpy(to.data(), landing_->host_data(), piece);
      from += piece;
      to = to.subspan(piece);
    }
    return {};
  }

  // True when kernels here reach the memory of that device. Without it copies go through the
  // host's memory, and are as right.
  bool reach(int device) {
    const auto known = std::ranges::find(reached_, device, &Reached::device);
    if (known != reached_.end()) return known->is_near;
    const cudaError_t code =
        device == device_ ? cudaSuccess : cudaDeviceEnablePeerAccess(device, 0);
    if (code != cudaSuccess) (void)cudaGetLastError();
    const bool is_near = code == cudaSuccess || code == cudaErrorPeerAccessAlreadyEnabled;
    reached_.push_back({device, is_near});
    return is_near;
  }

  void retire() {
    spare_events_.push_back(in_flight_.front().passed);
    in_flight_.erase(in_flight_.begin());
  }

  // An event behind all that the stream has; null if there is none.
  cudaEvent_t mark(cudaStream_t stream) {
    cudaEvent_t event = take_event();
    if (event != nullptr) note(cuda_status(cudaEventRecord(event, stream), "cudaEventRecord"));
    return event;
  }

  cudaEvent_t take_event() {
    cudaEvent_t event = nullptr;
    if (spare_events_.empty()) {
      note(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                       "cudaEventCreateWithFlags"));
      return event;
    }
    event = spare_events_.back();
    spare_events_.pop_back();
    return event;
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t copying_ = nullptr;  // beside it
  LaunchQueue launches_;
  std::unique_ptr<CudaStaging> staging_;
  std::unique_ptr<Buffer> landing_;  // where long reads arrive before they are copied out
  std::optional<ReadOut> read_out_;  // short ones
  uint64_t submitted_ = 0;
  std::vector<Submitted> in_flight_;  // few: what read() or wait() has not seen
  uint64_t copied_ = 0;
  std::deque<Copied> copies_;  // copies that has_copied() has not seen
  std::vector<cudaEvent_t> spare_events_;
  std::vector<Reached> reached_;
  Status status_;
  bool stopped_ = false;
};

}  // namespace

namespace {

// Kernels wait for their inputs by themselves if they were compiled for the GPUs that can overlap.
Result<bool> can_overlap(int device) {
  int major = 0;
  MF_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                  "cudaDeviceGetAttribute"));
  cudaFuncAttributes attributes{};
  MF_RETURN_IF_ERROR(
      cuda_status(cudaFuncGetAttributes(&attributes, cuda_kernel(KernelId::copy_rows)),
                  "cudaFuncGetAttributes"));
  return major >= 9 && attributes.ptxVersion >= 90;
}

}  // namespace

Result<std::unique_ptr<Executor>> make_cuda_executor(int device, bool use_graphs) {
  MF_RETURN_IF_ERROR(use_cuda_device(device));
  MF_ASSIGN_OR_RETURN(const bool overlap, can_overlap(device));
  auto executor = std::make_unique<CudaExecutor>(device, use_graphs, overlap);
  MF_RETURN_IF_ERROR(executor->open());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace moeflux::gpu
