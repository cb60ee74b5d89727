#include "backend/gpu/launch/expert_tables.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "base/units.h"

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

// The bytes from each expert to the next; 0 unless expert i is entry i and all lie evenly. A part
// that one of them lacks all lack: they share kernels.
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

bool share_kernels(const ExpertWeights& a, const ExpertWeights& b) {
  const auto bias_dtype = [](const Tensor& bias) {
    return bias.is_null() ? DType::kF32 : bias.dtype;
  };
  return a.gate.format == b.gate.format && a.up.format == b.up.format &&
         a.down.format == b.down.format && bias_dtype(a.gate_bias) == bias_dtype(b.gate_bias) &&
         bias_dtype(a.down_bias) == bias_dtype(b.down_bias);
}

bool has_wide_rows(const Weight& weight) { return matrix_layout(weight).wide != 0; }

// Kernels read as widely as every expert's parts allow.
void narrow_to(ExpertLaunch& launch, const ExpertWeights& e) {
  launch.wide_gate = launch.wide_gate && has_wide_rows(e.gate);
  launch.wide_up = launch.wide_up && has_wide_rows(e.up);
  launch.wide_down = launch.wide_down && has_wide_rows(e.down);
  launch.wide_scales = launch.wide_scales && has_wide_scales(e.gate) && has_wide_scales(e.up);
  launch.wide_down_scales = launch.wide_down_scales && has_wide_scales(e.down);
}

bool is_as_wide(const ExpertLaunch& launch, const ExpertWeights& e) {
  ExpertLaunch with = launch;
  narrow_to(with, e);
  return with.wide_gate == launch.wide_gate && with.wide_up == launch.wide_up &&
         with.wide_down == launch.wide_down && with.wide_scales == launch.wide_scales &&
         with.wide_down_scales == launch.wide_down_scales;
}

}  // namespace

ExpertMatrix expert_addresses(const Recorder& recorder, const Weight& weight, const Tensor& bias) {
  return {recorder.address_of(weight.parts.codes), recorder.address_of(weight.parts.scales),
          recorder.address_of(added_part(weight)), recorder.address_of(bias)};
}

Status check_expert(const ExpertWeights& expert) {
  for (const Weight* weight : {&expert.gate, &expert.up, &expert.down}) {
    MF_RETURN_IF_ERROR(check_weight("expert_ffn", *weight));
  }
  return {};
}

ExpertTables::Staying* ExpertTables::find(std::span<const ExpertWeights> experts) {
  for (Staying& stay : staying_) {
    // While an owner lives nothing else can lie where its experts do.
    if (stay.data == experts.data() && stay.count == experts.size() && !stay.owner.expired()) {
      return &stay;
    }
  }
  return nullptr;
}

void ExpertTables::stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                        const ExpertMemory& memory) {
  if (experts == nullptr || experts->empty() || find(*experts) != nullptr) return;
  forget_absent();
  Staying& stay = staying_.emplace_back();
  stay.owner = experts;
  stay.data = experts->data();
  stay.count = experts->size();
  stay.memory = memory;
}

// A launch of all that stay has their entries in the vector's order.
void ExpertTables::move(std::span<const ExpertWeights> experts, std::span<const size_t> which) {
  Staying* const stay = find(experts);
  if (stay == nullptr || !stay->is_known || !recorder_.ok()) return;
  MF_CHECK(stay->memory.far != nullptr);
  for (const size_t i : which) {
    const ExpertWeights& e = experts[i];
    MF_CHECK(share_kernels(*stay->launch.like, e));
    MF_CHECK(is_as_wide(stay->launch, e));
    const ExpertEntry values = entry_of(e);
    recorder_.write_table(*stay->table, stay->launch.entries.offset_bytes + i * sizeof(ExpertEntry),
                          std::as_bytes(std::span(&values, 1)));
  }
}

ExpertEntry ExpertTables::entry_of(const ExpertWeights& e) const {
  return {expert_addresses(recorder_, e.gate, e.gate_bias),
          expert_addresses(recorder_, e.up, e.up_bias),
          expert_addresses(recorder_, e.down, e.down_bias)};
}

void ExpertTables::forget_absent() {
  std::erase_if(staying_, [&](Staying& stay) {
    if (!stay.owner.expired()) return false;
    for (std::unique_ptr<Buffer>* table : {&stay.table, &stay.fetched}) {
      if (*table == nullptr) continue;
      recorder_.keep_alive(std::make_unique<LeftTable>(std::move(*table)));
    }
    return true;
  });
}

Result<Binding> ExpertTables::keep_table(Staying& stay) {
  MF_ASSIGN_OR_RETURN(stay.table, recorder_.make_table(bytes_));
  return Binding{stay.table.get(), 0, bytes_.size(), Access::kRead};
}

