#include "model/weights/weight_reads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/host_buffer.h"
#include "base/check.h"
#include "base/format.h"
#include "base/units.h"
#include "model/weights/tiled_read.h"

namespace moeflux {
namespace {

constexpr size_t kBlockBytes = 16 * kMiB;  // small tensors share blocks; larger ones get their own

// Tools that quantise GGUF files take every matrix, also those that are read as floats.
Result<std::vector<float>> read_blocks(const File& file, const TensorEntry& entry) {
  const int64_t cols = entry.shape.back();
  const int64_t rows = entry.shape.num_elements() / cols;
  Weight matrix = lay_out(*entry.format, rows, cols);
  MF_CHECK(place_parts(matrix, 0, 1) == entry.size_bytes);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> stored, allocate_host_buffer(entry.size_bytes));
  MF_RETURN_IF_ERROR(file.read_at(entry.offset_bytes, {stored->host_data(), entry.size_bytes}));
  matrix = matrix.at(*stored, 0);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) {
    decode_row(
        matrix, row,
        std::span(values).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
  }
  return values;
}

}  // namespace

Result<Buffer*> WeightReads::take_buffer(size_t bytes, MemoryKind kind,
                                         std::optional<LayerId> layer) {
  MF_ASSIGN_OR_RETURN(
      std::unique_ptr<Buffer> buffer,
      layer ? device_.allocate_for(*layer, bytes, kind) : device_.allocate(bytes, kind));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().get();
}

Status WeightReads::open_block(MemoryKind kind, uint64_t bytes) {
  MF_ASSIGN_OR_RETURN(open_blocks_[static_cast<size_t>(kind)].buffer,
                      take_buffer(bytes, kind, std::nullopt));
  return {};
}

Status WeightReads::open_part_block(size_t part, uint64_t bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                      device_.part(part).allocate(bytes, MemoryKind::kDevice));
  buffers_.push_back(std::move(buffer));
  open_blocks_.resize(std::max(open_blocks_.size(), 2 + part + 1));
  open_blocks_[2 + part].buffer = buffers_.back().get();
  return {};
}

Result<Tensor> WeightReads::place(size_t bytes, const Shape& shape, DType dtype, MemoryKind kind,
                                  std::optional<LayerId> layer) {
  size_t block = static_cast<size_t>(kind);
  if (layer && kind == MemoryKind::kDevice && device_.num_parts() > 1) {
    block = 2 + device_.part_of(*layer);
  }
  if (block >= open_blocks_.size()) open_blocks_.resize(block + 1);
  Block& open = open_blocks_[block];
  const size_t begin = round_up(open.used, kPlaceAlignment);
  if (open.buffer != nullptr && begin + bytes <= open.buffer->size_bytes()) {
    open.used = begin + bytes;
    return Tensor::view(*open.buffer, begin, shape, dtype);
  }
  if (bytes > kBlockBytes / 2) {
    MF_ASSIGN_OR_RETURN(Buffer * own, take_buffer(bytes, kind, layer));
    return Tensor::view(*own, 0, shape, dtype);
  }
  MF_ASSIGN_OR_RETURN(open.buffer, take_buffer(kBlockBytes, kind, layer));
  open.used = bytes;
  return Tensor::view(*open.buffer, 0, shape, dtype);
}

void WeightReads::add_module(const Weight& to, const StoredModule& from) {
  if (to.format.kind != from.format.kind) return add_converted(to, from);
  if (to.format.order == WeightOrder::kTiled) return add_tiles(to, from);
  for (const PartRole role : kPartRoles) {
    if (to.has(role)) add_tensor(to.parts[role], from.parts[role]);
  }
}

void WeightReads::add_tensor(const Tensor& to, const StoredPart& from) {
  MF_CHECK(from.entry->size_bytes == to.size_bytes());
  reads_.push_back({from.entry->size_bytes, [this, to, from]() -> Status {
                      const Status read = fill(to, *from.entry);
                      if (!read.ok()) return read.error().with_context("tensor " + from.name);
                      return {};
                    }});
}

void WeightReads::add_tiles(const Weight& to, const StoredModule& from) {
  reads_.push_back({to.size_bytes(), [this, to, from]() -> Status {
                      const AffineEntries parts{.codes = *from.parts.codes.entry,
                                                .scales = *from.parts.scales.entry,
                                                .biases = *from.parts.offsets.entry};
                      const Status read = read_as_tiles(device_, to.parts.codes, index_, parts, to);
                      if (!read.ok()) return read.error().with_context("module " + from.name);
                      return {};
                    }});
}

void WeightReads::add_converted(const Weight& to, const StoredModule& from) {
  const Weight stored = lay_out(from.format, to.rows, to.cols);
  reads_.push_back({stored.size_bytes(), [this, to, stored, from]() -> Status {
                      const Status read = read_converted(to, stored, from);
                      if (!read.ok()) return read.error().with_context("module " + from.name);
                      return {};
                    }});
}

// Both forms are in memory at once: a transposed matrix is read from end to end for its first row.
Status WeightReads::read_converted(const Weight& to, Weight stored, const StoredModule& from) {
  std::vector<std::byte> arrived(place_parts(stored, 0, 64));
  const Parts<std::span<std::byte>> parts = stored.bytes_in(arrived.data());
  for (const PartRole role : kPartRoles) {
    if (!stored.has(role)) continue;
    const TensorEntry& entry = *from.parts[role].entry;
    MF_RETURN_IF_ERROR(index_.file(entry.file).read_at(entry.offset_bytes, parts[role]));
  }
  Weight made = lay_out(to.format, to.rows, to.cols);
  std::vector<std::byte> memory(place_parts(made, 0, 64));
  const Parts<std::span<std::byte>> converted = made.bytes_in(memory.data());
  arrange_matrix(made, converted, stored, parts);
  for (const PartRole role : kPartRoles) {
    if (!to.has(role)) continue;
    const Tensor& part = to.parts[role];
    MF_RETURN_IF_ERROR(device_.upload(*part.buffer, part.offset_bytes, converted[role]));
  }
  return {};
}

