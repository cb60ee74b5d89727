#include "cli/bench_cells.h"

#include <algorithm>

namespace moeflux {

PlanMode BenchCell::opening_plan() const {
  return plans.size() == 1 ? plans.front() : PlanMode::kAuto;
}

Result<std::vector<BenchCell>> bench_cells(std::span<const std::string> near_caches,
                                           std::span<const std::string> plans) {
  bool has_resident = false;
  std::vector<PlanMode> in_turn;
  for (const std::string& text : plans) {
    MF_ASSIGN_OR_RETURN(const PlanMode plan, parse_plan_mode(text));
    if (plan == PlanMode::kResident) {
      has_resident = true;
    } else if (std::ranges::find(in_turn, plan) == in_turn.end()) {
      in_turn.push_back(plan);
    }
  }
  std::vector<BenchCell> cells;
  if (!in_turn.empty()) {
    for (const std::string& near : near_caches) cells.push_back({near, in_turn});
  }
  if (has_resident) {
    const bool is_bound = near_caches.size() == 1;
    cells.push_back({is_bound ? near_caches.front() : "auto", {PlanMode::kResident}});
  }
  return cells;
}

}  // namespace moeflux
