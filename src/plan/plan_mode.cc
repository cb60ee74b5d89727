#include "plan/plan_mode.h"

#include "base/format.h"

namespace moeflux {

Result<PlanMode> parse_plan_mode(std::string_view text) {
  if (text == "auto") return PlanMode::kAuto;
  if (text == "resident") return PlanMode::kResident;
  if (text == "near") return PlanMode::kNear;
  if (text == "helper") return PlanMode::kHelper;
  if (text == "shared") return PlanMode::kShared;
  return make_error(ErrorCode::kInvalidArgument,
                    "plan {}: expected auto, resident, near, helper or shared", text);
}

Result<SplitMode> parse_split_mode(std::string_view text) {
  if (text == "layers") return SplitMode::kLayers;
  if (text == "experts") return SplitMode::kExperts;
  if (text == "attention") return SplitMode::kAttention;
  return make_error(ErrorCode::kInvalidArgument, "is '{}', expected layers, experts or attention",
                    text);
}

std::string_view split_name(SplitMode split) {
  switch (split) {
    case SplitMode::kLayers:
      return "layers";
    case SplitMode::kExperts:
      return "experts";
    case SplitMode::kAttention:
      return "attention";
  }
  __builtin_unreachable();
}

std::string_view plan_name(PlanMode plan) {
  switch (plan) {
    case PlanMode::kAuto:
      return "auto";
    case PlanMode::kResident:
      return "resident";
    case PlanMode::kNear:
      return "near";
    case PlanMode::kHelper:
      return "helper";
    case PlanMode::kShared:
      return "shared";
  }
  __builtin_unreachable();
}

}  // namespace moeflux
