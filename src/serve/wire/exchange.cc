#include "serve/wire/exchange.h"

namespace moeflux::serve {

std::string_view header(const Request& request, std::string_view name) {
  for (const auto& [key, value] : request.headers) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace moeflux::serve
