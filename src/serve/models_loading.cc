// The thread of Models: loads, makes room and lets idle models go, one after another.
#include <algorithm>
#include <system_error>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "chat/turn_queue.h"
#include "serve/models.h"

namespace moeflux::serve {
namespace {

// A model that is loaded gets room for half of its experts where others can shrink to half of
// theirs, and for an eighth where none is left that could leave: fewer are read again and again.
constexpr uint64_t kSharedPart = 2;
constexpr uint64_t kLeastPart = 8;

// An engine leaves an eighth of its memory in reserve; see memory_reserve().
uint64_t with_reserve(uint64_t bytes) { return bytes + bytes / 7; }

ApiError not_loaded(const std::string& name, const Error& error) {
  ApiError told = api_error(error);
  if (told.status < 500) told.status = error.code() == ErrorCode::kResourceExhausted ? 503 : 500;
  told.type = told.status == 503 ? "unavailable_error" : "server_error";
  told.code = "model_not_loaded";
  told.message = formatted("{} cannot be loaded: {}", name, told.message);
  return told;
}

}  // namespace

void Models::work() {
  Lock lock(mutex_);
  while (!refuses_) {
    if (Entry* idle = next_to_leave(Clock::now())) {
      unload(lock, *idle);
      continue;
    }
    if (Entry* next = next_to_load()) {
      load_next(lock, *next);
      continue;
    }
    std::optional<Clock::time_point> soonest;
    for (const auto& [name, entry] : entries_) {
      const auto at = leaves_at(*entry);
      if (at && (!soonest || *at < *soonest)) soonest = at;
    }
    if (soonest) {
      changed_.wait_until(lock, *soonest);
    } else {
      changed_.wait(lock);
    }
  }
}

// One that is to leave is loaded anew once it has left.
Models::Entry* Models::next_to_load() {
  const auto next = std::ranges::find_if(queue_, [](const Entry* entry) {
    return entry->state != ModelState::kLoaded || is_ready(*entry);
  });
  if (next == queue_.end()) return nullptr;
  Entry* const entry = *next;
  queue_.erase(next);
  return entry;
}

std::optional<Models::Clock::time_point> Models::leaves_at(const Entry& entry) const {
  if (entry.state != ModelState::kLoaded || entry.stays || entry.uses > 0) return std::nullopt;
  const KeepAlive keep = entry.keep_alive.value_or(options_.keep_alive);
  if (keep.count() < 0) return std::nullopt;
  return entry.last_use + keep;
}

Models::Entry* Models::next_to_leave(Clock::time_point now) {
  for (const auto& [name, entry] : entries_) {
    if (entry->state != ModelState::kLoaded || entry->stays || entry->uses > 0) continue;
    const auto at = leaves_at(*entry);
    if (entry->leaves || (at && *at <= now)) return entry.get();
  }
  return nullptr;
}

void Models::load_next(Lock& lock, Entry& entry) {
  if (entry.state == ModelState::kLoaded) return hand_out(lock, entry, std::nullopt);
  std::erase_if(entry.waiters, [](const auto& one) { return !one->is_there(); });
  if (entry.waiters.empty() && !entry.is_wanted) return;
  entry.state = ModelState::kLoading;
  entry.progress = 0;
  entry.error.clear();
  const std::string name = entry.listed.name;
  is_loading_ = true;
  lock.unlock();
  // Threads of the standard library can only throw.
  Result<std::unique_ptr<Context>> opened = [&]() -> Result<std::unique_ptr<Context>> {
    try {
      return open(entry, name);
    } catch (const std::system_error& problem) {
      return make_error(ErrorCode::kResourceExhausted, "cannot start a thread: {}",
                        problem.code().message());
    }
  }();
  std::optional<ApiError> error;
  if (!opened.ok()) error = not_loaded(name, opened.error());
  const uint64_t bytes = error ? 0 : (*opened)->shrink(0);
  state_.note(error ? error->message : formatted("{} is loaded: {}", name, format_bytes(bytes)));
  lock.lock();
  is_loading_ = false;
  entry.is_wanted = false;
  if (error) {
    entry.state = ModelState::kUnloaded;
    entry.error = error->message;
  } else {
    entry.state = ModelState::kLoaded;
    entry.context = std::move(opened).value();
    entry.bytes = bytes;
    entry.last_use = Clock::now();
  }
  hand_out(lock, entry, error);
}

void Models::tell(Entry& entry, double progress) {
  std::vector<std::shared_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(mutex_);
    entry.progress = progress;
    waiters.assign(entry.waiters.begin(), entry.waiters.end());
  }
  for (const auto& waiter : waiters) waiter->tell(progress);
}

