// Options of llama.cpp that this program lacks, and the answer to each: what to use instead, or
// why it is taken and does nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace moeflux {

enum class ForeignEffect : uint8_t { kRefused, kIgnored };
/// The value behind the name: nothing, a value, or perhaps on, off or auto.
enum class ForeignValue : uint8_t { kNone, kOne, kSwitch };

struct ForeignOption {
  std::string_view names;  // with commas between
  ForeignEffect effect;
  ForeignValue value;
  std::string_view text;
};

/// All of them.
std::span<const ForeignOption> foreign_options();

/// By a name with its dashes; null for a name that llama.cpp has not either.
const ForeignOption* find_foreign_option(std::string_view name);

}  // namespace moeflux
