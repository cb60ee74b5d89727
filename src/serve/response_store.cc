#include "serve/response_store.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace moeflux::serve {

namespace {

// It was written here: nothing in it can be wrong.
Json parsed(const std::string& text) { return Json::parse(text, nullptr, false); }

}  // namespace

StoredTurn::StoredTurn(std::string input, std::string response,
                       std::shared_ptr<const StoredTurn> previous,
                       std::shared_ptr<std::atomic<size_t>> counted)
    : input_(std::move(input)),
      response_(std::move(response)),
      previous_(std::move(previous)),
      counted_(std::move(counted)) {
  *counted_ += input_.size() + response_.size();
}

StoredTurn::~StoredTurn() {
  *counted_ -= input_.size() + response_.size();
  // A long conversation would otherwise be destroyed by as many calls within each other.
  std::shared_ptr<const StoredTurn> next = std::move(previous_);
  while (next != nullptr && next.use_count() == 1) {
    std::shared_ptr<const StoredTurn> after = std::move(next->previous_);
    next = std::move(after);
  }
}

Json StoredTurn::input() const { return parsed(input_); }

Json StoredTurn::response() const { return parsed(response_); }

Json StoredTurn::conversation() const {
  std::vector<const StoredTurn*> turns;
  for (const StoredTurn* turn = this; turn != nullptr; turn = turn->previous_.get()) {
    turns.push_back(turn);
  }
  std::reverse(turns.begin(), turns.end());
  Json items = Json::array();
  for (const StoredTurn* turn : turns) {
    Json input = turn->input();
    for (Json& item : input) items.push_back(std::move(item));
    Json response = turn->response();
    const auto output = response.find("output");
    if (output == response.end()) continue;
    for (Json& item : *output) items.push_back(std::move(item));
  }
  return items;
}

std::shared_ptr<const StoredTurn> ResponseStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(id);
  if (found == kept_.end()) return nullptr;
  found->second.last_use = ++uses_;
  return found->second.turn;
}

void ResponseStore::trim(const std::string& newest) {
  while (*bytes_ > bytes_max_ && kept_.size() > 1) {
    auto oldest = kept_.end();
    for (auto one = kept_.begin(); one != kept_.end(); ++one) {
      if (one->first == newest) continue;
      if (oldest == kept_.end() || one->second.last_use < oldest->second.last_use) oldest = one;
    }
    kept_.erase(oldest);
  }
  if (*bytes_ > bytes_max_) kept_.erase(newest);
}

void ResponseStore::keep(const std::string& id, std::string input, std::string response,
                         std::shared_ptr<const StoredTurn> previous) {
  auto turn = std::make_shared<const StoredTurn>(std::move(input), std::move(response),
                                                 std::move(previous), bytes_);
  const std::lock_guard lock(mutex_);
  kept_[id] = {.turn = std::move(turn), .last_use = ++uses_};
  trim(id);
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return kept_.erase(id) > 0;
}

}  // namespace moeflux::serve
