#include "model/weights/tiled_read.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "quant/formats/tiled.h"

namespace moeflux {
namespace {

// Large enough for a read at full speed, small enough to be tiled from the cache it arrived in.
constexpr uint64_t kStagingBytes = 1 * kMiB;

/// Rows of one tensor, read in the order of the file.
class Rows {
 public:
  Rows(const TensorIndex& index, const TensorEntry& entry, int64_t rows, int64_t rows_at_once)
      : file_(index.file(entry.file)),
        offset_(entry.offset_bytes),
        row_bytes_(entry.size_bytes / static_cast<uint64_t>(rows)),
        staging_(static_cast<size_t>(rows_at_once) * row_bytes_) {}

  /// The next `rows` rows; the bytes are there until the next call.
  Result<std::span<const std::byte>> next(int64_t rows) {
    const auto piece = std::span(staging_).first(static_cast<size_t>(rows) * row_bytes_);
    MF_RETURN_IF_ERROR(file_.read_at(offset_, piece));
    offset_ += piece.size();
    return std::span<const std::byte>(piece);
  }

 private:
  const File& file_;
  uint64_t offset_;
  uint64_t row_bytes_;
  std::vector<std::byte> staging_;
};

}  // namespace

Status read_as_tiles(Device& device, const Tensor& tiles, const TensorIndex& index,
                     const AffineEntries& entries, const Weight& weight) {
  const int64_t rows = weight.rows;
  const uint64_t panel_bytes = tiles.size_bytes() / static_cast<uint64_t>(rows / tiled::kPanelRows);
  const auto panels = static_cast<int64_t>(std::max<uint64_t>(1, kStagingBytes / panel_bytes));
  const int64_t rows_at_once = std::min(rows, panels * tiled::kPanelRows);
  Rows codes(index, entries.codes, rows, rows_at_once);
  Rows scales(index, entries.scales, rows, rows_at_once);
  Rows biases(index, entries.biases, rows, rows_at_once);
  const bool in_place = tiles.buffer->host_data() != nullptr;
  std::vector<std::byte> staging;  // tiles on their way to memory that the host cannot address
  uint64_t done = 0;
  for (int64_t row = 0; row < rows; row += rows_at_once) {
    const int64_t n = std::min(rows_at_once, rows - row);
    tiled::RowMajorParts parts;
    MF_ASSIGN_OR_RETURN(parts.codes, codes.next(n));
    MF_ASSIGN_OR_RETURN(parts.scales, scales.next(n));
    MF_ASSIGN_OR_RETURN(parts.biases, biases.next(n));
    const size_t bytes = static_cast<size_t>(n / tiled::kPanelRows) * panel_bytes;
    if (!in_place) staging.resize(bytes);
    const std::span<std::byte> out =
        in_place ? std::span(host_ptr<std::byte>(tiles) + done, bytes) : std::span(staging);
    tiled::tile(out, parts, weight.format, n, weight.cols);
    if (!in_place) {
      MF_RETURN_IF_ERROR(device.upload(*tiles.buffer, tiles.offset_bytes + done, out));
    }
    done += bytes;
  }
  MF_CHECK(done == tiles.size_bytes());
  return {};
}

}  // namespace moeflux
