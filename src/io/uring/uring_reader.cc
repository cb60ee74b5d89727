// Reads through io_uring: one system call starts every chunk of every miss, and no thread waits.
// Chunks beyond the depth start in wait() and poll(). A ring that the kernel refuses to serve fails
// the reads that are in it and is made anew; where that fails too, reads block.
#include "io/uring/uring_reader.h"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>

#include "base/format.h"
#include "base/units.h"
#include "io/aligned_read.h"
#include "io/page_cache.h"

namespace moeflux {
namespace {

constexpr size_t kRegionBytesMax = kGiB;  // the kernel's limit for one registered buffer
// Memory that the kernel lacks for so long is not coming back: two seconds.
constexpr int kEntryAttemptsMax = 200;
constexpr std::chrono::milliseconds kEntryPause{10};
constexpr std::chrono::microseconds kArrivalPause{100};
// EBADR says that the kernel has lost arrivals; no drive takes so long over one that it has not.
constexpr std::chrono::seconds kQuietMax{60};

/// Errors for want of kernel memory, which may pass; prepared entries are still in the ring.
bool may_pass(int number) {
  return number == EINTR || number == EAGAIN || number == EBUSY || number == ENOMEM;
}

/// A chunk in the kernel's hands.
struct Flight {
  ReadChunk chunk;
  std::optional<AlignedRead> read;
  BounceBuffer bounce;  // kept for the next chunk
  int fd = -1;          // -1: only File::read_at serves it
  bool direct = false;
  bool in_ring = false;  // issued, not collected
};

class UringReader final : public AsyncReader {
 public:
  explicit UringReader(const UringReaderOptions& options)
      : options_(options), scheduler_(options.scheduler), flights_(options.scheduler.depth) {
    for (size_t i = flights_.size(); i > 0; --i) free_.push_back(i - 1);
    blocking_.reserve(flights_.size());
  }
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  ~UringReader() override { close(); }

  Status open() {
    const auto entries = static_cast<unsigned>(flights_.size());
    int failed = -EINVAL;
#if defined(IORING_SETUP_COOP_TASKRUN) && defined(IORING_SETUP_TASKRUN_FLAG)
    // Arrivals do not interrupt the thread while it computes.
    failed =
        io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
#endif
    if (failed == -EINVAL) failed = io_uring_queue_init(entries, &ring_, 0);
    if (failed != 0) {
      return make_error(ErrorCode::kUnsupported, "io_uring is not available here: {}",
                        std::system_category().message(-failed));
    }
    ring_open_ = true;
    return {};
  }

  std::string_view name() const override { return "uring"; }

  void submit(std::span<const ReadRequest> requests) override {
    scheduler_.reserve(requests.size());
    for (const ReadRequest& request : requests) scheduler_.add(request);
    start_chunks();
    enter(0);
  }

  std::vector<ReadCompletion> wait() override {
    MF_CHECK(scheduler_.in_flight() > 0);
    while (true) {
      advance();
      if (scheduler_.has_completed()) break;
      if (!blocking_.empty()) continue;
      MF_CHECK(in_ring_ > 0);  // advance() leaves nothing queued while there is room
      enter(1);
    }
    enter(0);
    return scheduler_.take_completed();
  }

  std::vector<ReadCompletion> poll() override {
    advance();
    enter(0);
    return scheduler_.take_completed();
  }

  size_t in_flight() const override { return scheduler_.in_flight(); }

  size_t promote(uint64_t tag) override {
    const size_t promoted = scheduler_.promote(tag);
    start_chunks();
    enter(0);
    return promoted;
  }
  size_t cancel(uint64_t tag) override { return scheduler_.cancel(tag); }

  Status register_buffers(std::span<const std::span<std::byte>> regions) override {
    MF_CHECK(in_ring_ == 0);
    if (!ring_open_) return make_error(ErrorCode::kUnsupported, "io_uring has failed");
    if (!registered_.empty()) io_uring_unregister_buffers(&ring_);
    registered_.clear();
    std::vector<iovec> pieces;
    for (std::span<std::byte> region : regions) {
      while (!region.empty()) {
        const size_t size = std::min(region.size(), kRegionBytesMax);
        pieces.push_back({region.data(), size});
        region = region.subspan(size);
      }
    }
    return register_pieces(std::move(pieces));
  }

