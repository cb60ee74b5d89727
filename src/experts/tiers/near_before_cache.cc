#include "experts/tiers/near_before_cache.h"

#include "base/check.h"

namespace moeflux {

bool may_leave_for_near(const ExpertCache& cache, ExpertKey key) {
  const auto slot = cache.find(key);
  return slot && cache.admission_of(*slot) == Admission::kCached;
}

void NearBeforeCache::begin_step(std::span<const StepRows> rows, Encoder& encoder,
                                 size_t coming_elsewhere) {
  near_.settle(encoder, [&](const NearPlacement::Move& move, ExpertPin pin) {
    MF_CHECK(pin && cache_.find(move.in) == pin.slot());  // this expert was copied
    cache_.let_go(pin.slot());
    pin.release();
  });
  start_moves(encoder, coming_elsewhere);
  for (int64_t i = 0; i < decoded_rows(rows); ++i) near_.placement().begin_token();
}

void NearBeforeCache::start_moves(Encoder& encoder, size_t coming_elsewhere) {
  const size_t most = cache_.slot_limit() / kSlotsPerMove;
  const size_t coming = near_.num_coming() + coming_elsewhere;
  if (coming >= most) return;
  const auto moves = near_.placement().choose_moves(
      most - coming, [&](ExpertKey key) { return may_leave_for_near(cache_, key); });
  near_.start(encoder, moves, [&](ExpertKey key) {
    const ExpertCache::Slot slot = *cache_.find(key);
    return NearSlots::Source{&cache_.buffer(), cache_.offset_of(slot), ExpertPin(cache_, slot)};
  });
}

void NearBeforeCache::visit(std::span<const LayerRoutes> routes, std::span<const int32_t> ids,
                            bool helped, std::vector<ExpertWeights>& near) {
  const LayerId layer = routes.front().layer;
  using enum NearSlots::FarReader;
  const auto reader = helped ? kHelper : kDevice;
  for (const LayerRoutes& part : routes) {
    near_.note(layer, part.phase, part.ids, part.tokens, reader);
  }
  distinct_ids(ids, ids_);
  near.clear();
  for (const int32_t id : ids_) {
    if (const auto expert = near_.find({layer, ExpertId{id}})) near.push_back(*expert);
  }
}

}  // namespace moeflux
