#include "store/shelf.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/format.h"
#include "store/folder_shelf.h"

namespace moeflux {
namespace {

class MemoryShelf final : public Shelf {
 public:
  explicit MemoryShelf(ShelfOptions options) : options_(std::move(options)) {}

  Result<Bytes> find(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(name);
    if (found == kept_.end()) return unknown(name);
    use_locked(found->second);
    return found->second.bytes;
  }

  Status keep(const std::string& name, std::vector<std::byte> bytes,
              const std::vector<std::string>& replaced) override {
    const std::lock_guard lock(mutex_);
    const auto old = kept_.find(name);
    const uint64_t others = bytes_ - (old == kept_.end() ? 0 : old->second.bytes->size());
    const size_t count = kept_.size() - (old == kept_.end() ? 0 : 1);
    MF_RETURN_IF_ERROR(check_room(options_.limits, bytes.size(), {others, count}));
    erase_locked(name);
    bytes_ += bytes.size();
    Kept& kept = kept_[name];
    kept.bytes = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    use_locked(kept);
    for (const std::string& one : replaced) {
      if (one != name) erase_locked(one);
    }
    while (bytes_ > options_.limits.bytes_max || kept_.size() > options_.limits.count_max) {
      erase_locked(std::ranges::min_element(kept_, {}, [](const auto& one) {
                     return one.second.use;
                   })->first);
    }
    return {};
  }

  void use(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(name);
    if (found != kept_.end()) use_locked(found->second);
  }

  Status erase(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    return erase_locked(name) ? Status() : Status(unknown(name));
  }

  Result<std::vector<ShelfItem>> list() override {
    const std::lock_guard lock(mutex_);
    std::vector<ShelfItem> all;
    for (const auto& [name, kept] : kept_) all.push_back({name, kept.bytes->size(), kept.used_ns});
    return all;
  }

  Result<std::unique_ptr<ShelfClaim>> claim(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    if (!claimed_.insert(name).second) return claimed_error(name);
    return std::unique_ptr<ShelfClaim>(std::make_unique<Claim>(*this, name));
  }

  // All claims are this process's.
  Status revoke(const std::string& name) override { return claimed_error(name); }

  std::string place_of(const std::string& name) const override { return name; }

 private:
  struct Kept {
    Bytes bytes;
    uint64_t use = 0;
    int64_t used_ns = 0;
  };

  class Claim final : public ShelfClaim {
   public:
    Claim(MemoryShelf& shelf, std::string name) : shelf_(shelf), name_(std::move(name)) {}
    ~Claim() override {
      const std::lock_guard lock(shelf_.mutex_);
      shelf_.claimed_.erase(name_);
    }

   private:
    MemoryShelf& shelf_;
    const std::string name_;
  };

  void use_locked(Kept& kept) {
    kept.use = ++uses_;
    kept.used_ns = options_.clock_ns();
  }

  bool erase_locked(const std::string& name) {
    const auto found = kept_.find(name);
    if (found == kept_.end()) return false;
    bytes_ -= found->second.bytes->size();
    kept_.erase(found);
    return true;
  }

  const ShelfOptions options_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Kept> kept_;
  std::set<std::string> claimed_;
  uint64_t bytes_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace

Result<std::unique_ptr<Shelf>> Shelf::open(ShelfOptions options) {
  if (!options.directory.empty()) return open_folder_shelf(std::move(options));
  return std::unique_ptr<Shelf>(std::make_unique<MemoryShelf>(std::move(options)));
}

Error Shelf::unknown(const std::string& name) {
  return make_error(ErrorCode::kNotFound, "nothing is stored under the name {}", name);
}

Error Shelf::claimed_error(const std::string& name) {
  return make_error(ErrorCode::kFailedPrecondition, "{} is in use", name);
}

Status Shelf::check_room(const ShelfLimits& limits, uint64_t bytes, const Others& others) {
  const bool has_room = limits.makes_room || (others.bytes + bytes <= limits.bytes_max &&
                                              others.count < limits.count_max);
  if (has_room && bytes <= limits.bytes_max && limits.count_max > 0) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    "{} bytes have no room beside {} others of {} bytes (at most {} of {} bytes)",
                    bytes, others.count, others.bytes, limits.count_max, limits.bytes_max);
}

Result<std::string> find_text(Shelf& shelf, const std::string& name) {
  MF_ASSIGN_OR_RETURN(const Shelf::Bytes bytes, shelf.find(name));
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

Status keep_text(Shelf& shelf, const std::string& name, std::string_view text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  return shelf.keep(name, {bytes, bytes + text.size()});
}

}  // namespace moeflux
