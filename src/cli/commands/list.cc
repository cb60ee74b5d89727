// moeflux list: the models that are on this machine, in the cache of downloads and in the folders
// of other programs, and which of them run here. moeflux rm removes those that were downloaded.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/hub_models.h"
#include "cli/plan/plan_summary.h"
#include "cli/terminal.h"
#include "hub/local_models.h"

namespace moeflux {
namespace list_command {
namespace {

constexpr size_t kReasonBytes = 60;
// A plan's memory depends on no speed, so none is measured.
constexpr PlanSpeeds kNoSpeeds = {.drive_gb = 1.0, .memory_gb = 1.0, .arithmetic_g = 1.0};

struct Row {
  hub::LocalModel model;
  bool runs = false;
  std::string here;
};

Row row_of(hub::LocalModel model, PlanSpeeds& speeds) {
  Row row{.model = std::move(model)};
  const Result<PlanSummary> plan = summarize_plan(row.model.path, speeds);
  if (!plan.ok()) {
    // The message names the path, which the row has.
    std::string reason = plan.error().message();
    if (const size_t at = reason.find(row.model.path); at != std::string::npos) {
      reason.erase(at, row.model.path.size());
      reason.erase(0, reason.find_first_not_of(" :"));
    }
    row.here = formatted("no: {}", reason);
    return row;
  }
  speeds = plan->speeds;
  row.runs = plan->fits;
  if (!plan->fits) {
    row.here = formatted("no: needs {} of memory", format_bytes(plan->needed_bytes));
  } else {
    row.here = plan->reads_drive ? "yes, experts from the drive" : "yes";
  }
  return row;
}

std::string render_text(const std::vector<Row>& rows) {
  size_t names = 4;
  size_t formats = 6;
  for (const Row& row : rows) {
    names = std::max(names, row.model.name.size());
    formats = std::max(formats, row.model.format.size());
  }
  std::string text =
      formatted("{:<{}}  {:>10}  {:<{}}  runs here\n", "name", names, "size", "format", formats);
  std::string source;
  for (const Row& row : rows) {
    if (row.model.source != source) {
      source = row.model.source;
      text += formatted("{}\n", source == "hub" ? "downloads, for -hf" : source + ", for -m");
    }
    const bool is_long = row.here.size() > kReasonBytes;
    text += formatted("{:<{}}  {:>10}  {:<{}}  {}{}\n", row.model.name, names,
                      format_bytes(row.model.bytes), row.model.format, formats,
                      row.here.substr(0, kReasonBytes), is_long ? "..." : "");
    if (source != "hub") text += formatted("    {}\n", row.model.path);
  }
  return text;
}

std::string render_json(const std::vector<Row>& rows) {
  Json json = Json::array();
  for (const Row& row : rows) {
    json.push_back({{"name", row.model.name},
                    {"path", row.model.path},
                    {"source", row.model.source},
                    {"format", row.model.format},
                    {"bytes", row.model.bytes},
                    {"runs", row.runs},
                    {"here", row.here}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status run(bool as_json, const Log& log) {
  MF_ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings_here());
  const hub::HubCache cache(settings.cache);
  std::vector<Row> rows;
  PlanSpeeds speeds = kNoSpeeds;
  for (hub::LocalModel& model : hub::find_local_models(cache, variable_here)) {
    rows.push_back(row_of(std::move(model), speeds));
  }
  if (as_json) return print_out(render_json(rows));
  if (rows.empty()) {
    log.note(formatted("no models in {} nor in the folders of other programs", settings.cache));
    return {};
  }
  return print_out(render_text(rows));
}

}  // namespace
}  // namespace list_command

Command make_list_command(const CommandContext& context) {
  auto as_json = std::make_shared<bool>(false);
  const Log* const log = &context.log;
  CommandOptions command("list", "List the models on this machine and which of them run here.");
  command.example("moeflux list");
  command.group("Output");
  command.add("--json", *as_json, "Print JSON");
  return {std::move(command), [as_json, log] { return list_command::run(*as_json, *log); }};
}

Command make_rm_command(const CommandContext& context) {
  auto name = std::make_shared<std::string>();
  const Log* const log = &context.log;
  CommandOptions command("rm", "Remove a downloaded model.");
  command.example("moeflux rm ORG/NAME:Q4_K_M");
  command.group("Model");
  command.add("name", *name, "ORG/NAME, with :QUANT or :FILE to keep its other files")
      .value("NAME")
      .command_line_only()
      .not_empty()
      .required();
  return {std::move(command), [name, log]() -> CommandOutcome {
            MF_ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(*name));
            MF_ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings_here());
            MF_ASSIGN_OR_RETURN(const uint64_t bytes, hub::HubCache(settings.cache).remove(model));
            log->note(formatted("removed {}: {} are free again", *name, format_bytes(bytes)));
            return Status();
          }};
}

}  // namespace moeflux
