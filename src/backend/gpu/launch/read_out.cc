#include "backend/gpu/launch/read_out.h"

#include <algorithm>
#include <cstring>

#include "backend/gpu/launch/plan_building.h"
#include "base/check.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kReadOutThreads = 256;

uint64_t* word_of(const Buffer& buffer, size_t word) {
  return reinterpret_cast<uint64_t*>(buffer.host_data()) + word;
}

}  // namespace

uint64_t ReadOut::load(size_t word) const {
  // Both compilers have it; not every standard library has atomic_ref.
  return __atomic_load_n(word_of(*words_, word), __ATOMIC_ACQUIRE);
}

Plan ReadOut::plan(const Buffer& from, uint64_t offset_bytes, size_t bytes) {
  MF_CHECK(bytes > 0 && bytes <= kBytesMax && has_arrived());
  wanted_ = groups_for(bytes, sizeof(uint32_t));
  arrived_ = 0;
  for (size_t i = 0; i < wanted_; ++i) __atomic_store_n(word_of(*words_, i), 0, __ATOMIC_RELEASE);
  Plan plan = make_plan(KernelId::read_out, {}, kReadOutThreads);
  plan.set_params(ReadOutParams{static_cast<u32>(bytes)});
  // A plan may write to what it binds; this one does not.
  plan.bind({const_cast<Buffer*>(&from), offset_bytes, bytes, Access::kRead});
  plan.bind({words_.get(), 0, wanted_ * sizeof(uint64_t), Access::kWrite});
  return plan;
}

bool ReadOut::has_arrived() {
  while (arrived_ < wanted_ && load(arrived_) >> 32 == kReadOutMark) ++arrived_;
  return arrived_ == wanted_;
}

void ReadOut::take(std::span<std::byte> to) {
  MF_CHECK(has_arrived() && groups_for(to.size(), sizeof(uint32_t)) == wanted_);
  for (size_t i = 0; i < wanted_; ++i) {
    const auto word = static_cast<uint32_t>(load(i));
    const std::span<std::byte> bytes = to.subspan(i * sizeof(word));
    std::memcpy(bytes.data(), &word, std::min(bytes.size(), sizeof(word)));
  }
}

}  // namespace moeflux::gpu
