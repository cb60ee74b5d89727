#include "io/drive_probe.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/format.h"
#include "base/units.h"
#include "io/aligned_read.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGoodEnough = 0.95;  // of the best bandwidth

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Measures one depth after the other, with one buffer and one stream of offsets.
class Probe {
 public:
  Probe(AsyncReader& reader, const File& file, const DriveProbeOptions& options)
      : reader_(reader),
        file_(file),
        blob_bytes_(options.blob_bytes),
        stride_(round_up(options.blob_bytes, kDirectAlignment)),
        random_(options.seed) {
    memory_ = buffer_.reserve(stride_ * static_cast<size_t>(options.depths.back()));
    const size_t share = options.depths.size();
    seconds_max_ = options.seconds / static_cast<double>(share);
    blobs_max_ = options.bytes_max / share / blob_bytes_;
  }

  Result<DriveProbePoint> measure(int depth) {
    DriveProbePoint point{.depth = depth};
    const uint64_t blobs_max = std::max(blobs_max_, static_cast<uint64_t>(depth));
    submitted_at_.resize(static_cast<size_t>(depth));
    double waited = 0;
    uint64_t submitted = 0;
    const Clock::time_point begin = Clock::now();
    for (; submitted < static_cast<uint64_t>(depth); ++submitted) submit(submitted);
    while (reader_.in_flight() > 0) {
      for (const ReadCompletion& completion : reader_.wait()) {
        if (!completion.status.ok()) return drained(completion.status.error());
        waited += seconds_since(submitted_at_[completion.tag]);
        ++point.blobs;
        if (submitted < blobs_max && seconds_since(begin) < seconds_max_) {
          submit(completion.tag);
          ++submitted;
        }
      }
    }
    const auto blobs = static_cast<double>(point.blobs);
    point.bytes_per_second = blobs * static_cast<double>(blob_bytes_) / seconds_since(begin);
    point.blob_seconds_mean = waited / blobs;
    return point;
  }

 private:
  void submit(uint64_t slot) {
    const uint64_t places = (file_.size_bytes() - blob_bytes_) / kDirectAlignment + 1;
    const ReadRequest request{.file = &file_,
                              .offset = random_() % places * kDirectAlignment,
                              .into = {memory_ + slot * stride_, blob_bytes_},
                              .tag = slot};
    submitted_at_[slot] = Clock::now();
    reader_.submit({&request, 1});
  }

  Error drained(Error error) {
    while (reader_.in_flight() > 0) (void)reader_.wait();
    return error.with_context("probing the drive");
  }

  AsyncReader& reader_;
  const File& file_;
  uint64_t blob_bytes_;
  uint64_t stride_;
  std::mt19937_64 random_;
  BounceBuffer buffer_;  // for its alignment
  std::byte* memory_ = nullptr;
  double seconds_max_ = 0;
  uint64_t blobs_max_ = 0;
  std::vector<Clock::time_point> submitted_at_;  // by slot, which is the tag
};

}  // namespace

void summarise(DriveProbe& probe) {
  for (const DriveProbePoint& point : probe.points) {
    probe.bytes_per_second = std::max(probe.bytes_per_second, point.bytes_per_second);
  }
  for (const DriveProbePoint& point : probe.points) {
    if (point.bytes_per_second < kGoodEnough * probe.bytes_per_second) continue;
    probe.depth = point.depth;
    return;
  }
}

Result<DriveProbe> probe_drive(AsyncReader& reader, const File& file,
                               const DriveProbeOptions& options) {
  MF_CHECK(reader.in_flight() == 0);
  if (options.blob_bytes == 0 || options.blob_bytes > file.size_bytes()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: cannot probe with blobs of {} bytes, expected 1 to {}, the file's size",
                      file.path(), options.blob_bytes, file.size_bytes());
  }
  if (options.depths.empty() || options.depths.front() < 1 ||
      !std::is_sorted(options.depths.begin(), options.depths.end())) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} depths to probe, expected ascending ones from 1", file.path(),
                      options.depths.size());
  }
  Probe measurement(reader, file, options);
  DriveProbe probe;
  for (const int depth : options.depths) {
    MF_ASSIGN_OR_RETURN(DriveProbePoint point, measurement.measure(depth));
    probe.points.push_back(point);
  }
  summarise(probe);
  return probe;
}

}  // namespace moeflux
