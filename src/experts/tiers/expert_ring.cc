#include "experts/tiers/expert_ring.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moeflux {

ExpertRing::ExpertRing(const ExpertTable& table, std::unique_ptr<Buffer> buffer, size_t slot_bytes,
                       size_t wave, size_t waves)
    : table_(table),
      buffer_(std::move(buffer)),
      slot_bytes_(slot_bytes),
      wave_(wave),
      places_(waves) {
  MF_CHECK(wave > 0 && waves > 0 && buffer_->size_bytes() >= wave * waves * slot_bytes);
}

void ExpertRing::begin(Encoder& encoder, std::span<const Source> sources) {
  MF_CHECK(is_settled());
  sources_.assign(sources.begin(), sources.end());
  for (size_t i = 0; i < sources_.size(); ++i) {
    const bool goes_on = !waves_.empty() && waves_.back().count < wave_ &&
                         sources_[i].key.layer == sources_[waves_.back().begin].key.layer;
    if (!goes_on) waves_.push_back({i, 0});
    ++waves_.back().count;
  }
  // A step before this one may have ended anywhere.
  const EventId now = encoder.submit();
  for (Place& place : places_) place.free_after = now;
  started_ = given_ = read_ = 0;
  start_copies(encoder);
}

// Copies come after those of earlier calls: none of them has to be known, and memory may have run
// out while one was asked for.
void ExpertRing::settle(Encoder& encoder) {
  if (given_ < waves_.size()) encoder.await_copies(encoder.copy_beside({}, encoder.submit()));
  started_ = given_ = read_ = 0;
  waves_.clear();
}

void ExpertRing::start_copies(Encoder& encoder) {
  while (started_ < waves_.size() && started_ < read_ + places_.size()) {
    const Wave& wave = waves_[started_];
    MF_CHECK(wave.count <= wave_);
    copies_.clear();
    for (size_t i = 0; i < wave.count; ++i) {
      const Source& source = sources_[wave.begin + i];
      copies_.push_back({.to = buffer_.get(),
                         .to_offset = slot_of(started_, i) * slot_bytes_,
                         .from = source.buffer,
                         .from_offset = source.offset,
                         .bytes = table_.layer(source.key.layer).slot_bytes});
      bytes_copied_ += copies_.back().bytes;
    }
    Place& place = places_[started_ % places_.size()];
    place.arrives = encoder.copy_beside(copies_, place.free_after);
    ++started_;
  }
}

std::span<const ExpertWeights> ExpertRing::next(Encoder& encoder, LayerId layer) {
  if (read_ < given_) {
    places_[read_ % places_.size()].free_after = encoder.submit();
    ++read_;
    start_copies(encoder);
  }
  if (given_ == waves_.size() || sources_[waves_[given_].begin].key.layer != layer) return {};
  const Wave& wave = waves_[given_];
  MF_CHECK(given_ == read_ && given_ < started_);  // all that read the wave before is recorded
  encoder.await_copies(places_[given_ % places_.size()].arrives);
  given_experts_.clear();
  for (size_t i = 0; i < wave.count; ++i) {
    const ExpertKey key = sources_[wave.begin + i].key;
    given_experts_.push_back(
        table_.layer(layer).weights(key.expert, *buffer_, slot_of(given_, i) * slot_bytes_));
  }
  ++given_;
  return given_experts_;
}

}  // namespace moeflux
