// The "quantization" section of an MLX config.json: global bits and group size, with overrides per
// module.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace moeflux {

struct ModuleQuant {
  int bits = 4;
  int group_size = 64;
  /// "affine-4/64".
  std::string to_string() const;
  friend bool operator==(const ModuleQuant&, const ModuleQuant&) = default;
};

class QuantConfig {
 public:
  /// Reads `quantization`, or `quantization_config` in the same form. Neither present: an empty
  /// config. Another quantisation method (fp8, awq, mxfp4 ...) or mode is kUnsupported by name.
  static Result<QuantConfig> read(const Config& config);

  /// The config's format of a module (full path without ".weight"); nullopt when it has none, or
  /// says that the module is not quantised.
  std::optional<ModuleQuant> lookup(std::string_view module) const;

 private:
  std::optional<ModuleQuant> global_;
  std::map<std::string, std::optional<ModuleQuant>, std::less<>> overrides_;
};

}  // namespace moeflux
