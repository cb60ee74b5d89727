// Texts that clients have kept under names, each of them its owner's, and the answers that are to
// become such texts: who deletes a name ends the answer that is on its way there. Knows nothing of
// what texts say.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/kept/job_thread.h"
#include "store/shelf.h"

namespace moeflux::serve {

/// A client's name for an object that it stores: up to 64 letters, digits, '_' and '-', the first
/// of them a letter or digit.
bool is_kept_name(std::string_view name);

/// A name among those of all owners. Nobody's is that of servers without keys.
std::string owned_text(std::string_view owner, std::string_view name);

/// A client's name for what it keeps, and whose it is: see Request::owner.
struct OwnedName {
  std::string owner;
  std::string name;
  /// The name on the shelf.
  std::string text() const { return owned_text(owner, name); }
};

class KeptAnswer {
 public:
  KeptAnswer(Shelf& shelf, OwnedName name, std::unique_ptr<ShelfClaim> claim)
      : shelf_(shelf), name_(std::move(name)), claim_(std::move(claim)) {}

  /// The function that ends the answer when its name is deleted; called at once if it was.
  void when_deleted(std::function<void()> end);
  /// Keeps the text, once, and gives the name free. On the thread of Keeper::erase(). Fails with
  /// kCancelled where the name was deleted meanwhile, and as Shelf::keep().
  Status keep(std::string_view text);

 private:
  friend class Keeper;
  void be_deleted();
  std::unique_ptr<ShelfClaim> take_claim();
  bool is_held();

  Shelf& shelf_;
  const OwnedName name_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ShelfClaim> claim_;
  bool is_deleted_ = false;
  std::function<void()> end_;
};

/// The effect of deleting a name while another process has an answer on its way there.
enum class Elsewhere : uint8_t {
  kIsBusy,  // fails
  kEnds,    // the answer is not kept when it ends
};

/// Thread-safe.
class Keeper {
 public:
  /// In `directory`, or in memory where that is empty. Fails as Shelf::open().
  static Result<std::unique_ptr<Keeper>> open(const std::string& directory,
                                              const ShelfLimits& limits, Elsewhere elsewhere);

  Result<std::string> find(const OwnedName& name);
  /// Fails as Shelf::keep(), with kFailedPrecondition while somebody else has the name.
  Status keep(const OwnedName& name, std::string_view text);
  /// An answer that goes on from what is kept there, and replaces it: nobody else may meanwhile.
  /// Fails as Shelf::claim().
  Result<std::shared_ptr<KeptAnswer>> go_on(const OwnedName& name);
  /// An answer that is to be kept under a name that is nobody else's.
  std::shared_ptr<KeptAnswer> begin(const OwnedName& name);
  /// Ends the answer on its way there, removes what is kept, and tells of it on the thread of
  /// `jobs`, where answers end: so none is kept later. kNotFound where there was neither, kIo, or
  /// kFailedPrecondition while another process has the name and need not give it up.
  void erase(const OwnedName& name, JobThread& jobs, std::function<void(const Status&)> told);
  /// The owner's, by their names.
  Result<std::vector<ShelfItem>> list(const std::string& owner);
  /// For people.
  std::string place_of(const OwnedName& name) const { return shelf_->place_of(name.text()); }

 private:
  Keeper(std::unique_ptr<Shelf> shelf, Elsewhere elsewhere)
      : shelf_(std::move(shelf)), elsewhere_(elsewhere) {}
  Status erase_from_shelf(const std::string& name, std::unique_ptr<ShelfClaim> claim);
  std::shared_ptr<KeptAnswer> add(const OwnedName& name, std::unique_ptr<ShelfClaim> claim);

  const std::unique_ptr<Shelf> shelf_;
  const Elsewhere elsewhere_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, std::weak_ptr<KeptAnswer>> answers_;
};

}  // namespace moeflux::serve
