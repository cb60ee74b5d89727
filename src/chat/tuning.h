// "key=value,...": settings that change speed, never results, but for the CPU's instruction set and
// precision. For those who measure: keys come and go with versions.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "chat/drafts/draft_options.h"
#include "devices/open_device.h"
#include "engine/engine.h"

namespace moeflux {

struct TuningKey {
  std::string_view name;
  std::string_view values;   // as documents and messages show them
  std::string_view without;  // the value where nobody gives one
  std::string_view help;
};

/// The options that keys set.
struct TuningTarget {
  DeviceOptions& device;
  EngineOptions& engine;
  DraftOptions& drafts;
};

/// All keys, by name.
std::span<const TuningKey> tuning_keys();

/// Sets what `text` names, in order; "" sets nothing. "_" in a key is "-". Fails with
/// kInvalidArgument for a key that does not exist, naming the nearest, and for a value that it does
/// not take; the options may then have changed.
Status apply_tuning(std::string_view text, const TuningTarget& target);

/// One of them; an error does not repeat the key.
Status set_tuning(std::string_view key, std::string_view value, const TuningTarget& target);

}  // namespace moeflux
