#include "serve/kept/keeper.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace moeflux::serve {
namespace {

constexpr size_t kNameMax = 64;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// OWNER.NAME, or NAME.
bool is_shelf_name(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return is_kept_name(text);
  return is_kept_name(text.substr(0, dot)) && is_kept_name(text.substr(dot + 1));
}

}  // namespace

bool is_kept_name(std::string_view name) {
  if (name.empty() || name.size() > kNameMax || !is_alphanumeric(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_' || c == '-'; });
}

std::string owned_text(std::string_view owner, std::string_view name) {
  return owner.empty() ? std::string(name) : formatted("{}.{}", owner, name);
}

void KeptAnswer::when_deleted(std::function<void()> end) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_deleted_) {
      end_ = std::move(end);
      return;
    }
  }
  end();
}

void KeptAnswer::be_deleted() {
  std::function<void()> end;
  {
    const std::lock_guard lock(mutex_);
    is_deleted_ = true;
    end.swap(end_);
  }
  if (end) end();
}

std::unique_ptr<ShelfClaim> KeptAnswer::take_claim() {
  const std::lock_guard lock(mutex_);
  return std::move(claim_);
}

// A process that revokes the claim erases afterwards what is there: so either that is this text, or
// this sees it after its own writing.
Status KeptAnswer::keep(std::string_view text) {
  const auto deleted = [&] {
    return make_error(ErrorCode::kCancelled, "{} was deleted", name_.name);
  };
  if (!is_held()) return deleted();
  const Status kept = keep_text(shelf_, name_.text(), text);
  const bool is_late = kept.ok() && !is_held();
  if (is_late) (void)shelf_.erase(name_.text());
  take_claim();  // the client may go on from it as soon as it has heard the end
  return is_late ? Status(deleted()) : kept;
}

bool KeptAnswer::is_held() {
  const std::lock_guard lock(mutex_);
  return !is_deleted_ && (!claim_ || claim_->is_held());
}

Result<std::unique_ptr<Keeper>> Keeper::open(const std::string& directory,
                                             const ShelfLimits& limits, Elsewhere elsewhere) {
  MF_ASSIGN_OR_RETURN(
      std::unique_ptr<Shelf> shelf,
      Shelf::open({.limits = limits, .directory = directory, .is_name = is_shelf_name}));
  return std::unique_ptr<Keeper>(new Keeper(std::move(shelf), elsewhere));
}

// A client's name has no dot, and so none that stands for another owner's.
Result<std::string> Keeper::find(const OwnedName& name) {
  if (is_kept_name(name.name)) return find_text(*shelf_, name.text());
  return make_error(ErrorCode::kNotFound, "nothing is stored under the name {}", name.name);
}

Status Keeper::keep(const OwnedName& name, std::string_view text) {
  MF_ASSIGN_OR_RETURN(const auto claim, shelf_->claim(name.text()));
  return keep_text(*shelf_, name.text(), text);
}

Result<std::shared_ptr<KeptAnswer>> Keeper::go_on(const OwnedName& name) {
  if (!is_kept_name(name.name)) {
    return make_error(ErrorCode::kNotFound, "nothing is stored under the name {}", name.name);
  }
  MF_ASSIGN_OR_RETURN(std::unique_ptr<ShelfClaim> claim, shelf_->claim(name.text()));
  return add(name, std::move(claim));
}

// A name that is nobody else's is claimed for other processes to see that it is to come. Where that
// cannot be, neither can what is kept be written, which says why.
std::shared_ptr<KeptAnswer> Keeper::begin(const OwnedName& name) {
  auto claim = shelf_->claim(name.text());
  return add(name, claim.ok() ? std::move(claim).value() : nullptr);
}

std::shared_ptr<KeptAnswer> Keeper::add(const OwnedName& name, std::unique_ptr<ShelfClaim> claim) {
  auto answer = std::make_shared<KeptAnswer>(*shelf_, name, std::move(claim));
  const std::lock_guard lock(mutex_);
  std::erase_if(answers_, [](const auto& one) { return one.second.expired(); });
  answers_[name.text()] = answer;
  return answer;
}

void Keeper::erase(const OwnedName& name, JobThread& jobs,
                   std::function<void(const Status&)> told) {
  std::shared_ptr<KeptAnswer> answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = answers_.find(name.text());
    if (found != answers_.end()) {
      answer = found->second.lock();
      answers_.erase(found);
    }
  }
  if (answer) answer->be_deleted();
  jobs.add([this, name, answer, told = std::move(told)] {
    if (!is_kept_name(name.name)) {
      return told(
          make_error(ErrorCode::kNotFound, "nothing is stored under the name {}", name.name));
    }
    const Status erased = erase_from_shelf(name.text(), answer ? answer->take_claim() : nullptr);
    const bool had_none = !erased.ok() && erased.error().code() == ErrorCode::kNotFound;
    told(had_none && answer ? Status() : erased);
  });
}

Status Keeper::erase_from_shelf(const std::string& name, std::unique_ptr<ShelfClaim> claim) {
  if (claim) return shelf_->erase(name);
  auto taken = shelf_->claim(name);
  if (taken.ok()) return shelf_->erase(name);
  const bool is_busy = taken.error().code() == ErrorCode::kFailedPrecondition;
  if (!is_busy || elsewhere_ == Elsewhere::kIsBusy) return taken.error();
  const Status revoked = shelf_->revoke(name);
  const Status erased = shelf_->erase(name);
  const bool had_none = !erased.ok() && erased.error().code() == ErrorCode::kNotFound;
  return revoked.ok() && had_none ? Status() : erased;
}

Result<std::vector<ShelfItem>> Keeper::list(const std::string& owner) {
  MF_ASSIGN_OR_RETURN(const std::vector<ShelfItem> all, shelf_->list());
  std::vector<ShelfItem> own;
  for (ShelfItem item : all) {
    const size_t dot = item.name.find('.');
    const bool has_owner = dot != std::string::npos;
    if ((has_owner ? item.name.substr(0, dot) : std::string()) != owner) continue;
    if (has_owner) item.name.erase(0, dot + 1);
    own.push_back(std::move(item));
  }
  return own;
}

}  // namespace moeflux::serve
