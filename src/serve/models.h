// The models of a service: those that are loaded, those that may be, and the requests that wait for
// one. A model is loaded when a request names it, and leaves when it has been idle or another needs
// its memory. A service of one model has one that stays.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "serve/context.h"
#include "serve/keep_alive.h"
#include "serve/model_catalog.h"
#include "serve/service_state.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

struct ModelsOptions {
  std::shared_ptr<ModelCatalog> catalog;  // null: no others than add() has
  KeepAlive keep_alive = std::chrono::minutes(5);
  /// The host's memory for all loaded models together.
  uint64_t memory_bytes = UINT64_MAX;
  /// Requests that wait for a model to be loaded; more are refused with 429.
  size_t waiting_max = 64;
  /// Clients may pull, copy and delete.
  bool may_manage = false;
};

/// A loaded model, which stays loaded as long as this is held. Never the last to hold it: any
/// thread may give it back.
using ModelLease = std::shared_ptr<Context>;
/// A null lease: the model has to be loaded first.
using TakenModel = std::variant<ModelLease, ApiError>;

/// A request's model.
struct ModelUse {
  std::string name;                          // empty: the one that is meant where none is named
  std::optional<KeepAlive> keep_alive = {};  // in place of the service's, from now on
};

enum class ModelState : uint8_t { kUnloaded, kLoading, kLoaded };

/// A model at one moment.
struct ModelStatus {
  CatalogModel listed;
  ModelState state = ModelState::kUnloaded;
  std::string error = {};  // of the last attempt to load it; empty: it did not fail
  double progress = 0.0;   // of loading, 0 to 1
  ModelLease loaded = {};
  /// When it leaves if nobody asks; nothing while it is used, and for one that stays.
  std::optional<std::chrono::system_clock::time_point> expires = {};
};

/// Thread-safe.
class Models {
 public:
  using Clock = std::chrono::steady_clock;

  /// The state must outlive this.
  Models(ServiceState& state, ModelsOptions options);
  /// Ends what runs. Waiting requests get errors.
  ~Models();
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  /// A model that stays.
  void add(std::unique_ptr<Context> model);

  /// A lease, null where the model is not loaded, or why there is none such.
  TakenModel take(const ModelUse& use);
  /// Calls `then` once with a lease or the error, from this call or the thread that loads; never
  /// where the client leaves before. Before that `told`, of loading, 0 to 1: any thread, one at a
  /// time, with a lock that when_closed() of the client takes.
  void wait(const ModelUse& use, Response& client, std::function<void(TakenModel)> then,
            std::function<void(double progress)> told = {});
  /// The loaded model of that name, or the one that is meant; null, or an error as above.
  TakenModel loaded(const std::string& name);

  /// All of them, as the folders are now, the loaded ones with leases.
  std::vector<ModelStatus> list();
  std::optional<ModelStatus> find(const std::string& name);
  ApiError unknown(const std::string& name) const;

  /// Begins to load, and returns.
  std::optional<ApiError> load(const std::string& name);
  /// It leaves when the requests that have begun are over.
  std::optional<ApiError> unload(const std::string& name);

  // --- Managing; the error where that is not allowed ---

  std::optional<ApiError> may_manage() const;
  /// Returns at once; `ended` is called on another thread.
  void pull(PullRequest request, std::function<void(const Status&)> ended);
  std::optional<ApiError> copy(const std::string& from, const std::string& to);
  std::optional<ApiError> remove(const std::string& name);

  // --- All of them ---

  std::vector<ModelLease> all_loaded();
  /// Sums, with those of models that have left.
  SchedulerCounters texts();
  ModelCounters counters();
  bool is_loading() const { return is_loading_; }
  /// Takes nothing new; those who wait get errors.
  void refuse();
  /// The same, and returns when nobody is told of a model any more. Before what they are told on
  /// ends.
  void end();

 private:
  /// A request that waits.
  struct Waiter {
    std::mutex mutex;
    std::function<void(TakenModel)> then;  // null: it was called, or the client has left
    std::function<void(double)> told;      // or null
    void leave();
    void call(TakenModel taken);
    void tell(double progress);
    bool is_there();
  };
  struct Entry {
    CatalogModel listed;
    ModelState state = ModelState::kUnloaded;
    std::unique_ptr<Context> context;
    bool stays = false;
    bool is_listed = true;   // by the catalog's last list
    bool leaves = false;     // takes no requests any more
    bool is_wanted = false;  // also without anybody who waits
    int uses = 0;
    uint64_t bytes = 0;  // of the host's memory, while it is loaded
    Clock::time_point last_use;
    std::optional<KeepAlive> keep_alive;
    std::string error;
    double progress = 0.0;
    std::deque<std::shared_ptr<Waiter>> waiters;
  };
  using Lock = std::unique_lock<std::mutex>;

  static bool is_ready(const Entry& entry) {
    return entry.state == ModelState::kLoaded && !entry.leaves;
  }
  void refresh();
  Entry* resolve(const std::string& name);
  Entry* find_or_refresh(Lock& lock, const std::string& name);
  Entry* usual();
  ModelLease lease(Entry& entry, bool is_use = true);
  void give_back(Entry& entry, bool is_use);
  ModelStatus status_of(Entry& entry);
  void enqueue(Entry& entry);
  size_t count_waiting();

  // The thread's.
  void work();
  Entry* next_to_load();
  Entry* next_to_leave(Clock::time_point now);
  std::optional<Clock::time_point> leaves_at(const Entry& entry) const;
  void load_next(Lock& lock, Entry& entry);
  Result<std::unique_ptr<Context>> open(Entry& entry, const std::string& name);
  Status fit(Context& context, const std::string& name, uint64_t room);
  void tell(Entry& entry, double progress);
  void hand_out(Lock& lock, Entry& entry, const std::optional<ApiError>& error);
  void unload(Lock& lock, Entry& entry);
  uint64_t make_room(Entry& entry, const ModelRoom& room);
  void shrink_others(Lock& lock, Entry& entry, uint64_t goal);
  uint64_t held() const;
  uint64_t left() const;

  ServiceState& state_;
  const ModelsOptions options_;
  std::atomic<bool> is_loading_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::vector<Entry*> order_;                  // as the catalog has them
  std::map<std::string, std::string> copies_;  // further names
  std::deque<Entry*> queue_;                   // to be loaded
  SchedulerCounters past_texts_;
  ModelCounters past_counters_;
  bool refuses_ = false;
  std::stop_source stop_;
  JobThread pulls_;
  std::jthread thread_;  // last: it uses all of it
};

}  // namespace moeflux::serve
