// A prompt's experts on their way through a device's memory: a few waves of slots, into which
// copies run ahead of the layers that compute with them. The device orders copies and work; the
// host only asks for both.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "base/ids.h"
#include "experts/expert_table.h"

namespace moeflux {

/// Thread-compatible.
class ExpertRing {
 public:
  /// An expert in memory of the host that the device reaches.
  struct Source {
    ExpertKey key;
    const Buffer* buffer = nullptr;
    uint64_t offset = 0;
  };

  /// `buffer` has room for `waves` times `wave` slots of slot_bytes. The table must outlive it.
  ExpertRing(const ExpertTable& table, std::unique_ptr<Buffer> buffer, size_t slot_bytes,
             size_t wave, size_t waves);

  size_t wave() const { return wave_; }
  /// A step begins that goes through these experts, layer by layer: the first copies start.
  void begin(Encoder& encoder, std::span<const Source> sources);
  /// The next experts, at most a wave, of this layer; empty when it has no more. Work
  /// recorded from now on waits for them. Only work recorded since the last call reads the
  /// wave before.
  std::span<const ExpertWeights> next(Encoder& encoder, LayerId layer);
  /// Work recorded from now on may write to memory(): a step may have ended before it took all that
  /// was on its way.
  void settle(Encoder& encoder);
  /// False from begin() to settle().
  bool is_settled() const { return waves_.empty(); }
  Buffer& memory() { return *buffer_; }
  uint64_t bytes_copied() const { return bytes_copied_; }

 private:
  struct Place {
    EventId free_after{};  // when its slots may be written to
    CopyId arrives{};
  };
  struct Wave {
    size_t begin = 0;  // among the sources
    size_t count = 0;
  };

  size_t slot_of(size_t wave, size_t i) const { return (wave % places_.size()) * wave_ + i; }
  void start_copies(Encoder& encoder);

  const ExpertTable& table_;
  std::unique_ptr<Buffer> buffer_;
  size_t slot_bytes_;
  size_t wave_;
  std::vector<Place> places_;  // by wave, modulo
  std::vector<Source> sources_;
  std::vector<Wave> waves_;
  size_t started_ = 0;  // waves whose copies have been asked for,
  size_t given_ = 0;    // that next() has given,
  size_t read_ = 0;     // and of which all readers are recorded
  std::vector<BufferCopy> copies_;
  std::vector<ExpertWeights> given_experts_;
  uint64_t bytes_copied_ = 0;
};

}  // namespace moeflux
