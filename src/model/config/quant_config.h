// How config.json says that weights are quantised: MLX's "quantization" section, with overrides per
// module, or the rule of another tool's "quantization_config".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/config/quant_rule.h"
#include "quant/format.h"

namespace moeflux {

class Config;

/// MLX's modes.
enum class QuantMode : uint8_t { kAffine, kMxfp4, kMxfp8, kNvfp4 };

struct ModuleQuant {
  int bits = 4;
  int group_size = 64;
  QuantMode mode = QuantMode::kAffine;
  /// With scales of that type, if it is affine.
  QuantFormat format(DType scales) const;
  /// "affine-4/64", "mxfp4".
  std::string to_string() const;
  friend bool operator==(const ModuleQuant&, const ModuleQuant&) = default;
};

class QuantConfig {
 public:
  /// Reads `quantization`, or `quantization_config`, which may be of the same form or name another
  /// tool's method. Neither present: an empty config. Unknown methods, formats and modes are
  /// kUnsupported by name.
  static Result<QuantConfig> read(const Config& config);

  /// MLX's format of a module (full path without ".weight"); nullopt when it has none, or the
  /// config says that the module is not quantised.
  std::optional<ModuleQuant> lookup(std::string_view module) const;
  /// The rule of another tool; its method is "mlx" where the section is MLX's, empty where there is
  /// no section.
  const QuantRule& rule() const { return rule_; }

 private:
  std::optional<ModuleQuant> global_;
  std::map<std::string, std::optional<ModuleQuant>, std::less<>> overrides_;
  QuantRule rule_;
};

}  // namespace moeflux
