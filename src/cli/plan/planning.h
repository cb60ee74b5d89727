// Plans of a model on a machine that is here or described: the work of `moeflux plan`.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/plan/plan_speeds.h"
#include "cli/plan/plan_summary.h"

namespace moeflux {

/// The report as text or JSON, or nothing where there is a `summary` to fill. Fails with
/// kInvalidArgument for options that do not go together, and as opening the model does.
Result<std::string> plan_on_machine(const PlanOptions& options, PlanSummary* summary = nullptr);

}  // namespace moeflux
