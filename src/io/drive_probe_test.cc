#include "io/drive_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "base/format.h"
#include "tests/support/io/faulty_reader.h"
#include "tests/support/io/virtual_disk.h"

namespace moeflux {
namespace {

/// As large as it says and full of zeros; remembers where it was read.
class WideFile final : public File {
 public:
  explicit WideFile(uint64_t bytes) : bytes_(bytes) {}
  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return bytes_; }
  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    EXPECT_LE(offset + into.size(), bytes_);
    offsets.push_back(offset);
    return {};
  }
  mutable std::vector<uint64_t> offsets;

 private:
  std::string path_ = "wide";
  uint64_t bytes_;
};

DriveProbeOptions bounded(uint64_t blob_bytes) {
  // The bytes end every depth, not the time: what is read depends on no clock.
  return {.blob_bytes = blob_bytes, .seconds = 1e9, .bytes_max = 6 * 20 * blob_bytes};
}

TEST(DriveProbe, ReadsTheSameAlignedPlacesEveryTimeWithinItsBytes) {
  std::vector<std::vector<uint64_t>> runs;
  for (int run = 0; run < 2; ++run) {
    const WideFile file(uint64_t{1} << 30);
    FaultyReader reader({.reorder = false});
    const auto probe = probe_drive(reader, file, bounded(10000));
    ASSERT_TRUE(probe.ok()) << probe.error().to_string();
    runs.push_back(file.offsets);
    ASSERT_EQ(probe->points.size(), 6u);
    uint64_t blobs = 0;
    for (const DriveProbePoint& point : probe->points) blobs += point.blobs;
    EXPECT_EQ(blobs, file.offsets.size());
    EXPECT_LE(blobs, 5u * 20 + 32);
    for (const uint64_t offset : file.offsets) EXPECT_EQ(offset % kDirectAlignment, 0u);
    EXPECT_GT(std::set(file.offsets.begin(), file.offsets.end()).size(), 100u);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(DriveProbe, ChoosesTheSmallestDepthWithinFivePercentOfTheBest) {
  DriveProbe probe;
  probe.points = {{.depth = 1, .bytes_per_second = 50},
                  {.depth = 2, .bytes_per_second = 94},
                  {.depth = 4, .bytes_per_second = 96},
                  {.depth = 8, .bytes_per_second = 100},
                  {.depth = 16, .bytes_per_second = 99}};
  summarise(probe);
  EXPECT_EQ(probe.depth, 4);
  EXPECT_EQ(probe.bytes_per_second, 100);
}

TEST(DriveProbe, SaysWhatCannotBeProbed) {
  const WideFile file(1000);
  FaultyReader reader({});
  const DriveProbeOptions bad[] = {{.blob_bytes = 0},
                                   {.blob_bytes = 1001},
                                   {.blob_bytes = 10, .depths = {}},
                                   {.blob_bytes = 10, .depths = {0, 1}},
                                   {.blob_bytes = 10, .depths = {2, 1}}};
  for (const DriveProbeOptions& options : bad) {
    const auto probe = probe_drive(reader, file, options);
    ASSERT_FALSE(probe.ok());
    EXPECT_EQ(probe.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(probe.error().message().find("wide"), std::string::npos);
  }
}

TEST(DriveProbe, AFailedReadIsItsErrorAndNothingStaysInFlight) {
  const WideFile file(1 << 20);
  FaultyReader reader({.failing_reads = {25}});
  const auto probe = probe_drive(reader, file, bounded(5000));
  ASSERT_FALSE(probe.ok());
  EXPECT_EQ(probe.error().code(), ErrorCode::kIo);
  EXPECT_EQ(reader.in_flight(), 0u);
}

}  // namespace
}  // namespace moeflux
