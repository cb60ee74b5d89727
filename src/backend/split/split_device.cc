#include "backend/split/split_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/op_table.h"
#include "backend/split/split_encoder.h"
#include "base/format.h"

namespace moeflux {
namespace {

/// A device whose own memory is marked as that of one of several.
class PartDevice : public Device {
 public:
  PartDevice(std::unique_ptr<Device> device, size_t number)
      : device_(std::move(device)), number_(number) {}

  std::string_view name() const override { return device_->name(); }
  std::string_view description() const override { return device_->description(); }
  std::string_view bits_key() const override { return device_->bits_key(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device_->allocate(bytes, kind));
    if (kind == MemoryKind::kDevice) buffer->part = static_cast<int>(number_);
    return buffer;
  }
  Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    return device_->upload(to, offset_bytes, from);
  }
  std::optional<uint64_t> free_bytes() const override { return device_->free_bytes(); }
  double memory_bytes_per_second() const override { return device_->memory_bytes_per_second(); }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return device_->create_encoder(scratch_bytes);
  }
  bool copies_beside() const override { return device_->copies_beside(); }
  Status reach(const Device& other) override {
    return device_->reach(static_cast<const PartDevice&>(other).whole());
  }
  const Device& whole() const { return *device_; }

 private:
  std::unique_ptr<Device> device_;
  size_t number_;
};