 private:
  /// Takes what has arrived, reads what only blocks, starts what there is room for.
  void advance() {
    collect_arrivals();
    start_chunks();
    if (scheduler_.has_completed() || blocking_.empty()) return;
    const size_t id = blocking_.front();
    blocking_.erase(blocking_.begin());
    const ReadChunk& chunk = flights_[id].chunk;
    land(id, chunk.file->read_at(chunk.offset, chunk.into));
    start_chunks();
  }

  void start_chunks() {
    while (!free_.empty()) {
      const std::optional<ReadChunk> chunk = scheduler_.next();
      if (!chunk) return;
      const size_t id = free_.back();
      free_.pop_back();
      begin(id, *chunk);
    }
  }

  void begin(size_t id, const ReadChunk& chunk) {
    Flight& flight = flights_[id];
    const FileDescriptors files = chunk.file->descriptors();
    flight.chunk = chunk;
    flight.direct = files.direct >= 0;
    flight.fd = flight.direct ? files.direct : files.buffered;
    if (flight.fd < 0 || !ring_open_ || !lies_inside(chunk)) {
      blocking_.push_back(id);
      return;
    }
    try {
      flight.read.emplace(chunk, flight.direct ? kDirectAlignment : 1, flight.bounce);
    } catch (const std::bad_alloc&) {  // a chunk that has started must end, as others' do
      return land(id, Error(ErrorCode::kResourceExhausted, "out of memory"));
    }
    issue(id);
  }

  void issue(size_t id) {
    Flight& flight = flights_[id];
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    MF_CHECK(sqe != nullptr);  // the ring has an entry for every flight
    const std::span<const iovec> pieces = flight.read->pieces();
    const uint64_t offset = flight.read->offset();
    const std::optional<int> region = registered_region(pieces);
    if (region) {
      io_uring_prep_read_fixed(sqe, flight.fd, pieces[0].iov_base,
                               static_cast<unsigned>(pieces[0].iov_len), offset, *region);
    } else {
      io_uring_prep_readv(sqe, flight.fd, pieces.data(), static_cast<unsigned>(pieces.size()),
                          offset);
    }
    sqe->user_data = id;
    flight.in_ring = true;
    ++in_ring_;
  }

  std::optional<int> registered_region(std::span<const iovec> pieces) const {
    if (pieces.size() != 1) return std::nullopt;
    const auto begin = reinterpret_cast<uintptr_t>(pieces[0].iov_base);
    for (size_t i = 0; i < registered_.size(); ++i) {
      const auto base = reinterpret_cast<uintptr_t>(registered_[i].iov_base);
      if (begin >= base && begin + pieces[0].iov_len <= base + registered_[i].iov_len) {
        return static_cast<int>(i);
      }
    }
    return std::nullopt;
  }

  void collect_arrivals() {
    io_uring_cqe* cqe = nullptr;
    // arrive() may request the rest of a read, and requests fail with a failing ring.
    while (in_ring_ > 0 && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const size_t id = cqe->user_data;
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      leave_ring(id);
      arrive(id, result);
    }
  }

  void leave_ring(size_t id) {
    MF_CHECK(flights_[id].in_ring);
    flights_[id].in_ring = false;
    --in_ring_;
  }

  void arrive(size_t id, int64_t result) {
    Flight& flight = flights_[id];
    if (options_.filter != nullptr) result = options_.filter->filter(flight.read->pieces(), result);
    const Result<AlignedRead::Step> step = flight.read->take(result);
    if (!step.ok()) {
      land(id, step.error());
      return;
    }
    switch (*step) {
      case AlignedRead::Step::kDone:
        land(id, {});
        return;
      case AlignedRead::Step::kAgain:
        issue(id);
        return;
      case AlignedRead::Step::kPlain:
        blocking_.push_back(id);
        return;
    }
    __builtin_unreachable();
  }