void Models::hand_out(Lock& lock, Entry& entry, const std::optional<ApiError>& error) {
  std::vector<std::pair<std::shared_ptr<Waiter>, TakenModel>> told;
  for (auto& waiter : entry.waiters) {
    told.emplace_back(std::move(waiter), error ? TakenModel(*error) : TakenModel(lease(entry)));
  }
  entry.waiters.clear();
  lock.unlock();
  for (auto& [waiter, taken] : told) waiter->call(std::move(taken));
  told.clear();  // gives leases back that nobody took, without the lock
  lock.lock();
}

Result<std::unique_ptr<Context>> Models::open(Entry& entry, const std::string& name) {
  MF_ASSIGN_OR_RETURN(const ModelRoom room, options_.catalog->measure(name));
  const uint64_t bytes = make_room(entry, room);
  if (stop_.stop_requested()) {
    return make_error(ErrorCode::kCancelled, "the server is draining");
  }
  const auto progress = [&](uint64_t done, uint64_t total) {
    if (total > 0) tell(entry, static_cast<double>(done) / static_cast<double>(total));
  };
  MF_ASSIGN_OR_RETURN(
      ServedModel served,
      options_.catalog->load(
          {.name = name, .memory_bytes = bytes, .stop = stop_.get_token(), .progress = progress}));
  served.options.model_name = name;
  MF_ASSIGN_OR_RETURN(auto context,
                      Context::create(std::move(served.model), std::move(served.options), state_));
  MF_RETURN_IF_ERROR(fit(*context, name, bytes));
  return context;
}

// A context that grows with a text was not counted when the experts' cache was planned.
Status Models::fit(Context& context, const std::string& name, uint64_t room) {
  uint64_t bytes = context.shrink(0);
  if (bytes > room) bytes = context.shrink(bytes - room);
  if (bytes <= room) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    "{} takes {} of memory, of which {} are left beside the models in use (see "
                    "--memory and --ctx-size)",
                    name, format_bytes(bytes), format_bytes(room));
}

uint64_t Models::held() const {
  uint64_t bytes = 0;
  for (const auto& [name, entry] : entries_) bytes += entry->bytes;
  return bytes;
}

uint64_t Models::left() const {
  const uint64_t taken = held();
  return options_.memory_bytes > taken ? options_.memory_bytes - taken : 0;
}

// The least recently used give first, each down to a share of its experts.
void Models::shrink_others(Lock& lock, Entry& entry, uint64_t goal) {
  std::vector<Entry*> others;
  for (const auto& [name, other] : entries_) {
    if (is_ready(*other) && other.get() != &entry) others.push_back(other.get());
  }
  std::ranges::sort(others, {}, [](const Entry* one) { return one->last_use; });
  for (Entry* other : others) {
    const uint64_t free = left();
    if (free >= goal || refuses_) return;
    ModelLease model = lease(*other, /*is_use=*/false);
    lock.unlock();
    const uint64_t kept = model->model().engine->memory_plan().experts_bytes / kSharedPart;
    const uint64_t cache = model->model().counters().expert_capacity_bytes;
    const uint64_t bytes = model->shrink(cache > kept ? std::min(cache - kept, goal - free) : 0);
    model.reset();  // without the lock, which it takes
    lock.lock();
    if (other->state == ModelState::kLoaded) other->bytes = bytes;
  }
}

uint64_t Models::make_room(Entry& entry, const ModelRoom& room) {
  const uint64_t goal = with_reserve(room.needed_bytes + room.experts_bytes / kSharedPart);
  const uint64_t least = with_reserve(room.needed_bytes + room.experts_bytes / kLeastPart);
  Lock lock(mutex_);
  if (left() < goal) shrink_others(lock, entry, goal);
  while (left() < least && !refuses_) {
    if (Entry* idle = next_to_leave(Clock::now())) {
      unload(lock, *idle);
      continue;
    }
    uint64_t promised = left();
    Entry* oldest = nullptr;
    bool any_leaves = false;
    for (const auto& [name, other] : entries_) {
      if (other->state != ModelState::kLoaded || other->stays) continue;
      if (other->leaves) {
        promised += other->bytes;
        any_leaves = true;
      } else if (oldest == nullptr || other->last_use < oldest->last_use) {
        oldest = other.get();
      }
    }
    if (promised < least && oldest != nullptr) {
      oldest->leaves = true;  // requests that come now wait until it is loaded anew
    } else if (any_leaves) {
      changed_.wait(lock);
    } else {
      break;  // the engine says what is missing
    }
  }
  return left();
}

}  // namespace moeflux::serve
