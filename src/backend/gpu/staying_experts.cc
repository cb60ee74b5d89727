// Experts that stay where they are: their tables are made once, and not looked at again when they
// are gone.
#include <array>
#include <cstring>

#include "backend/gpu/expert_launch.h"
#include "backend/gpu/gpu_encoder.h"

namespace moeflux::gpu {
namespace {

/// Work that is recorded may still read the table.
struct LeftTable : Retained {
  explicit LeftTable(std::unique_ptr<Buffer> table) : buffer(std::move(table)) {}
  std::unique_ptr<Buffer> buffer;
};

using EntryWords = std::array<uint64_t, sizeof(ExpertEntry) / sizeof(uint64_t)>;

EntryWords entry_words(std::span<const std::byte> entries, size_t entry) {
  EntryWords words;
  std::memcpy(words.data(), entries.data() + entry * sizeof(ExpertEntry), sizeof(ExpertEntry));
  return words;
}

// The bytes from each expert to the next; 0 unless expert i is entry i and all lie evenly. What one
// of them has not, none has: they share kernels.
uint64_t stride_of(std::span<const ExpertWeights> experts, std::span<const std::byte> entries) {
  const EntryWords first = entry_words(entries, 0);
  const uint64_t stride = experts.size() < 2 ? 1 : entry_words(entries, 1)[0] - first[0];
  for (size_t i = 0; i < experts.size(); ++i) {
    const EntryWords words = entry_words(entries, i);
    if (static_cast<size_t>(index(experts[i].expert)) != i) return 0;
    for (size_t w = 0; w < words.size(); ++w) {
      if (words[w] != (first[w] == 0 ? 0 : first[w] + i * stride)) return 0;
    }
  }
  return stride;
}

}  // namespace

GpuEncoder::StayingExperts* GpuEncoder::find_staying(std::span<const ExpertWeights> experts) {
  for (StayingExperts& stay : staying_) {
    // While an owner lives nothing else can lie where its experts do.
    if (stay.data == experts.data() && stay.count == experts.size() && !stay.owner.expired()) {
      return &stay;
    }
  }
  return nullptr;
}

void GpuEncoder::experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts) {
  if (experts == nullptr || experts->empty() || find_staying(*experts) != nullptr) return;
  forget_absent_experts();
  StayingExperts& stay = staying_.emplace_back();
  stay.owner = experts;
  stay.data = experts->data();
  stay.count = experts->size();
}

void GpuEncoder::forget_absent_experts() {
  std::erase_if(staying_, [&](StayingExperts& stay) {
    if (!stay.owner.expired()) return false;
    if (stay.table != nullptr) keep_alive(std::make_unique<LeftTable>(std::move(stay.table)));
    return true;
  });
}

Result<Binding> GpuEncoder::keep_table(StayingExperts& stay) {
  MF_ASSIGN_OR_RETURN(stay.table, platform_.allocate(table_bytes_.size(), MemoryKind::kDevice));
  executor_->write(*stay.table, 0, table_bytes_);
  return Binding{stay.table.get(), 0, table_bytes_.size(), Access::kRead};
}

void GpuEncoder::find_stride(std::span<const ExpertWeights> experts,
                             std::span<const std::byte> entries, ExpertLaunch& launch) {
  std::memcpy(&launch.first, entries.data(), sizeof(ExpertEntry));
  launch.stride = stride_of(experts, entries);
}

}  // namespace moeflux::gpu
