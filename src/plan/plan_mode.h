// The choice of who computes experts where a device has memory of its own, as users spell it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace moeflux {

enum class PlanMode : uint8_t {
  kAuto,      // resident where that fits; else whoever is faster
  kResident,  // the device, which has to hold them all
  kNear,      // the device, which reads over its bus those that it does not hold
  kHelper,    // the device those that it holds, a helper the others, but for long prompts
  kShared,    // as kHelper, but the device reads a part of the others over its bus meanwhile
};

/// The parts of a model that several devices share.
enum class SplitMode : uint8_t {
  kLayers,     // each has some, which work in turn
  kExperts,    // each has layers, and a share of the experts of every layer, which work at once
  kAttention,  // each has layers, and some heads of every layer's keys, which work at once
};

/// "layers", "experts" or "attention". Fails with kInvalidArgument.
Result<SplitMode> parse_split_mode(std::string_view text);

/// The same back.
std::string_view split_name(SplitMode split);

/// "auto", "resident", "near", "helper" or "shared". Fails with kInvalidArgument.
Result<PlanMode> parse_plan_mode(std::string_view text);
/// The same back.
std::string_view plan_name(PlanMode plan);

}  // namespace moeflux
