#include "backend/gpu/launch/plan.h"

#include "base/format.h"

namespace moeflux::gpu {
namespace {

std::string_view access_name(Access access) {
  switch (access) {
    case Access::kRead:
      return "read";
    case Access::kWrite:
      return "write";
    case Access::kOverwrite:
      return "overwrite";
    case Access::kReadWrite:
      return "update";
  }
  __builtin_unreachable();
}

}  // namespace

std::string to_string(const Plan& plan) {
  std::string text = formatted("{} {}x{}x{} groups of {}", kernel_info(plan.kernel).name,
                               plan.groups.x, plan.groups.y, plan.groups.z, plan.group_size);
  if (plan.shared_bytes > 0) text += formatted(", {} shared", plan.shared_bytes);
  std::array<const Buffer*, Plan::kBindingsMax> seen{};
  size_t count = 0;
  for (uint32_t i = 0; i < plan.num_bindings; ++i) {
    const Binding& binding = plan.bindings[i];
    if (binding.buffer == nullptr) {
      text += "; none";
      continue;
    }
    size_t number = 0;
    while (number < count && seen[number] != binding.buffer) ++number;
    if (number == count) seen[count++] = binding.buffer;
    text += formatted("; {} {} of #{}", access_name(binding.access), binding.size_bytes, number);
  }
  return text;
}

}  // namespace moeflux::gpu
