// Recorded routes: those of an answer's tokens for its owner, and a trace of all texts for an
// administrator.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "serve/http/http_text.h"
#include "serve/native/handlers.h"
#include "serve/native/watching.h"
#include "serve/request/fields.h"

namespace moeflux::serve {
namespace {

constexpr int64_t kTraceBytesMax = int64_t{64} << 20;
constexpr int64_t kTraceSecondsMax = 3600;
constexpr int64_t kPointsMax = 32;

// A number of the query, or `absent`; nothing where it cannot be, which has been answered.
std::optional<int64_t> query_number(const Call& call, const char* name, Range<int64_t> range,
                                    int64_t absent) {
  const auto text = query_value(call.request.query, name);
  if (!text) return absent;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool is_number = error == std::errc() && end == text->data() + text->size();
  if (is_number && number >= range.low && number <= range.high) return number;
  call.fail(bad_field(name, formatted("{} is {}, expected a number of {} to {}", name,
                                      json_excerpt(Json(*text)), range.low, range.high)));
  return std::nullopt;
}

Json costs_json(const TokenRoutes& token) {
  return {{"position", token.position},
          {"read_bytes", token.read_bytes},
          {"bus_bytes", token.costs.bus_bytes},
          {"stall_us", token.costs.stall_us},
          {"step_us", token.costs.step_us}};
}

Json summary_json(const TokenRoutes& token) {
  Json json = costs_json(token);
  size_t misses = 0;
  for (const LayerChoice& layer : token.layers) misses += layer.missed.size();
  json["misses"] = misses;
  return json;
}

Json whole_json(const TokenRoutes& token) {
  Json json = costs_json(token);
  Json layers = Json::array();
  for (const LayerChoice& layer : token.layers) {
    layers.push_back({{"layer", index(layer.layer)},
                      {"experts", layer.experts},
                      {"weights", layer.weights},
                      {"missed", layer.missed}});
  }
  json["layers"] = std::move(layers);
  return json;
}

Json status_json(const TraceStatus& status) {
  return {{"recording", status.is_recording},
          {"full", status.is_full},
          {"bytes", status.bytes},
          {"seconds", status.seconds},
          {"model", status.model.empty() ? Json() : Json(status.model)},
          {"available", !status.model.empty() && !status.is_recording}};
}

ApiError no_trace() {
  return {.status = 409,
          .code = "no_trace",
          .message = "there is no trace: none was recorded, or the recording has not been stopped"};
}

}  // namespace

void answer_routes(Call& call) {
  const auto record = is_kept_name(call.id)
                          ? call.state.routes().find(owned_text(call.request.owner, call.id))
                          : nullptr;
  if (!record) {
    return call.fail({.status = 404,
                      .type = "not_found_error",
                      .message = formatted("no routes {} are recorded, or others have taken their "
                                           "place; ask with return_routes: true",
                                           json_excerpt(Json(call.id)))});
  }
  const std::vector<TokenRoutes> tokens = record->tokens();
  if (query_value(call.request.query, "token")) {
    const auto number = query_number(
        call, "token", {0, std::max<int64_t>(0, static_cast<int64_t>(tokens.size()) - 1)}, 0);
    if (!number) return;
    if (tokens.empty()) return call.fail(bad_field("token", "no token is recorded"));
    return call.answer(whole_json(tokens[static_cast<size_t>(*number)]));
  }
  Json layers = Json::array();
  Json list = Json::array();
  for (const TokenRoutes& token : tokens) list.push_back(summary_json(token));
  if (!tokens.empty()) {
    for (const LayerChoice& layer : tokens.front().layers) layers.push_back(index(layer.layer));
  }
  call.answer({{"id", call.id},
               {"layers", std::move(layers)},
               {"tokens", std::move(list)},
               {"dropped", record->dropped()}});
}

void trace_status(Call& call) {
  if (!check_admin(call)) return;
  call.answer(status_json(call.state.tracer().status()));
}

void start_trace(Call& call) {
  if (!check_admin(call)) return;
  Fields fields(call.body);
  const TraceLimits usual;
  const auto bytes = fields.integer("bytes_max", {1, kTraceBytesMax});
  const auto seconds = fields.integer("seconds_max", {1, kTraceSecondsMax});
  const auto name = fields.text("model");
  if (fields.problem()) return call.fail(*fields.problem());
  TakenModel taken = call.models.loaded(name.value_or(""));
  if (const auto* error = std::get_if<ApiError>(&taken)) return call.fail(*error);
  const auto& model = std::get<ModelLease>(taken);
  const RouteTraceHeader header =
      model ? model->model().engine->loaded().trace_header(model->options().model_name)
            : RouteTraceHeader();
  if (header.num_experts == 0) {
    return call.fail(
        {.status = 409, .code = "no_experts", .message = "no model with experts is loaded"});
  }
  TraceLimits limits;
  if (bytes) limits.bytes_max = static_cast<size_t>(*bytes);
  if (seconds) limits.time_max = std::chrono::seconds(*seconds);
  const auto observer = call.state.tracer().start(model->options().model_name, header, limits);
  if (observer.expired()) {
    return call.fail({.status = 409, .code = "trace_busy", .message = "a trace is being recorded"});
  }
  model->scheduler().trace_routes(observer);
  call.answer(status_json(call.state.tracer().status()));
}

void stop_trace(Call& call) {
  if (!check_admin(call)) return;
  call.state.tracer().stop();
  call.answer(status_json(call.state.tracer().status()));
}

void download_trace(Call& call) {
  if (!check_admin(call)) return;
  std::string text = call.state.tracer().text();
  if (text.empty()) return call.fail(no_trace());
  call.target.response->send(200,
                             {{"Content-Type", "text/csv; charset=utf-8"},
                              {"Content-Disposition", "attachment; filename=\"routes.csv\""}},
                             std::move(text));
}

void replay_trace(Call& call) {
  if (!check_admin(call)) return;
  const auto points = query_number(call, "points", {1, kPointsMax}, 8);
  if (!points) return;
  if (!call.state.page().replay) {
    return call.fail({.status = 404, .type = "not_found_error", .message = "nothing here replays"});
  }
  if (!call.may_take_long) {
    call.is_put_off = true;
    return;
  }
  const std::string text = call.state.tracer().text();
  if (text.empty()) return call.fail(no_trace());
  const Result<Json> plot = call.state.page().replay(text, static_cast<int>(*points));
  if (plot.ok()) return call.answer(*plot);
  ApiError error = api_error(plot.error());
  if (plot.error().code() == ErrorCode::kFailedPrecondition) {
    error = {.status = 409, .code = "no_routes", .message = error.message};
  }
  call.fail(error);
}

}  // namespace moeflux::serve