void WeightReads::add_floats(const Tensor& to, std::string name, const TensorEntry& from,
                             const std::function<float(float)>& map) {
  reads_.push_back(
      {from.size_bytes, [this, to, name = std::move(name), &from, map]() -> Status {
         MF_ASSIGN_OR_RETURN(std::vector<float> values, read_floats(index_, name, from));
         for (float& value : values) value = map(value);
         return device_.upload(*to.buffer, to.offset_bytes, std::as_bytes(std::span(values)));
       }});
}

void WeightReads::add_spread_floats(const Tensor& to, std::string name, const TensorEntry& from,
                                    const Spread& spread) {
  reads_.push_back(
      {from.size_bytes, [this, to, name = std::move(name), &from, spread]() -> Status {
         MF_ASSIGN_OR_RETURN(const std::vector<float> values, read_floats(index_, name, from));
         std::vector<float> apart(static_cast<size_t>(to.num_elements()), 0.0f);
         const auto length = static_cast<size_t>(spread.length);
         for (size_t i = 0; i < values.size(); ++i) {
           const size_t row = i / length * static_cast<size_t>(to.shape.back());
           apart[row + i % length * static_cast<size_t>(spread.step)] = values[i];
         }
         return device_.upload(*to.buffer, to.offset_bytes, std::as_bytes(std::span(apart)));
       }});
}

void WeightReads::add_ids(const Tensor& to, std::string name, const TensorEntry& from,
                          int64_t below) {
  reads_.push_back(
      {from.size_bytes, [this, to, name = std::move(name), &from, below]() -> Status {
         MF_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, read_ids(name, from, below));
         return device_.upload(*to.buffer, to.offset_bytes, std::as_bytes(std::span(ids)));
       }});
}

void WeightReads::add_constant(const Tensor& to, std::span<const float> values) {
  reads_.push_back(
      {0, [this, to, copy = std::vector<float>(values.begin(), values.end())]() -> Status {
         return device_.upload(*to.buffer, to.offset_bytes, std::as_bytes(std::span(copy)));
       }});
}

Status WeightReads::fill(const Tensor& tensor, const TensorEntry& entry) {
  const File& file = index_.file(entry.file);
  if (tensor.buffer->host_data() != nullptr) {
    return file.read_at(entry.offset_bytes, {host_ptr<std::byte>(tensor), entry.size_bytes});
  }
  upload_piece_.resize(std::min<size_t>(entry.size_bytes, kBlockBytes));
  for (uint64_t done = 0; done < entry.size_bytes; done += upload_piece_.size()) {
    const std::span<std::byte> piece =
        std::span(upload_piece_)
            .first(std::min<size_t>(upload_piece_.size(), entry.size_bytes - done));
    MF_RETURN_IF_ERROR(file.read_at(entry.offset_bytes + done, piece));
    MF_RETURN_IF_ERROR(device_.upload(*tensor.buffer, tensor.offset_bytes + done, piece));
  }
  return {};
}

Result<std::vector<int32_t>> WeightReads::read_ids(const std::string& name,
                                                   const TensorEntry& entry, int64_t below) const {
  std::vector<std::byte> stored(entry.size_bytes);
  const Status read = index_.file(entry.file).read_at(entry.offset_bytes, stored);
  if (!read.ok()) return read.error().with_context("tensor " + name);
  std::vector<int32_t> ids(static_cast<size_t>(entry.shape.num_elements()));
  const size_t width = stored.size() / ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t id = 0;
    int32_t narrow = 0;
    if (width == sizeof(id)) {
      std::memcpy(&id, stored.data() + i * width, sizeof(id));
    } else {
      std::memcpy(&narrow, stored.data() + i * width, sizeof(narrow));
      id = narrow;
    }
    if (id < 0 || id >= below) {
      return make_error(ErrorCode::kCorruption, "tensor {} has the id {}, expected one below {}",
                        name, id, below);
    }
    ids[i] = static_cast<int32_t>(id);
  }
  return ids;
}

Result<std::vector<float>> read_floats(const TensorIndex& index, const std::string& name,
                                       const TensorEntry& entry) {
  if (entry.format) {
    Result<std::vector<float>> values = read_blocks(index.file(entry.file), entry);
    if (values.ok()) return values;
    return values.error().with_context("tensor " + name);
  }
  std::vector<std::byte> stored(entry.size_bytes);
  const Status read = index.file(entry.file).read_at(entry.offset_bytes, stored);
  if (!read.ok()) return read.error().with_context("tensor " + name);
  std::vector<float> values(static_cast<size_t>(entry.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_float(stored.data(), static_cast<int64_t>(i), entry.dtype);
  }
  return values;
}

Status WeightReads::run(const ReadProgress& progress) {
  uint64_t total = 0;
  for (const Read& read : reads_) total += read.stored_bytes;
  uint64_t done = 0;
  for (const Read& read : reads_) {
    done += read.stored_bytes;
    if (progress && read.stored_bytes > 0 && !progress(done, total)) {
      return make_error(ErrorCode::kCancelled, "stopped while reading weights");
    }
    MF_RETURN_IF_ERROR(read.run());
  }
  reads_.clear();
  upload_piece_ = {};
  return {};
}

}  // namespace moeflux
