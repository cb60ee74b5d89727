// A step of one sequence, for operations along sequences.
#pragma once

#include <cstdint>
#include <span>

#include "backend/sequence_rows.h"

namespace moeflux::testing {

/// A list of one, for the expression that it is made in.
template <typename Sequence>
class OneSequence {
 public:
  explicit OneSequence(const Sequence& sequence) : sequence_(sequence) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator std::span<const Sequence>() const { return {&sequence_, 1}; }

 private:
  Sequence sequence_;
};

inline OneSequence<KvRows> one_sequence(int64_t rows, const KvView& kv) {
  return OneSequence(KvRows{rows, kv});
}
inline OneSequence<StateRows> one_sequence(int64_t rows, const Tensor& state) {
  return OneSequence(StateRows{rows, state});
}

}  // namespace moeflux::testing