void ExpertTables::begin(std::span<const ExpertWeights> ready) {
  ready_ = ready;
  stay_ = find(ready);
  next_ = 0;
  is_known_ = stay_ != nullptr && stay_->is_known;
  if (is_known_) return;
  done_.assign(ready.size(), 0);
  for (const ExpertWeights& expert : ready) {
    const Status supported = check_expert(expert);
    if (supported.ok()) continue;
    recorder_.fail(supported.error());
    return;
  }
}

bool ExpertTables::has_next() const { return recorder_.ok() && next_ < ready_.size(); }

bool ExpertTables::next(ExpertLaunch& launch) {
  if (is_known_) {
    launch = stay_->launch;
    next_ = ready_.size();
    return true;
  }
  launch = {};
  const ExpertWeights& like = ready_[next_];
  const Platform& platform = recorder_.platform();
  launch.like = &like;
  launch.uses_mma = uses_mma(platform, like.gate) && uses_mma(platform, like.down) &&
                    like.gate.format == like.up.format;
  launch.takes_many = takes_many(platform, like.gate) && takes_many(platform, like.down);
  const bool is_placed = place(next_, launch);
  while (next_ < ready_.size() && done_[next_] != 0) ++next_;
  return is_placed;
}

// The tables of experts from `like` on that run in the same kernels: a map from ids to entries, and
// the entries.
void ExpertTables::fill_table(size_t like, size_t map_bytes, ExpertLaunch& launch) {
  bytes_.assign(map_bytes + launch.num_entries * sizeof(ExpertEntry), std::byte{0xff});
  u32 entry = 0;
  for (size_t i = like; i < ready_.size(); ++i) {
    const ExpertWeights& e = ready_[i];
    if (done_[i] != 0 || !share_kernels(ready_[like], e)) continue;
    const ExpertEntry values = entry_of(e);
    std::memcpy(bytes_.data() + static_cast<size_t>(index(e.expert)) * sizeof(u32), &entry,
                sizeof(u32));
    std::memcpy(bytes_.data() + map_bytes + entry * sizeof(ExpertEntry), &values,
                sizeof(ExpertEntry));
    narrow_to(launch, e);
    done_[i] = 1;
    ++entry;
  }
}

bool ExpertTables::keep_fetched(Staying& stay, std::span<const std::byte> entries,
                                ExpertLaunch& launch) {
  Result<std::unique_ptr<Buffer>> made = recorder_.make_table(entries);
  if (!made.ok()) return recorder_.fail(made.error());
  stay.fetched = std::move(made).value();
  launch.fetched = {stay.fetched.get(), 0, entries.size(), Access::kRead};
  const ExpertMemory& memory = stay.memory;
  const Platform& platform = recorder_.platform();
  MF_CHECK(memory.expert_bytes % 16 == 0 && memory.slot_bytes % 16 == 0);
  launch.fetch = {.far = platform.device_address(*memory.far),
                  .far_bytes = memory.far->size_bytes(),
                  .landing = platform.device_address(*memory.landing),
                  .slot_bytes = memory.slot_bytes,
                  .copy_bytes = static_cast<u32>(memory.expert_bytes),
                  .places = static_cast<u32>(memory.landing->size_bytes() / memory.slot_bytes),
                  .ids = launch.num_ids};
  return true;
}

bool ExpertTables::place(size_t like, ExpertLaunch& launch) {
  for (size_t i = like; i < ready_.size(); ++i) {
    if (done_[i] != 0 || !share_kernels(ready_[like], ready_[i])) continue;
    launch.num_ids = std::max(launch.num_ids, static_cast<uint32_t>(index(ready_[i].expert)) + 1);
    ++launch.num_entries;
  }
  const size_t map_bytes = round_up(launch.num_ids * sizeof(u32), 8);
  fill_table(like, map_bytes, launch);
  const bool keeps = stay_ != nullptr && launch.num_entries == ready_.size();
  Binding table;
  if (keeps) {
    const Result<Binding> kept = keep_table(*stay_);
    if (!kept.ok()) return recorder_.fail(kept.error());
    table = *kept;
  } else if (!recorder_.place_table(bytes_, table)) {
    return false;
  }
  launch.map = launch.entries = table;
  launch.map.size_bytes = launch.num_ids * sizeof(u32);
  launch.entries.offset_bytes += map_bytes;
  launch.entries.size_bytes = launch.num_entries * sizeof(ExpertEntry);
  if (keeps) {
    const std::span<const std::byte> entries = std::span(bytes_).subspan(map_bytes);
    std::memcpy(&launch.first, entries.data(), sizeof(ExpertEntry));
    launch.stride = stay_->memory.far != nullptr ? 0 : stride_of(ready_, entries);
    if (stay_->memory.landing != nullptr && !keep_fetched(*stay_, entries, launch)) return false;
    stay_->launch = launch;
    stay_->is_known = true;
  }
  return true;
}

}  // namespace moeflux::gpu
