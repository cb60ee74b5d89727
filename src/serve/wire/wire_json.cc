#include "serve/wire/wire_json.h"

#include "base/format.h"

namespace moeflux::serve {

std::string dump_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string data_frame(const Json& json) { return formatted("data: {}\n\n", dump_json(json)); }

std::string event_frame(std::string_view event, const Json& json) {
  return formatted("event: {}\ndata: {}\n\n", event, dump_json(json));
}

std::string json_line(const Json& json) { return dump_json(json) + "\n"; }

}  // namespace moeflux::serve
