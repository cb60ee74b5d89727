// This machine's clock, for strftime_now.
#include <ctime>

#include "templates/template_engine.h"

namespace moeflux {

TemplateTime local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return {};
  return {.year = local.tm_year + 1900,
          .month = local.tm_mon + 1,
          .day = local.tm_mday,
          .hour = local.tm_hour,
          .minute = local.tm_min,
          .second = local.tm_sec,
          .weekday = local.tm_wday,
          .day_of_year = local.tm_yday};
}

}  // namespace moeflux
