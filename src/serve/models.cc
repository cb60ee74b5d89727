#include "serve/models.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "base/hub_name.h"
#include "serve/call.h"
#include "serve/counter_sums.h"
#include "serve/service_limits.h"

namespace moeflux::serve {
namespace {

std::string without_ends(std::string name) {
  name = lower_case(without_hub_host(name));
  for (const std::string_view end : {":latest", ".gguf"}) {
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  return name;
}

// The folder that a client writes before a name counts for nothing, unless it is a place of files.
std::string plain_name(std::string name) {
  const bool is_place = name.starts_with('/') || name.find("..") != std::string::npos;
  name = without_ends(std::move(name));
  return is_place ? name : folder_name(std::move(name));
}

bool is_called(const std::string& known, const std::string& asked) {
  return known == "*" || plain_name(known) == plain_name(asked);
}

bool has_alias(const CatalogModel& model, const std::string& asked) {
  return std::ranges::any_of(model.aliases,
                             [&](const auto& alias) { return is_called(alias, asked); });
}

// "ORG/NAME" of "ORG/NAME:QUANT".
std::string without_tag(const std::string& name) {
  return without_ends(name.substr(0, name.find(':')));
}

ApiError cannot_unload(std::string message) {
  return {.status = 400, .code = "invalid_value", .message = std::move(message), .param = "model"};
}

}  // namespace

void Models::Waiter::leave() {
  std::function<void(TakenModel)> forgotten;  // it may own what takes locks
  std::function<void(double)> untold;
  const std::lock_guard lock(mutex);
  forgotten.swap(then);
  untold.swap(told);
}

void Models::Waiter::call(TakenModel taken) {
  std::function<void(TakenModel)> called;
  std::function<void(double)> untold;
  {
    const std::lock_guard lock(mutex);
    called.swap(then);
    untold.swap(told);
  }
  if (called) called(std::move(taken));
}

void Models::Waiter::tell(double progress) {
  const std::lock_guard lock(mutex);
  if (told) told(progress);
}

bool Models::Waiter::is_there() {
  const std::lock_guard lock(mutex);
  return then != nullptr;
}

Models::Models(ServiceState& state, ModelsOptions options)
    : state_(state), options_(std::move(options)) {
  refresh();
  if (options_.catalog != nullptr) thread_ = std::jthread([this] { work(); });
}

Models::~Models() {
  end();
  for (const auto& [name, entry] : entries_) {
    if (entry->context) entry->context->stop();
  }
  state_.wait_for_answers();  // which use a model
}

void Models::end() {
  refuse();
  if (thread_.joinable()) thread_.join();
  pulls_.wait();
}

void Models::add(std::unique_ptr<Context> model) {
  const ServiceOptions& options = model->options();
  auto entry = std::make_unique<Entry>();
  entry->listed = {.name = options.model_name, .aliases = options.aliases};
  entry->state = ModelState::kLoaded;
  entry->context = std::move(model);
  entry->stays = true;
  entry->last_use = Clock::now();
  const std::lock_guard lock(mutex_);
  order_.push_back(entry.get());
  entries_[entry->listed.name] = std::move(entry);
}

void Models::refresh() {
  if (options_.catalog == nullptr) return;
  std::vector<CatalogModel> found = options_.catalog->list();
  const std::lock_guard lock(mutex_);
  std::vector<Entry*> order;
  for (const auto& [name, entry] : entries_) {
    entry->is_listed = entry->stays;
    if (entry->stays) order.push_back(entry.get());
  }
  for (CatalogModel& model : found) {
    std::unique_ptr<Entry>& entry = entries_[model.name];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    if (entry->is_listed && entry->listed.name == model.name &&
        std::ranges::find(order, entry.get()) != order.end()) {
      continue;  // another folder has one of that name: the first counts
    }
    entry->is_listed = true;
    entry->listed = std::move(model);
    order.push_back(entry.get());
  }
  const auto is_gone = [&](const auto& item) {
    const Entry& entry = *item.second;
    return !entry.is_listed && entry.state == ModelState::kUnloaded && entry.uses == 0 &&
           entry.waiters.empty() && std::ranges::find(queue_, &entry) == queue_.end();
  };
  std::erase_if(entries_, is_gone);
  for (const auto& [name, entry] : entries_) {
    if (!entry->is_listed) order.push_back(entry.get());
  }
  order_ = std::move(order);
}

// The usual one is in use, or was last.
Models::Entry* Models::usual() {
  Entry* best = nullptr;
  for (Entry* entry : order_) {
    if (!is_ready(*entry)) continue;
    if (best == nullptr || entry->last_use > best->last_use) best = entry;
  }
  return best != nullptr || order_.empty() ? best : order_.front();
}

Models::Entry* Models::resolve(const std::string& asked) {
  if (asked.empty()) return usual();
  const auto copy = copies_.find(without_ends(asked));
  const std::string& name = copy == copies_.end() ? asked : copy->second;
  std::vector<Entry*> found;
  const auto look = [&](const auto& is_it) {
    if (!found.empty()) return;
    // A model that the catalog has lost is there until it leaves.
    std::ranges::copy_if(order_, std::back_inserter(found), [&](Entry* one) {
      return (one->is_listed || is_ready(*one)) && is_it(one);
    });
  };
  const std::string plain = without_ends(name);
  look([&](Entry* one) { return one->listed.name == name; });
  look([&](Entry* one) { return without_ends(one->listed.name) == plain; });
  look([&](Entry* one) { return without_tag(one->listed.name) == plain; });
  look([&](Entry* one) { return is_called(one->listed.name, name); });
  look([&](Entry* one) { return has_alias(one->listed, name); });
  if (found.empty()) return nullptr;
  // Several files of one model: one that is loaded answers at once.
  const auto ready = std::ranges::find_if(found, [](Entry* one) { return is_ready(*one); });
  return ready == found.end() ? found.front() : *ready;
}

Models::Entry* Models::find_or_refresh(Lock& lock, const std::string& name) {
  if (Entry* entry = resolve(name); entry != nullptr || options_.catalog == nullptr) return entry;
  lock.unlock();
  refresh();
  lock.lock();
  return resolve(name);
}

ApiError Models::unknown(const std::string& name) const {
  ApiError error{.status = 404,
                 .type = "not_found_error",
                 .code = "model_not_found",
                 .message = {},
                 .param = "model"};
  if (name.empty()) {
    error.message = "there is no model on this machine; moeflux pull brings one";
  } else if (options_.catalog != nullptr) {
    error.message = formatted("no model \"{}\" here, /v1/models lists what there is", name);
  } else {
    error.message = formatted("no model \"{}\", this server has \"{}\" (see --model-alias)", name,
                              entries_.empty() ? std::string() : entries_.begin()->first);
  }
  return error;
}

ModelLease Models::lease(Entry& entry, bool is_use) {
  ++entry.uses;
  if (is_use) entry.last_use = Clock::now();
  return {entry.context.get(), [this, &entry, is_use](Context*) { give_back(entry, is_use); }};
}

void Models::give_back(Entry& entry, bool is_use) {
  const std::lock_guard lock(mutex_);
  --entry.uses;
  if (is_use) entry.last_use = Clock::now();
  if (entry.uses == 0) changed_.notify_all();
}

TakenModel Models::take(const ModelUse& use) {
  Lock lock(mutex_);
  Entry* const entry = find_or_refresh(lock, use.name);
  if (entry == nullptr) return unknown(use.name);
  if (use.keep_alive) entry->keep_alive = use.keep_alive;
  return is_ready(*entry) ? lease(*entry) : ModelLease();
}

void Models::wait(const ModelUse& use, Response& client, std::function<void(TakenModel)> then,
                  std::function<void(double progress)> told) {
  auto waiter = std::make_shared<Waiter>();
  waiter->then = std::move(then);
  waiter->told = std::move(told);
  // First, as what `then` begins may ask for the same.
  client.when_closed([weak = std::weak_ptr<Waiter>(waiter)] {
    if (const auto one = weak.lock()) one->leave();
  });
  std::optional<ApiError> error;
  {
    Lock lock(mutex_);
    Entry* const entry = find_or_refresh(lock, use.name);
    if (refuses_) {
      error = draining();
    } else if (entry == nullptr) {
      error = unknown(use.name);
    } else if (count_waiting() >= options_.waiting_max) {
      error = ApiError{.status = 429,
                       .type = "rate_limit_error",
                       .message = "too many requests wait for a model, try again later"};
    } else {
      entry->waiters.push_back(waiter);
      enqueue(*entry);
    }
  }
  if (error) waiter->call(*error);
}

size_t Models::count_waiting() {
  size_t count = 0;
  for (const auto& [name, entry] : entries_) {
    std::erase_if(entry->waiters, [](const auto& one) { return !one->is_there(); });
    count += entry->waiters.size();
  }
  return count;
}

void Models::enqueue(Entry& entry) {
  if (std::ranges::find(queue_, &entry) == queue_.end()) queue_.push_back(&entry);
  changed_.notify_all();
}

TakenModel Models::loaded(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = resolve(name);
  if (entry == nullptr && name.empty()) return ModelLease();
  if (entry == nullptr) return unknown(name);
  if (entry->state != ModelState::kLoaded) return ModelLease();
  return lease(*entry, /*is_use=*/false);
}

ModelStatus Models::status_of(Entry& entry) {
  ModelStatus status{.listed = entry.listed,
                     .state = entry.state,
                     .error = entry.error,
                     .progress = entry.progress};
  // Waiting to be loaded is a part of it, for clients.
  const bool is_queued = std::ranges::find(queue_, &entry) != queue_.end();
  if (entry.state == ModelState::kUnloaded && is_queued) status.state = ModelState::kLoading;
  if (entry.state != ModelState::kLoaded) return status;
  const auto at = leaves_at(entry);
  status.loaded = lease(entry, /*is_use=*/false);
  if (at) {
    status.expires =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(*at - Clock::now());
  }
  return status;
}

std::vector<ModelStatus> Models::list() {
  refresh();
  std::vector<ModelStatus> all;
  const std::lock_guard lock(mutex_);
  for (Entry* entry : order_) all.push_back(status_of(*entry));
  for (const auto& [name, of] : copies_) {
    Entry* const entry = resolve(of);
    if (entry == nullptr) continue;
    all.push_back(status_of(*entry));
    all.back().listed.name = name;
  }
  return all;
}

std::optional<ModelStatus> Models::find(const std::string& name) {
  Lock lock(mutex_);
  Entry* const entry = find_or_refresh(lock, name);
  if (entry == nullptr) return std::nullopt;
  return status_of(*entry);
}

std::optional<ApiError> Models::load(const std::string& name) {
  Lock lock(mutex_);
  Entry* const entry = name.empty() ? nullptr : find_or_refresh(lock, name);
  if (entry == nullptr) return unknown(name);
  if (refuses_) return draining();
  if (is_ready(*entry)) return std::nullopt;
  entry->is_wanted = true;
  enqueue(*entry);
  return std::nullopt;
}

std::optional<ApiError> Models::unload(const std::string& name) {
  Lock lock(mutex_);
  Entry* const entry = name.empty() ? nullptr : find_or_refresh(lock, name);
  if (entry == nullptr) return unknown(name);
  if (entry->stays) {
    return cannot_unload(formatted("{} stays: the server was started with it", entry->listed.name));
  }
  if (entry->state != ModelState::kLoaded) {
    return cannot_unload(formatted("{} is not loaded", entry->listed.name));
  }
  entry->leaves = true;
  changed_.notify_all();
  return std::nullopt;
}

std::optional<ApiError> Models::may_manage() const {
  if (options_.may_manage) return std::nullopt;
  return ApiError{.status = 403,
                  .type = "permission_error",
                  .message =
                      "this server's models are not managed by HTTP: it was started without "
                      "--manage-models"};
}

void Models::pull(PullRequest request, std::function<void(const Status&)> ended) {
  pulls_.add([this, request = std::move(request), ended = std::move(ended)] {
    if (options_.catalog == nullptr) {
      return ended(make_error(ErrorCode::kUnsupported,
                              "this server has one model, with which it was started"));
    }
    std::stop_source stop;
    const auto forward = [&] { stop.request_stop(); };
    const std::stop_callback by_client(request.stop, forward);
    const std::stop_callback by_us(stop_.get_token(), forward);
    PullRequest own = request;
    own.stop = stop.get_token();
    ended(options_.catalog->pull(own));
  });
}

std::optional<ApiError> Models::copy(const std::string& from, const std::string& to) {
  constexpr size_t kCopiesMax = 256;
  constexpr size_t kNameMax = 128;
  const bool is_name =
      !to.empty() && to.size() <= kNameMax && to.find("..") == std::string::npos &&
      std::ranges::all_of(to, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':' || c == '/';
      });
  if (!is_name || to.starts_with('/')) {
    return bad_field("destination",
                     formatted("destination is {}, expected letters, digits, '-', '_', '.', ':' "
                               "and '/'",
                               json_excerpt(Json(to))));
  }
  Lock lock(mutex_);
  Entry* const entry = from.empty() ? nullptr : find_or_refresh(lock, from);
  if (entry == nullptr) return unknown(from);
  if (entries_.contains(to)) {
    return bad_field("destination", formatted("there is a model {} already", to));
  }
  if (copies_.size() >= kCopiesMax) {
    return ApiError{.status = 429,
                    .type = "rate_limit_error",
                    .message = "there are too many copies, delete some"};
  }
  copies_[without_ends(to)] = entry->listed.name;
  return std::nullopt;
}

std::optional<ApiError> Models::remove(const std::string& name) {
  std::string own;
  {
    Lock lock(mutex_);
    if (copies_.erase(without_ends(name)) > 0) return std::nullopt;
    Entry* const entry = name.empty() ? nullptr : find_or_refresh(lock, name);
    if (entry == nullptr) return unknown(name);
    if (entry->stays || options_.catalog == nullptr) {
      return cannot_unload(
          formatted("{} stays: the server was started with it", entry->listed.name));
    }
    own = entry->listed.name;
  }
  const Status removed = options_.catalog->remove(own);
  if (!removed.ok()) return model_name_error(removed.error());
  refresh();
  // A loaded one has its files open, and answers what has begun.
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(own);
  if (found == entries_.end() || found->second->state != ModelState::kLoaded) return std::nullopt;
  found->second->leaves = true;
  changed_.notify_all();
  return std::nullopt;
}

std::vector<ModelLease> Models::all_loaded() {
  std::vector<ModelLease> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    if (entry->state == ModelState::kLoaded) all.push_back(lease(*entry, /*is_use=*/false));
  }
  return all;
}

