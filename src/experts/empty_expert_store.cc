// A store that delivers nothing, for dry runs and models without experts.
#include "experts/expert_store.h"
#include "experts/whole_lease.h"

namespace moeflux {
namespace {

class EmptyExpertStore : public ExpertStore {
 public:
  Result<std::unique_ptr<ExpertLease>> lease(LayerId, Encoder&, const Routes&) override {
    return std::unique_ptr<ExpertLease>(std::make_unique<WholeLease>());
  }
  ExpertStats stats() const override { return {}; }
  uint64_t capacity_bytes() const override { return 0; }
};

}  // namespace

std::unique_ptr<ExpertStore> make_empty_expert_store() {
  return std::make_unique<EmptyExpertStore>();
}

}  // namespace moeflux
