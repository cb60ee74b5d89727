#include "cli/serve/local_catalog.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/format.h"
#include "cli/hub_models.h"
#include "cli/plan/plan_summary.h"
#include "cli/serve/served_model.h"
#include "hub/hub_cache.h"
#include "hub/local_models.h"
#include "hub/repository.h"
#include "io/host_memory.h"
#include "plan/memory_plan.h"

namespace moeflux {
namespace {

// A plan's memory depends on no speed, so none is measured.
constexpr PlanSpeeds kNoSpeeds = {.drive_gb = 1.0, .memory_gb = 1.0, .arithmetic_g = 1.0};

std::string last_part(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

class LocalCatalog : public serve::ModelCatalog {
 public:
  LocalCatalog(ServeOptions base, std::vector<ServePreset> presets)
      : base_(std::move(base)), presets_(std::move(presets)) {}

  std::vector<serve::CatalogModel> list() override {
    std::vector<serve::CatalogModel> models;
    std::map<std::string, Place> places;
    const auto add = [&](serve::CatalogModel model, ServeOptions options) {
      const std::string name = model.name;
      if (!places.emplace(name, Place{model.source, std::move(options)}).second) return;
      models.push_back(std::move(model));
    };
    for (const ServePreset& preset : presets_) {
      add({.name = preset.name, .source = "preset"}, preset.options);
    }
    if (const auto embedded = model_directory({}); embedded.ok()) {
      add({.name = last_part(*embedded), .source = "embedded", .format = "safetensors"},
          options_of(*embedded));
    }
    if (const auto settings = hub_settings_here(); settings.ok()) {
      for (hub::LocalModel& model :
           hub::find_local_models(hub::HubCache(settings->cache), variable_here)) {
        add({.name = std::move(model.name),
             .source = std::move(model.source),
             .format = std::move(model.format),
             .bytes = model.bytes},
            options_of(model.path));
      }
    }
    const std::lock_guard lock(mutex_);
    places_ = std::move(places);
    return models;
  }

  Result<serve::ModelRoom> measure(const std::string& name) override {
    MF_ASSIGN_OR_RETURN(const Place place, find(name));
    MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(place.options.model));
    MF_ASSIGN_OR_RETURN(const PlanSummary plan, summarize_plan(directory, kNoSpeeds));
    // A device's memory is counted when it is taken.
    if (plan.on_device) return serve::ModelRoom{};
    // The plan is one of a machine for the model alone.
    const uint64_t reserve = memory_reserve(query_host_memory().available_bytes);
    return serve::ModelRoom{
        .needed_bytes = plan.needed_bytes - std::min(plan.needed_bytes, reserve),
        .experts_bytes = plan.experts_bytes};
  }

  Result<serve::ServedModel> load(const serve::LoadRequest& request) override {
    MF_ASSIGN_OR_RETURN(const Place place, find(request.name));
    return open_served_model(
        place.options,
        {.memory_bytes = request.memory_bytes, .stop = request.stop, .progress = request.progress});
  }

  Status pull(const serve::PullRequest& request) override {
    const auto path = pull_model({.name = request.name, .progress = request.progress},
                                 *base_.model.log, request.stop);
    return path.ok() ? Status() : Status(path.error());
  }

  Status remove(const std::string& name) override {
    MF_ASSIGN_OR_RETURN(const Place place, find(name));
    if (place.source != "hub") {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} is not deleted: it is {}, moeflux pull did not bring it", name,
                        place.source == "preset" || place.source == "embedded"
                            ? place.source
                            : formatted("in a folder of {}", place.source));
    }
    MF_ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(name));
    MF_ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings_here());
    MF_ASSIGN_OR_RETURN(const uint64_t bytes, hub::HubCache(settings.cache).remove(model));
    base_.model.log->note(formatted("removed {}: {} bytes are free again", name, bytes));
    return {};
  }

 private:
  struct Place {
    std::string source;
    ServeOptions options;
  };

  ServeOptions options_of(const std::string& path) const {
    ServeOptions options = base_;
    options.model.model = path;
    return options;
  }

  Result<Place> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(name);
    if (found != places_.end()) return found->second;
    return make_error(ErrorCode::kNotFound, "{} is not there any more", name);
  }

  const ServeOptions base_;
  const std::vector<ServePreset> presets_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Place> places_;
};

Status set_preset(const ConfigFile& file, std::span<const ConfigEntry* const> entries,
                  ServeOptions& options) {
  CommandOptions command("serve", "");
  add_preset_options(command, options);
  for (const ConfigEntry* entry : entries) {
    const std::string place = formatted("{}:{}: {}", file.path, entry->line, entry->key);
    Option* const option = command.find(option_name(entry->key));
    if (option == nullptr || !option->spec().is_configurable) {
      return make_error(ErrorCode::kInvalidArgument, "{}: not an option of a model", place);
    }
    for (const std::string& value : entry->values) {
      option->give(value, OptionOrigin::kFile, place);
    }
  }
  for (const Option& option : command.options()) {
    if (!option.given()) continue;
    MF_RETURN_IF_ERROR(option.check_presence());
    MF_RETURN_IF_ERROR(option.apply());
  }
  return {};
}

}  // namespace

Result<std::vector<ServePreset>> read_presets(const ConfigFile& file, const ServeOptions& base) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<const ConfigEntry*>> sections;
  for (const ConfigEntry& entry : file.entries) {
    const auto name = preset_name(entry.section);
    if (!name) continue;
    if (!sections.contains(*name)) names.push_back(*name);
    sections[*name].push_back(&entry);
  }
  std::vector<ServePreset> presets;
  for (const std::string& name : names) {
    ServePreset preset{.name = name, .options = base};
    MF_RETURN_IF_ERROR(set_preset(file, sections[name], preset.options));
    if (preset.options.model.model.empty() && preset.options.model.hub_name.empty()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}:{}: [model.{}] has no model and no hf-repo", file.path,
                        sections[name].front()->line, name);
    }
    presets.push_back(std::move(preset));
  }
  return presets;
}

std::shared_ptr<serve::ModelCatalog> make_local_catalog(ServeOptions base,
                                                        std::vector<ServePreset> presets) {
  return std::make_shared<LocalCatalog>(std::move(base), std::move(presets));
}

}  // namespace moeflux
