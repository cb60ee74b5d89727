#include "serve/service_state.h"

#include <utility>

#include "base/format.h"
#include "serve/answer/answer_json.h"
#include "serve/wire/interface.h"

namespace moeflux::serve {
namespace {

Result<std::unique_ptr<Keeper>> open_keeper(const std::string& folder, std::string_view name,
                                            const ShelfLimits& limits, Elsewhere elsewhere) {
  return Keeper::open(folder.empty() ? "" : formatted("{}/{}", folder, name), limits, elsewhere);
}

}  // namespace

ServiceState::ServiceState(ServiceOptions options)
    : options_(std::move(options)),
      started_(unix_seconds()),
      asked_(count_routes() + 1),
      streams_(options_.streams) {}

Result<std::unique_ptr<ServiceState>> ServiceState::open(ServiceOptions options) {
  std::unique_ptr<ServiceState> state(new ServiceState(std::move(options)));
  const ServiceOptions& as = state->options_;
  MF_ASSIGN_OR_RETURN(state->responses_,
                      open_keeper(as.folder, "responses", as.responses, Elsewhere::kEnds));
  MF_ASSIGN_OR_RETURN(state->conversations_, open_keeper(as.folder, "conversations",
                                                         as.conversations, Elsewhere::kIsBusy));
  if (as.page.keeps_chats) {
    MF_ASSIGN_OR_RETURN(state->chats_,
                        open_keeper(as.folder, "chats", as.chats, Elsewhere::kIsBusy));
  }
  return state;
}

void ServiceState::note(const std::string& line, bool once) {
  constexpr size_t kLinesMax = 256;
  if (once) {
    const std::lock_guard lock(mutex_);
    if (told_.size() >= kLinesMax || !told_.insert(line).second) return;
  }
  options_.page.log->add(line);
  if (options_.on_note) options_.on_note(line);
}

bool ServiceState::add_tool_job(ToolJob job) {
  constexpr int kJobsMax = 32;
  if (++tool_jobs_count_ > kJobsMax) {
    --tool_jobs_count_;
    return false;
  }
  tool_jobs_.add([this, job = std::move(job)] {
    const std::function<void()> answer = job();
    --tool_jobs_count_;
    answer();
  });
  return true;
}

void ServiceState::note_ignored(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    note(formatted("requests have a field {}, which is ignored", json_excerpt(Json(name))),
         /*once=*/true);
  }
}

void ServiceState::watch(const std::shared_ptr<Response>& watcher) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watchers_, [](const auto& one) { return one->is_closed(); });
  watchers_.push_back(watcher);
}

void ServiceState::end_watching() {
  std::vector<std::shared_ptr<Response>> watchers;
  {
    const std::lock_guard lock(mutex_);
    watchers.swap(watchers_);
  }
  for (const auto& watcher : watchers) watcher->end();
}

std::vector<AskedCount> ServiceState::asked() const {
  std::vector<AskedCount> asked;
  for (const Interface* interface : interfaces()) {
    for (const Route& route : interface->routes) {
      asked.push_back({.method = std::string(route.method),
                       .path = std::string(route.path),
                       .count = asked_[asked.size()]});
    }
  }
  asked.push_back({.method = "", .path = "other", .count = asked_.back()});
  return asked;
}

}  // namespace moeflux::serve
