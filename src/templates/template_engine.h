// A chat template as a program: Jinja text to a function from variables to text. Knows nothing of
// messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

/// A local time, as strftime_now shows it.
struct TemplateTime {
  int32_t year = 1970;
  int32_t month = 1;  // from 1
  int32_t day = 1;    // from 1
  int32_t hour = 0;
  int32_t minute = 0;
  int32_t second = 0;
  int32_t weekday = 4;      // days since Sunday
  int32_t day_of_year = 0;  // from 0
};
/// This machine's.
TemplateTime local_time_now();

/// Limits of one rendering. A template is a program of whoever made the model. Beside these, its
/// values may take 256 MiB, have a million elements and 200 levels.
struct TemplateLimits {
  /// Roughly operations, and one for every 64 bytes that are made. A thousand messages take some
  /// hundred thousand. Never more than six million and one for every byte of the variables.
  uint64_t fuel = 20'000'000;
  uint64_t output_bytes_max = uint64_t{64} << 20;
  uint64_t milliseconds_max = 10'000;
};

/// Immutable; threads may share one.
class TemplateEngine {
 public:
  virtual ~TemplateEngine() = default;
  /// `variables` is an object. Fails with kInvalidArgument, with the template's own words where it
  /// raised an exception and the line where anything else went wrong, and with kResourceExhausted
  /// over a limit.
  virtual Result<std::string> render(const Json& variables, const TemplateTime& now,
                                     const TemplateLimits& limits) const = 0;
};

/// False in a build without Rust.
bool has_template_engine();

/// Compiles Jinja text of at most 1 MiB. `what` names it in messages. Fails with kInvalidArgument
/// and a line, and with kUnsupported in a build without Rust.
Result<std::unique_ptr<TemplateEngine>> compile_template(std::string_view text,
                                                         std::string_view what);

}  // namespace moeflux
