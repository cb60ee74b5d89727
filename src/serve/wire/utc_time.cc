#include "serve/wire/utc_time.h"

#include <ctime>

#include "base/format.h"

namespace moeflux::serve {

std::string utc_text(std::chrono::system_clock::time_point time) {
  using std::chrono::microseconds;
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(whole);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return formatted("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900,
                   parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                   std::chrono::duration_cast<microseconds>(time - whole).count());
}

}  // namespace moeflux::serve