  void land(size_t id, Status status) {
    const Flight& flight = flights_[id];
    const ReadChunk& chunk = flight.chunk;
    if (options_.drop_cache && !flight.direct && flight.fd >= 0) {
      drop_from_page_cache(flight.fd, chunk.offset, chunk.into.size());
    }
    scheduler_.finish(chunk, std::move(status));
    free_.push_back(id);
  }

  /// Hands prepared reads to the kernel and waits for `arrivals`.
  void enter(unsigned arrivals) {
    if (!ring_open_ || (arrivals == 0 && io_uring_sq_ready(&ring_) == 0)) return;
    int attempts = 0;
    while (true) {
      const int number = enter_once(arrivals);
      if (number == 0) return;
      if (!may_pass(number)) return fail_ring(number);
      if (io_uring_cq_ready(&ring_) > 0 || arrivals == 0) return;
      if (number == EINTR) continue;
      if (++attempts == kEntryAttemptsMax) return fail_ring(number);
      std::this_thread::sleep_for(kEntryPause);
    }
  }

  int enter_once(unsigned arrivals) {
    if (options_.entry_filter != nullptr) {
      const int refused = options_.entry_filter->refuse();
      if (refused != 0) return refused;
    }
    const int result = io_uring_submit_and_wait(&ring_, arrivals);
    return result < 0 ? -result : 0;
  }

  void fail_ring(int number) {
    close();
    // The order of flights is that of the array: reads that fail together fail in no other order.
    for (size_t id = 0; id < flights_.size(); ++id) {
      if (!flights_[id].in_ring) continue;
      leave_ring(id);
      const ReadChunk& chunk = flights_[id].chunk;
      land(id, make_error(ErrorCode::kIo,
                          "{}: reading {} bytes at offset {} failed: io_uring_enter: errno {} ({})",
                          chunk.file->path(), chunk.into.size(), chunk.offset, number,
                          std::system_category().message(number)));
    }
    std::vector<iovec> pieces;
    pieces.swap(registered_);
    if (open().ok() && !pieces.empty()) (void)register_pieces(std::move(pieces));
  }

  /// Ends the ring once the kernel writes no more. Entries that were prepared and not handed over
  /// never begin. Enters nothing, as that may be what fails: any system call lets arrivals through.
  void close() {
    if (!ring_open_) return;
    size_t begun = in_ring_ - io_uring_sq_ready(&ring_);
    auto last_arrival = std::chrono::steady_clock::now();
    while (begun > 0) {
      const unsigned arrived = io_uring_cq_ready(&ring_);
      io_uring_cq_advance(&ring_, arrived);
      begun -= arrived;
      const auto now = std::chrono::steady_clock::now();
      if (arrived > 0) last_arrival = now;
      if (begun > 0 && now - last_arrival > kQuietMax) break;
      if (begun > 0) std::this_thread::sleep_for(kArrivalPause);
    }
    io_uring_queue_exit(&ring_);
    ring_open_ = false;
  }

  Status register_pieces(std::vector<iovec> pieces) {
    if (pieces.empty()) return {};
    const int failed =
        io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (failed != 0) {
      return make_error(ErrorCode::kResourceExhausted,
                        "cannot register {} memory regions for reading: {} (limit of locked "
                        "memory: ulimit -l)",
                        pieces.size(), std::system_category().message(-failed));
    }
    registered_ = std::move(pieces);
    return {};
  }

  UringReaderOptions options_;
  ReadScheduler scheduler_;
  io_uring ring_{};
  bool ring_open_ = false;
  std::vector<Flight> flights_;
  std::vector<size_t> free_;      // flights
  std::vector<size_t> blocking_;  // flights that wait for File::read_at
  std::vector<iovec> registered_;
  size_t in_ring_ = 0;  // flights
};

}  // namespace

Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringReaderOptions& options) {
  auto reader = std::make_unique<UringReader>(options);
  MF_RETURN_IF_ERROR(reader->open());
  return std::unique_ptr<AsyncReader>(std::move(reader));
}

}  // namespace moeflux
