// The bytes of a usage profile: refused, or what it says survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "experts/tiers/usage_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto profile = moeflux::UsageProfile::parse(text);
  if (!profile.ok()) return 0;
  const auto again = moeflux::UsageProfile::parse(profile->to_json());
  if (!again.ok() || again->layers != profile->layers || again->tokens != profile->tokens) {
    std::abort();
  }
  const moeflux::ExpertShape shape{.num_layers = 2, .num_experts = 4};
  moeflux::ExpertCache cache(nullptr, {.num_slots = 1, .shape = shape});
  if (profile->check(shape).ok()) profile->seed(cache);
  return 0;
}
