#include "quant/weight.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "quant/format_traits.h"
#include "quant/formats/tiled.h"

namespace moeflux {

uint64_t Weight::size_bytes() const {
  uint64_t bytes = 0;
  for (const PartRole role : kPartRoles) {
    if (has(role)) bytes += parts[role].size_bytes();
  }
  return bytes;
}

Weight Weight::at(Buffer& buffer, size_t begin) const {
  Weight placed = *this;
  for (const PartRole role : kPartRoles) {
    Tensor& part = placed.parts[role];
    if (!has(role)) continue;
    part.buffer = &buffer;
    part.offset_bytes += begin;
    MF_CHECK(part.offset_bytes + part.size_bytes() <= buffer.size_bytes());
  }
  return placed;
}

Parts<std::span<std::byte>> Weight::bytes_in(std::byte* begin) const {
  Parts<std::span<std::byte>> bytes;
  for (const PartRole role : kPartRoles) {
    const Tensor& part = parts[role];
    if (has(role)) bytes[role] = {begin + part.offset_bytes, part.size_bytes()};
  }
  return bytes;
}

bool operator==(const Weight& a, const Weight& b) {
  return a.format == b.format && a.rows == b.rows && a.cols == b.cols &&
         std::all_of(kPartRoles.begin(), kPartRoles.end(), [&](PartRole role) {
           return a.has(role) == b.has(role) && a.parts[role].buffer == b.parts[role].buffer &&
                  a.parts[role].offset_bytes == b.parts[role].offset_bytes;
         });
}

Weight lay_out(const QuantFormat& format, int64_t rows, int64_t cols) {
  Weight weight{.format = format, .rows = rows, .cols = cols};
  format.kind->lay_out(weight);
  return weight;
}

Tensor unplaced(const Shape& shape, DType dtype) {
  Tensor part;
  part.shape = shape;
  part.dtype = dtype;
  int64_t stride = 1;
  for (int i = shape.rank(); i-- > 0; stride *= shape[i]) {
    part.strides[static_cast<size_t>(i)] = stride;
  }
  return part;
}

uint64_t place_parts(Weight& weight, uint64_t begin, uint64_t alignment) {
  for (const PartRole role : kPartRoles) {
    if (!weight.has(role)) continue;
    Tensor& part = weight.parts[role];
    part.offset_bytes = begin;
    begin = round_up(begin + part.size_bytes(), alignment);
  }
  return begin;
}

void reorder_parts(const QuantFormat& format, int64_t rows, int64_t cols,
                   const Parts<std::span<std::byte>>& to, WeightOrder from_order,
                   const Parts<std::span<std::byte>>& from) {
  if (format.order == from_order) {
    for (const PartRole role : kPartRoles) {
      std::copy(from[role].begin(), from[role].end(), to[role].begin());
    }
  } else if (format.order == WeightOrder::kTiled) {
    tiled::tile(to.codes, {from.codes, from.scales, from.offsets}, format, rows, cols);
  } else {
    tiled::untile(to.codes, to.scales, to.offsets, from.codes, format, rows, cols);
  }
}

QuantFormat format_in_memory(const QuantFormat& stored, int64_t rows, int64_t cols) {
  if (stored.kind->in_memory == nullptr) return stored;
  return stored.kind->in_memory(stored, rows, cols).value_or(stored);
}

void arrange_matrix(const Weight& to, const Parts<std::span<std::byte>>& to_bytes,
                    const Weight& from, const Parts<std::span<std::byte>>& from_bytes) {
  MF_CHECK(to.rows == from.rows && to.cols == from.cols);
  if (to.format.kind == from.format.kind) {
    return reorder_parts(to.format, to.rows, to.cols, to_bytes, from.format.order, from_bytes);
  }
  const auto convert = from.format.kind->convert_rows;
  MF_CHECK(convert != nullptr);
  if (to.format.order == WeightOrder::kRowMajor) {
    return convert(from, from_bytes, 0, from.rows, to_bytes);
  }
  // A panel at a time, so that it is tiled from the cache.
  const QuantFormat row_major = to.format.with_order(WeightOrder::kRowMajor);
  Weight panel = lay_out(row_major, tiled::kPanelRows, to.cols);
  std::vector<std::byte> memory(place_parts(panel, 0, 64));
  const Parts<std::span<std::byte>> rows = panel.bytes_in(memory.data());
  const size_t panel_bytes = weight_bytes(row_major, tiled::kPanelRows, to.cols);
  for (int64_t row = 0; row < to.rows; row += tiled::kPanelRows) {
    convert(from, from_bytes, row, tiled::kPanelRows, rows);
    const size_t begin = static_cast<size_t>(row / tiled::kPanelRows) * panel_bytes;
    tiled::tile(to_bytes.codes.subspan(begin, panel_bytes), {rows.codes, rows.scales, rows.offsets},
                to.format, tiled::kPanelRows, to.cols);
  }
}

int64_t rows_arranged_at_once(const Weight& to, const Weight& from) {
  constexpr uint64_t kPieceBytes = 256 * kKiB;
  const auto has_own_rows = [](const Weight& weight) {
    return std::ranges::all_of(kPartRoles, [&](PartRole role) {
      const Shape& shape = weight.parts[role].shape;
      return !weight.has(role) || weight.format.order == WeightOrder::kTiled ||
             (shape.rank() > 0 && shape[0] == weight.rows);
    });
  };
  if (!has_own_rows(to) || !has_own_rows(from) || from.rows % tiled::kPanelRows != 0) {
    return from.rows;
  }
  const uint64_t panel_bytes =
      from.size_bytes() * tiled::kPanelRows / static_cast<uint64_t>(from.rows);
  const auto panels = static_cast<int64_t>(std::max<uint64_t>(1, kPieceBytes / panel_bytes));
  return std::min(from.rows, panels * tiled::kPanelRows);
}

void arrange_rows(const Weight& to, const Parts<std::span<std::byte>>& to_bytes, const Weight& from,
                  const Parts<std::span<std::byte>>& from_bytes, int64_t begin, int64_t count) {
  if (count == from.rows) return arrange_matrix(to, to_bytes, from, from_bytes);
  const auto rows_of = [&](const Parts<std::span<std::byte>>& all) {
    Parts<std::span<std::byte>> rows;
    for (const PartRole role : kPartRoles) {
      const size_t row_bytes = all[role].size() / static_cast<size_t>(from.rows);
      rows[role] = all[role].subspan(static_cast<size_t>(begin) * row_bytes,
                                     static_cast<size_t>(count) * row_bytes);
    }
    return rows;
  };
  arrange_matrix(lay_out(to.format, count, to.cols), rows_of(to_bytes),
                 lay_out(from.format, count, from.cols), rows_of(from_bytes));
}

void decode_row(const Weight& weight, int64_t row, std::span<float> out) {
  MF_CHECK(static_cast<int64_t>(out.size()) == weight.cols && row >= 0 && row < weight.rows);
  MF_CHECK(weight.format.kind->decode_row != nullptr);
  weight.format.kind->decode_row(weight, row, out);
}

bool can_decode(const Weight& weight) {
  return weight.format.kind->decode_row != nullptr && is_valid(weight.format, weight.cols);
}

}  // namespace moeflux
