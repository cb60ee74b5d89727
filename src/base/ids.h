// Index types that must not be interchanged.
#pragma once

#include <cstdint>

namespace moeflux {

enum class LayerId : int32_t {};
enum class ExpertId : int32_t {};
using TokenId = int32_t;
/// A state that a sequence may return to.
enum class CheckpointId : uint64_t {};

constexpr int32_t index(LayerId id) { return static_cast<int32_t>(id); }
constexpr int32_t index(ExpertId id) { return static_cast<int32_t>(id); }

/// One routed expert of one layer.
struct ExpertKey {
  LayerId layer{};
  ExpertId expert{};
  friend bool operator==(ExpertKey, ExpertKey) = default;
};

}  // namespace moeflux