SchedulerCounters Models::texts() {
  const auto loaded = all_loaded();
  SchedulerCounters sum;
  {
    const std::lock_guard lock(mutex_);
    sum = past_texts_;
    for (const auto& [name, entry] : entries_) {
      sum.waiting += static_cast<int64_t>(entry->waiters.size());
    }
  }
  for (const ModelLease& model : loaded) {
    const SchedulerCounters counters = model->scheduler().counters();
    add_past(sum, counters);
    add_now(sum, counters);
  }
  return sum;
}

ModelCounters Models::counters() {
  const auto loaded = all_loaded();
  ModelCounters sum;
  {
    const std::lock_guard lock(mutex_);
    sum = past_counters_;
  }
  for (const ModelLease& model : loaded) {
    const ModelCounters counters = model->model().counters();
    add_counters(sum, counters);
    sum.expert_capacity_bytes += counters.expert_capacity_bytes;
  }
  return sum;
}

void Models::refuse() {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(mutex_);
    refuses_ = true;
    for (const auto& [name, entry] : entries_) {
      waiters.insert(waiters.end(), entry->waiters.begin(), entry->waiters.end());
      entry->waiters.clear();
    }
    queue_.clear();
    changed_.notify_all();
  }
  stop_.request_stop();
  for (const auto& waiter : waiters) waiter->call(draining());
  for (const ModelLease& model : all_loaded()) model->scheduler().refuse();
}

// The counters of one that has left stay in the sums.
void Models::unload(Lock& lock, Entry& entry) {
  const std::string name = entry.listed.name;  // without the lock a refresh may erase the entry
  std::unique_ptr<Context> context = std::move(entry.context);
  entry.state = ModelState::kUnloaded;
  entry.leaves = false;
  entry.bytes = 0;
  entry.keep_alive.reset();
  add_past(past_texts_, context->scheduler().counters());
  add_counters(past_counters_, context->model().counters());
  lock.unlock();
  context->scheduler().drain();  // writes states that are to survive
  context.reset();
  state_.note(formatted("{} is unloaded", name));
  lock.lock();
}

}  // namespace moeflux::serve
