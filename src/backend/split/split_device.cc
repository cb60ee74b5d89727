#include "backend/split/split_device.h"

#include <string>
#include <utility>

#include "backend/op_table.h"
#include "backend/split/split_encoder.h"
#include "base/format.h"

namespace moeflux {
namespace {

class SplitDevice : public Device {
 public:
  explicit SplitDevice(std::vector<std::unique_ptr<Device>> parts) : parts_(std::move(parts)) {
    for (const std::unique_ptr<Device>& part : parts_) {
      name_ += formatted("{}{}", name_.empty() ? "" : "+", part->name());
      description_ += formatted("{}{}", description_.empty() ? "" : " + ", part->description());
    }
  }

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  std::string_view bits_key() const override { return first().bits_key(); }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (kind == MemoryKind::kHostVisible) return parts_.front()->allocate(bytes, kind);
    MF_ASSIGN_OR_RETURN(std::unique_ptr<SplitBuffer> copies, allocate_copies(bytes));
    return std::unique_ptr<Buffer>(std::move(copies));
  }
  Result<std::unique_ptr<Buffer>> allocate_for(LayerId layer, size_t bytes,
                                               MemoryKind kind) override {
    if (kind == MemoryKind::kHostVisible) return parts_.front()->allocate(bytes, kind);
    const size_t part = part_of(layer);
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, parts_[part]->allocate(bytes, kind));
    buffer->part = static_cast<int>(part);
    return buffer;
  }
  Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    if (to.part != Buffer::kEachPart) {
      return parts_[static_cast<size_t>(std::max(to.part, 0))]->upload(to, offset_bytes, from);
    }
    const auto& copies = static_cast<const SplitBuffer&>(to);
    for (size_t i = 0; i < parts_.size(); ++i) {
      MF_RETURN_IF_ERROR(parts_[i]->upload(copies.on(i), offset_bytes, from));
    }
    return {};
  }

  std::optional<uint64_t> free_bytes() const override {
    uint64_t sum = 0;
    for (const uint64_t bytes : free_bytes_by_part()) sum += bytes;
    return first().free_bytes() ? std::optional(sum) : std::nullopt;
  }
  size_t num_parts() const override { return parts_.size(); }
  std::vector<uint64_t> free_bytes_by_part() const override {
    std::vector<uint64_t> bytes;
    for (const std::unique_ptr<Device>& part : parts_) {
      bytes.push_back(part->free_bytes().value_or(0));
    }
    return bytes;
  }
  void place_layers(std::vector<size_t> parts) override { layers_ = std::move(parts); }
  size_t part_of(LayerId layer) const override {
    const auto at = static_cast<size_t>(index(layer));
    return at < layers_.size() ? layers_[at] : 0;
  }

  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    std::vector<std::unique_ptr<Encoder>> encoders;
    for (const std::unique_ptr<Device>& part : parts_) {
      MF_ASSIGN_OR_RETURN(std::unique_ptr<Encoder> encoder, part->create_encoder(scratch_bytes));
      encoders.push_back(std::move(encoder));
    }
    MF_ASSIGN_OR_RETURN(std::unique_ptr<SplitBuffer> scratch, allocate_copies(scratch_bytes));
    return std::unique_ptr<Encoder>(
        std::make_unique<SplitEncoder>(std::move(encoders), std::move(scratch)));
  }

  Status supports(const ops::AnyOp& op) const override { return first().supports(op); }
  int64_t preferred_prefill_chunk() const override { return first().preferred_prefill_chunk(); }
  bool takes_unaligned_experts() const override { return first().takes_unaligned_experts(); }
  bool multiplies_rows_as_tiles(const QuantFormat& stored) const override {
    return first().multiplies_rows_as_tiles(stored);
  }
  bool multiplies_units(const Weight& matrix) const override {
    return first().multiplies_units(matrix);
  }
  bool takes_narrow_cache() const override { return first().takes_narrow_cache(); }
  bool takes_mixed_cache() const override { return first().takes_mixed_cache(); }
  DType preferred_cache_type() const override { return first().preferred_cache_type(); }
  WeightOrder preferred_order(const QuantFormat& stored, int64_t rows,
                              int64_t cols) const override {
    return first().preferred_order(stored, rows, cols);
  }

 private:
  const Device& first() const { return *parts_.front(); }
  Result<std::unique_ptr<SplitBuffer>> allocate_copies(size_t bytes) {
    std::vector<std::unique_ptr<Buffer>> copies;
    for (const std::unique_ptr<Device>& part : parts_) {
      MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> copy, part->allocate(bytes, MemoryKind::kDevice));
      copies.push_back(std::move(copy));
    }
    return std::make_unique<SplitBuffer>(std::move(copies));
  }

  std::vector<std::unique_ptr<Device>> parts_;
  std::vector<size_t> layers_;  // the part of each
  std::string name_;
  std::string description_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_split_device(std::vector<std::unique_ptr<Device>> parts) {
  MF_CHECK(parts.size() > 1);
  for (const std::unique_ptr<Device>& part : parts) {
    const Device& first = *parts.front();
    const bool has_memory = part->free_bytes().has_value();
    if (part->bits_key() == first.bits_key() && has_memory == first.free_bytes().has_value()) {
      continue;
    }
    return make_error(ErrorCode::kInvalidArgument,
                      "devices {} and {}: a model is split between devices that compute the same "
                      "bits, expected GPUs of one kind",
                      first.name(), part->name());
  }
  return std::unique_ptr<Device>(std::make_unique<SplitDevice>(std::move(parts)));
}

}  // namespace moeflux
