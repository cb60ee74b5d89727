// Decides which experts lie in a device's own memory while all of them lie in the host's: how much
// each is used, and which ought to change places. Knows routes and slots; knows nothing of bytes.
// Thread-compatible.
//
// A slot is empty, or an expert is on its way into it, or is there. An expert's score is its uses
// in decode, each weighted by decay to the power of the tokens since. An expert that is used comes
// into an empty slot. Into another's only with `margin` times its score, so that copies stay few:
// with a decay of 0.97 and twice the score, recorded routes hit as often as if every absent expert
// were brought, with a tenth of the copies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/cache/eviction_policy.h"
#include "experts/expert_map.h"

namespace moeflux {

struct NearPlacementOptions {
  double decay = 0.97;  // of a use for each further token
  double margin = 2.0;  // times the score of whom a newcomer displaces
  /// Weight of a prompt's routing against as many tokens of decode as are remembered.
  double prompt_weight = 0.25;
  int32_t moves_per_layer = 2;  // at once, unless slots are empty
};

/// One move for so many experts that were read over the bus, which moves share with those reads.
constexpr uint64_t kFarReadsPerMove = 16;
/// The moves worth making after a step that noted so many of them: some always, more after a
/// prompt, which tells much at once.
uint64_t moves_after_step(bool with_prompt, uint64_t far_reads);

class NearPlacement {
 public:
  using Slot = uint32_t;
  /// An expert that comes into a slot, and who leaves it.
  struct Move {
    ExpertKey in;
    std::optional<ExpertKey> out;
    Slot slot = 0;
  };

  NearPlacement(const ExpertShape& shape, size_t num_slots, const NearPlacementOptions& options);

  size_t num_slots() const { return slots_.size(); }
  /// The slot of an expert that is there.
  std::optional<Slot> slot_of(ExpertKey key) const;

  /// The next token of decode.
  void begin_token();
  /// It chose these experts of the layer.
  void note_use(LayerId layer, std::span<const int32_t> experts);
  /// All choices of `tokens` tokens of a prompt in the layer.
  void note_prompt(LayerId layer, std::span<const int32_t> experts, int64_t tokens);

  /// An earlier run's uses: `uses[e]` is what a use for each expert of the layer weighs at once.
  /// Nobody comes because of it alone.
  void seed(LayerId layer, std::span<const double> uses);
  /// Sorts by score, best first; equal ones stay in their order.
  void rank(std::vector<ExpertKey>& experts) const;
  const ExpertShape& shape() const { return shape_; }
  /// Uses in decode that were noted, by shape().index_of(key), and how many tokens had them.
  std::span<const uint64_t> uses() const { return uses_; }
  uint64_t tokens() const { return tokens_; }
  /// Marks the experts that are there; uses are its own counts unless a cache has set them.
  void describe(ExpertMap& map) const;

  /// Puts an expert into an empty slot, on its way; nullopt without one.
  std::optional<Slot> fill(ExpertKey key);
  /// At most so many moves, best first, of experts noted since the last call that `may_come`
  /// allows. Experts that leave are gone; experts that come are on their way.
  std::span<const Move> choose_moves(
      size_t most, const std::function<bool(ExpertKey)>& may_come = [](ExpertKey) { return true; });
  /// The expert on its way into the slot is there.
  void arrived(Slot slot);

 private:
  enum class State : uint8_t { kEmpty, kComing, kThere };
  struct Entry {
    ExpertKey key;
    State state = State::kEmpty;
  };
  static constexpr Slot kNoSlot = UINT32_MAX;

  void note(ExpertKey key, double weight);
  void list_victims(size_t most);
  void put(ExpertKey key, Slot slot);

  ExpertShape shape_;
  NearPlacementOptions options_;
  double use_ = 1.0;            // a use of this token; grows instead of all scores decaying
  std::vector<double> scores_;  // by expert
  std::vector<uint64_t> uses_;  // by expert
  uint64_t tokens_ = 0;
  std::vector<Slot> slot_of_;      // by expert; kNoSlot unless on its way or there
  std::vector<uint8_t> is_noted_;  // by expert: among newcomers_
  std::vector<ExpertKey> newcomers_;
  std::vector<Entry> slots_;
  size_t filled_ = 0;              // slots before this one are not empty
  std::vector<Slot> victims_;      // worth least first
  std::vector<int32_t> moves_of_;  // by layer
  std::vector<Move> moves_;
};

}  // namespace moeflux