class SplitDevice : public Device {
 public:
  explicit SplitDevice(std::vector<std::unique_ptr<Device>> parts) {
    for (std::unique_ptr<Device>& part : parts) {
      parts_.push_back(std::make_unique<PartDevice>(std::move(part), parts_.size()));
    }
    std::string keys;
    bool is_of_one_kind = true;
    for (const std::unique_ptr<PartDevice>& part : parts_) {
      name_ += formatted("{}{}", name_.empty() ? "" : "+", part->name());
      description_ += formatted("{}{}", description_.empty() ? "" : " + ", part->description());
      const bool is_first_kind = part->bits_key() == first().bits_key();
      is_of_one_kind = is_of_one_kind && is_first_kind;
      keys += formatted("{}{}", keys.empty() ? "" : " + ", part->bits_key());
    }
    bits_key_ = is_of_one_kind ? std::string(first().bits_key()) : keys;
  }

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  std::string_view bits_key() const override { return bits_key_; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    if (kind == MemoryKind::kHostVisible) return parts_.front()->allocate(bytes, kind);
    MF_ASSIGN_OR_RETURN(std::unique_ptr<SplitBuffer> copies, allocate_copies(bytes));
    return std::unique_ptr<Buffer>(std::move(copies));
  }
  Result<std::unique_ptr<Buffer>> allocate_for(LayerId layer, size_t bytes,
                                               MemoryKind kind) override {
    if (kind == MemoryKind::kHostVisible) return parts_.front()->allocate(bytes, kind);
    return parts_[part_of(layer)]->allocate(bytes, kind);
  }
  Result<std::unique_ptr<Buffer>> allocate_heads(LayerId layer, int64_t heads, size_t bytes,
                                                 MemoryKind kind) override {
    const std::vector<int64_t> counts = heads_by_part(layer, heads);
    if (heads == 1 || counts.empty()) return allocate_for(layer, bytes, kind);
    std::vector<HeadsBuffer::Piece> pieces(counts.size());
    int64_t begin = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      pieces[i].begin = begin;
      pieces[i].count = counts[i];
      begin += counts[i];
      if (counts[i] == 0) continue;
      const size_t own = bytes / static_cast<size_t>(heads) * static_cast<size_t>(counts[i]);
      MF_ASSIGN_OR_RETURN(pieces[i].buffer, parts_[i]->allocate(own, kind));
    }
    return std::unique_ptr<Buffer>(std::make_unique<HeadsBuffer>(std::move(pieces), heads, bytes));
  }
  Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    MF_CHECK(to.part != HeadsBuffer::kPart);
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
  Device& part(size_t number) override { return *parts_[number]; }
  std::vector<uint64_t> free_bytes_by_part() const override {
    std::vector<uint64_t> bytes;
    for (const std::unique_ptr<PartDevice>& part : parts_) {
      bytes.push_back(part->free_bytes().value_or(0));
    }
    return bytes;
  }
  void place_layers(std::vector<size_t> parts) override { layers_ = std::move(parts); }
  size_t part_of(LayerId layer) const override {
    const auto at = static_cast<size_t>(index(layer));
    return at < layers_.size() ? layers_[at] : 0;
  }

  void divide_heads() override { divides_heads_ = true; }
  // As many on each, in the order of devices; the layer's own and those behind it have one more.
  std::vector<int64_t> heads_by_part(LayerId layer, int64_t heads) const override {
    if (!divides_heads_) return {};
    const auto count = static_cast<int64_t>(parts_.size());
    std::vector<int64_t> own(parts_.size(), heads / count);
    for (int64_t i = 0; i < heads % count; ++i) {
      ++own[(part_of(layer) + static_cast<size_t>(i)) % parts_.size()];
    }
    return own;
  }

  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    std::vector<std::unique_ptr<Encoder>> encoders;
    std::vector<Buffer*> scratch;  // of each encoder
    for (const std::unique_ptr<PartDevice>& part : parts_) {
      MF_ASSIGN_OR_RETURN(std::unique_ptr<Encoder> encoder, part->create_encoder(scratch_bytes));
      scratch.push_back(encoder->scratch({0}, DType::kU8).buffer);
      scratch.back()->part = static_cast<int>(encoders.size());
      encoders.push_back(std::move(encoder));
    }
    return std::unique_ptr<Encoder>(std::make_unique<SplitEncoder>(
        std::move(encoders), std::make_unique<SplitBuffer>(std::move(scratch))));
  }

  Status supports(const ops::AnyOp& op) const override {
    for (const auto& part : parts_) MF_RETURN_IF_ERROR(part->whole().supports(op));
    return {};
  }
  int64_t preferred_prefill_chunk() const override { return first().preferred_prefill_chunk(); }
  bool takes_unaligned_experts() const override { return first().takes_unaligned_experts(); }
  bool multiplies_rows_as_tiles(const QuantFormat& stored) const override {
    return first().multiplies_rows_as_tiles(stored);
  }
  bool multiplies_units(const Weight& matrix) const override {
    return std::ranges::all_of(
        parts_, [&](const auto& part) { return part->whole().multiplies_units(matrix); });
  }
  bool takes_narrow_cache() const override { return first().takes_narrow_cache(); }
  bool takes_mixed_cache() const override { return first().takes_mixed_cache(); }
  DType preferred_cache_type() const override { return first().preferred_cache_type(); }
  WeightOrder preferred_order(const QuantFormat& stored, int64_t rows,
                              int64_t cols) const override {
    return first().preferred_order(stored, rows, cols);
  }

 private:
  const Device& first() const { return parts_.front()->whole(); }
  Result<std::unique_ptr<SplitBuffer>> allocate_copies(size_t bytes) {
    std::vector<std::unique_ptr<Buffer>> copies;
    for (const std::unique_ptr<PartDevice>& part : parts_) {
      MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> copy, part->allocate(bytes, MemoryKind::kDevice));
      copies.push_back(std::move(copy));
    }
    return std::make_unique<SplitBuffer>(std::move(copies));
  }

  std::vector<std::unique_ptr<PartDevice>> parts_;
  std::vector<size_t> layers_;  // the part of each
  bool divides_heads_ = false;
  std::string name_;
  std::string description_;
  std::string bits_key_;
};

// "cuda" of "cuda:0".
std::string_view kind_of(const Device& device) {
  return device.name().substr(0, device.name().find(':'));
}

}  // namespace

Result<std::unique_ptr<Device>> make_split_device(std::vector<std::unique_ptr<Device>> parts) {
  MF_CHECK(parts.size() > 1);
  for (const std::unique_ptr<Device>& part : parts) {
    const Device& first = *parts.front();
    const bool has_memory = part->free_bytes().has_value();
    if (kind_of(*part) == kind_of(first) && has_memory == first.free_bytes().has_value()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "devices {} and {}: a model is split between devices with the same kernels, "
                      "expected GPUs of one maker",
                      first.name(), part->name());
  }
  return std::unique_ptr<Device>(std::make_unique<SplitDevice>(std::move(parts)));
}

}  // namespace moeflux
