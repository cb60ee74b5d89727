#include "cli/hub_models.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/shard_choice.h"
#include "cli/plan/plan_summary.h"
#include "hub/choice.h"
#include "hub/download.h"
#include "hub/preview.h"
#include "io/part_file.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

std::string path_of(const hub::HubCache& cache, const hub::Repository& repository,
                    const hub::FileSet& set) {
  const std::string folder = cache.snapshot_folder(repository.name, repository.commit);
  return set.is_gguf() ? formatted("{}/{}", folder, set.files.front().name) : folder;
}

// "1 h 20 min", "3 min", "40 s".
std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e8));
  if (whole < 100) return formatted("{} s", whole);
  if (whole < 6000) return formatted("{} min", (whole + 30) / 60);
  return formatted("{} h {} min", whole / 3600, whole % 3600 / 60);
}

// A bar with the rate of this download and the time that is left, told anew each second.
class PullBar {
 public:
  explicit PullBar(uint64_t total) : bar_("pulling", total, ProgressUnit::kBytes), total_(total) {}

  void update(uint64_t done) {
    const Clock::time_point now = Clock::now();
    if (!begun_) {
      begun_ = told_ = now;
      first_ = done;
    }
    if (now - told_ >= std::chrono::seconds(1) && done > first_) {
      told_ = now;
      const double seconds = std::chrono::duration<double>(now - *begun_).count();
      const double rate = static_cast<double>(done - first_) / seconds;
      const double left = static_cast<double>(total_ - std::min(total_, done)) / rate;
      more_ = formatted(", {}/s, {} left", format_bytes(static_cast<uint64_t>(rate)),
                        duration_text(left));
    }
    bar_.update(done, more_);
  }

 private:
  ProgressBar bar_;
  uint64_t total_;
  std::optional<Clock::time_point> begun_;
  Clock::time_point told_;
  uint64_t first_ = 0;
  std::string more_;
};

// Assumed of a drive on which nothing lies yet.
constexpr double kAssumedDriveGb = 3.0;

// Plans of a repository's models by their headers alone.
class RemotePlans {
 public:
  RemotePlans(hub::Fetcher& fetcher, const hub::HubCache& cache, const hub::Repository& repository)
      : fetcher_(fetcher),
        repository_(repository),
        folder_(formatted("{}/.moeflux-{}", cache.root(), ::getpid())) {}

  Result<PlanSummary> plan(const hub::FileSet& set) {
    MF_ASSIGN_OR_RETURN(const hub::Preview preview,
                        hub::Preview::make(fetcher_, repository_, set, folder_));
    MF_ASSIGN_OR_RETURN(const PlanSummary found, summarize_plan(preview.path(), speeds_));
    speeds_ = found.speeds;  // measured once
    return found;
  }

 private:
  hub::Fetcher& fetcher_;
  const hub::Repository& repository_;
  const std::string folder_;
  PlanSpeeds speeds_ = {.drive_gb = kAssumedDriveGb};
};

std::string speed_text(const PlanSummary& plan) {
  const auto number = [](double speed) {
    return speed < 10 ? formatted("{:.1f}", speed) : formatted("{:.0f}", speed);
  };
  const std::string low = number(plan.tokens_low);
  const std::string high = number(plan.tokens_high);
  return low == high ? low : formatted("{} to {}", low, high);
}

void note_plan(const PlanSummary& plan, const Log& log) {
  const std::string_view memory = plan.on_device ? "GPU memory" : "memory";
  if (!plan.fits) {
    log.warning(formatted("it does not fit: it needs {} of {}{}", format_bytes(plan.needed_bytes),
                          memory, plan.experts_bytes > 0 ? " beside its experts" : ""));
    return;
  }
  const std::string experts =
      plan.experts_bytes == 0
          ? ""
          : formatted(" and {} for experts, which {}", format_bytes(plan.experts_bytes),
                      plan.reads_drive
                          ? formatted("come from the drive (assumed: {} GB/s)", kAssumedDriveGb)
                          : std::string("fit"));
  log.note(formatted("needs {} of {}{}; will run here at about {} tokens/s",
                     format_bytes(plan.needed_bytes), memory, experts, speed_text(plan)));
}

