#include "cli/plan/plan_summary.h"

#include "base/format.h"
#include "cli/plan/planning.h"
#include "model/family/public_models.h"

namespace moeflux {
namespace {

// Two channels of DDR5, and eight cores of a desktop with AVX2, for machines that a form describes.
constexpr double kAssumedMemory = 60e9;
constexpr double kAssumedCpuMultiplyAdds = 400e9;

// A number of a described machine; nothing where it is absent.
Status read_number(const Json& machine, const char* name, double low, double high,
                   std::optional<double>& into) {
  const auto found = machine.find(name);
  if (found == machine.end() || found->is_null()) return {};
  const bool is_right =
      found->is_number() && found->get<double>() >= low && found->get<double>() <= high;
  if (!is_right) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected a number of {:g} to {:g}",
                      name, json_excerpt(*found), low, high);
  }
  into = found->get<double>();
  return {};
}

Status read_name(const Json& machine, const char* name, std::string& into) {
  const auto found = machine.find(name);
  if (found == machine.end() || found->is_null()) return {};
  if (!found->is_string()) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected a string", name,
                      json_excerpt(*found));
  }
  into = found->get<std::string>();
  return {};
}

// HostSpeeds that are absent are assumed, as measuring would take them from whoever computes here.
Status read_machine(const Json& machine, PlanOptions& options) {
  constexpr double kBytesMin = 1 << 20;
  constexpr double kBytesMax = 1e15;
  constexpr double kRateMin = 1e-3;
  constexpr double kRateMax = 1e6;
  if (!machine.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "the machine is {}, expected an object",
                      json_excerpt(machine));
  }
  std::optional<double> ram;
  std::optional<double> vram;
  std::optional<double> context;
  MF_RETURN_IF_ERROR(read_name(machine, "like", options.like));
  MF_RETURN_IF_ERROR(read_name(machine, "type", options.type));
  MF_RETURN_IF_ERROR(read_number(machine, "ctx_size", 1, 1e8, context));
  MF_RETURN_IF_ERROR(read_number(machine, "ram_bytes", kBytesMin, kBytesMax, ram));
  MF_RETURN_IF_ERROR(read_number(machine, "vram_bytes", kBytesMin, kBytesMax, vram));
  MF_RETURN_IF_ERROR(read_number(machine, "drive_gb_s", kRateMin, kRateMax, options.drive_gb));
  MF_RETURN_IF_ERROR(read_number(machine, "ram_gb_s", kRateMin, kRateMax, options.memory_gb));
  MF_RETURN_IF_ERROR(
      read_number(machine, "vram_gb_s", kRateMin, kRateMax, options.device_memory_gb));
  MF_RETURN_IF_ERROR(read_number(machine, "pcie_gb_s", kRateMin, kRateMax, options.bus_gb));
  MF_RETURN_IF_ERROR(read_number(machine, "gmac_s", kRateMin, kRateMax, options.arithmetic_g));
  if (!ram) {
    return make_error(ErrorCode::kInvalidArgument,
                      "ram_bytes is absent, expected the host's memory in bytes");
  }
  options.memory = formatted("{:.0f}", *ram);
  if (vram) options.device_memory = {formatted("{:.0f}", *vram)};
  if (context) options.model.engine.context_length = static_cast<int64_t>(*context);
  if (!options.drive_gb) options.drive_gb = kAssumedDrive / 1e9;
  if (!options.memory_gb) options.memory_gb = kAssumedMemory / 1e9;
  if (!options.arithmetic_g && !vram) options.arithmetic_g = kAssumedCpuMultiplyAdds / 1e9;
  return {};
}

}  // namespace

Result<PlanSummary> summarize_plan(const std::string& path, const PlanSpeeds& speeds) {
  PlanOptions options{.drive_gb = speeds.drive_gb,
                      .memory_gb = speeds.memory_gb,
                      .arithmetic_g = speeds.arithmetic_g,
                      .device_memory_gb = speeds.device_memory_gb};
  options.model.model = path;
  PlanSummary summary;
  MF_ASSIGN_OR_RETURN(const std::string text, plan_on_machine(options, &summary));
  (void)text;
  return summary;
}

Result<Json> forecast_described(const Json& machine, const std::string& model) {
  PlanOptions options{.json = true};
  options.model.device.name = "cpu";  // a GPU that is here would be measured
  options.model.device.threads = 1;   // the machine is described: nobody computes
  MF_RETURN_IF_ERROR(read_machine(machine, options));
  if (options.like.empty()) options.model.model = model;
  MF_ASSIGN_OR_RETURN(const std::string text, plan_on_machine(options));
  return parse_json(text, "the plan");
}

std::vector<std::string> forecast_names() {
  std::vector<std::string> names;
  for (const PublicModel& model : public_models()) names.emplace_back(model.name);
  return names;
}

}  // namespace moeflux
