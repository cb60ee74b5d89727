#include "engine/plan_mode.h"

#include "base/format.h"

namespace moeflux {

Result<PlanMode> parse_plan_mode(std::string_view text) {
  if (text == "auto") return PlanMode::kAuto;
  if (text == "resident") return PlanMode::kResident;
  if (text == "near") return PlanMode::kNear;
  if (text == "helper") return PlanMode::kHelper;
  return make_error(ErrorCode::kInvalidArgument, "plan {}: expected auto, resident, near or helper",
                    text);
}

}  // namespace moeflux