// The one that was named, or the one that suits this machine; its plan is noted.
Result<hub::FileSet> choose_remote(RemotePlans& plans, const hub::Repository& repository,
                                   std::string_view part, const Log& log) {
  MF_ASSIGN_OR_RETURN(std::vector<hub::FileSet> sets, hub::choose_file_sets(repository, part));
  // Quantised files of a repository stand for the original beside them.
  if (sets.size() > 1) std::erase_if(sets, [](const hub::FileSet& set) { return !set.is_gguf(); });
  std::optional<PlanSummary> plan;
  std::string planned;
  const auto forecast = [&](const hub::FileSet& set) -> Result<hub::SetForecast> {
    MF_ASSIGN_OR_RETURN(const PlanSummary found, plans.plan(set));
    plan = found;
    planned = set.files.front().name;
    return hub::SetForecast{found.fits, found.tokens_low};
  };
  hub::FileSet chosen = sets.front();
  if (sets.size() > 1) {
    MF_ASSIGN_OR_RETURN(hub::SetChoice choice, hub::choose_set(sets, forecast));
    chosen = std::move(choice.set);
    log.note(formatted("{}: {}", chosen.label.empty() ? chosen.files.front().name : chosen.label,
                       choice.reason));
  }
  if (!plan || planned != chosen.files.front().name) {
    if (const auto found = forecast(chosen); !found.ok()) {
      if (found.error().code() == ErrorCode::kCancelled) return found.error();
      log.warning(formatted("no forecast: {}", found.error().message()));
      return chosen;
    }
  }
  note_plan(*plan, log);
  return chosen;
}

Result<hub::FileSet> only_set(const hub::Repository& repository, std::string_view part) {
  MF_ASSIGN_OR_RETURN(std::vector<hub::FileSet> sets, hub::choose_file_sets(repository, part));
  if (sets.size() == 1) return std::move(sets.front());
  std::vector<std::string> labels;
  for (const hub::FileSet& set : sets) labels.push_back(set.label);
  return make_error(ErrorCode::kInvalidArgument, "{} has {} models; name one behind a colon: {}",
                    repository.name, sets.size(), list_some(labels, 24));
}

}  // namespace

const char* variable_here(const char* name) { return std::getenv(name); }

Result<hub::HubSettings> hub_settings_here() { return hub::hub_settings(variable_here); }

Result<std::string> pull_model(const PullOptions& options, const Log& log, std::stop_token stop) {
  MF_ASSIGN_OR_RETURN(const hub::ModelName name, hub::parse_model_name(options.name));
  MF_ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings_here());
  const hub::HubCache cache(settings.cache);
  if (settings.offline) {
    MF_ASSIGN_OR_RETURN(const hub::Repository here,
                        cache.snapshot(name.repository, options.revision));
    MF_ASSIGN_OR_RETURN(const hub::FileSet set, only_set(here, name.part));
    return path_of(cache, here, set);
  }
  MF_ASSIGN_OR_RETURN(auto client, hub::HttpClient::create({.stall_seconds = settings.stall_seconds,
                                                            .connections = options.connections}));
  hub::Fetcher fetcher(std::move(client), settings, options.connections, stop);
  MF_ASSIGN_OR_RETURN(const hub::Repository repository,
                      hub::ask_repository(fetcher, name.repository, options.revision));
  // The planner is asked where something is to come: the same pull again is quick.
  hub::FileSet set;
  const auto named = only_set(repository, name.part);
  if (named.ok() && hub::missing_bytes(cache, repository, named->files) == 0) {
    set = *named;
  } else {
    MF_RETURN_IF_ERROR(create_folders(cache.root()));
    RemotePlans plans(fetcher, cache, repository);
    MF_ASSIGN_OR_RETURN(set, choose_remote(plans, repository, name.part, log));
  }
  const uint64_t missing = hub::missing_bytes(cache, repository, set.files);
  if (missing > 0) {
    log.note(formatted("{}{}{}: {} of {} to download into {}", repository.name,
                       set.label.empty() ? "" : ":", set.label, format_bytes(missing),
                       format_bytes(set.bytes), cache.root()));
  }
  std::optional<PullBar> bar;
  hub::DownloadOptions download{.stop = stop};
  if (!options.piece.empty()) {
    MF_ASSIGN_OR_RETURN(download.piece_bytes, parse_bytes(options.piece));
  }
  if (options.progress) {
    download.progress = [&](uint64_t done) { options.progress(done, set.bytes); };
  } else if (missing > 0) {
    bar.emplace(set.bytes);
    download.progress = [&](uint64_t done) { bar->update(done); };
  }
  download.waits = [&] { log.note("waiting for another process that downloads the same"); };
  MF_RETURN_IF_ERROR(
      hub::download(fetcher, cache, repository, options.revision, set.files, download));
  return path_of(cache, repository, set);
}

Result<std::string> find_or_pull_model(const std::string& text, const Log& log) {
  MF_ASSIGN_OR_RETURN(const hub::ModelName name, hub::parse_model_name(text));
  MF_ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings_here());
  const hub::HubCache cache(settings.cache);
  if (const auto here = cache.snapshot(name.repository, "main"); here.ok()) {
    const auto set = only_set(*here, name.part);
    if (set.ok()) return path_of(cache, *here, *set);
  }
  return pull_model({.name = text}, log, {});
}

}  // namespace moeflux
