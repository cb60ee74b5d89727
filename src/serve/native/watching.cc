#include "serve/native/watching.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/format.h"
#include "chat/turn_queue.h"
#include "plan/model_sizes.h"
#include "serve/http/http_text.h"
#include "serve/native/expert_tiers.h"
#include "serve/native/telemetry.h"
#include "serve/request/fields.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kTelemetryInterval{250};
constexpr std::chrono::milliseconds kLogInterval{500};

// The choices of experts tell what was asked: with several keys, what another has asked.
bool sees_experts(const Call& call) {
  return call.request.is_admin || call.request.shares_with.empty();
}

// Null where the model computes its first step. One that computes publishes by itself when asked,
// an idle one here.
std::shared_ptr<const ExpertMap> latest_map(const ModelLease& lease) {
  (void)lease->model().expert_map();  // asks
  const Turn turn(lease->shared_model(), {}, 0);
  if (turn.state() == Turn::State::kRunning) lease->model().publish(0, 0);
  return lease->model().expert_map();
}

/// One watcher of telemetry; its frames are made on a thread of the transport.
class Watch {
 public:
  Watch(Models& models, std::string model, bool by_id)
      : models_(models), model_(std::move(model)), tiers_(by_id) {}

  std::string frame() {
    Json json =
        telemetry_.sample(std::chrono::system_clock::now(), models_.texts(), models_.counters());
    TakenModel taken = models_.loaded(model_);
    const auto* const lease = std::get_if<ModelLease>(&taken);
    if (lease == nullptr || !*lease) {
      tiers_.add_none(json);
    } else {
      tiers_.add(json, (*lease)->options().model_name, (*lease)->model().engine->loaded().experts,
                 latest_map(*lease));
    }
    return data_frame(json);
  }

 private:
  Models& models_;
  const std::string model_;
  Telemetry telemetry_;
  ExpertTiers tiers_;
};

}  // namespace

Json capabilities_json(const TemplateCapabilities& can) {
  return {{"system_role", can.system_role},     {"tools", can.tools},
          {"tool_calls", can.tool_calls},       {"parallel_tool_calls", can.parallel_calls},
          {"tool_results", can.tool_results},   {"reasoning", can.reasoning},
          {"content_parts", can.content_parts}, {"switches", can.switches}};
}

bool check_admin(const Call& call) {
  if (call.request.is_admin) return true;
  call.fail({.status = 403,
             .type = "permission_error",
             .message = formatted("{} concerns all clients, expected a key of --admin-key",
                                  call.request.path)});
  return false;
}

void show_features(Call& call) {
  const PageOptions& page = call.state.page();
  call.answer({{"admin", call.request.is_admin},
               {"residency", sees_experts(call)},
               {"chats", page.keeps_chats},
               {"mcp", page.tools.list != nullptr},
               {"planner", page.forecast != nullptr},
               {"version", MOEFLUX_VERSION}});
}

void watch_telemetry(Call& call) {
  const std::string name = query_value(call.request.query, "model").value_or("");
  TakenModel taken = call.models.loaded(name);
  if (const auto* error = std::get_if<ApiError>(&taken)) return call.fail(*error);
  call.target.begin_stream();
  const auto watch = std::make_shared<Watch>(call.models, name, sees_experts(call));
  const auto frame = [watch] { return watch->frame(); };
  call.target.response->write(frame());
  call.target.response->break_silence(frame, kTelemetryInterval);
  call.state.watch(call.target.response);
}

void show_experts(Call& call) {
  if (!sees_experts(call) && !check_admin(call)) return;
  const ModelLease model = call.find_loaded(Json::object());
  if (!model) return;
  const ExpertTable& table = model->model().engine->loaded().experts;
  const std::shared_ptr<const ExpertMap> map = latest_map(model);
  if (!map) return call.answer(Json::object());  // busy until now with a first step
  call.answer({{"model", model->options().model_name},
               {"experts", map->num_experts},
               {"layers", experts_json(table, *map)}});
}

void show_plan(Call& call) {
  if (!check_admin(call)) return;
  const ModelLease model = call.find_loaded(Json::object());
  if (!model) return;
  call.answer(plan_json(model->model()));
}

void show_model(Call& call) {
  const ModelLease model = call.find_loaded(Json::object());
  if (!model) return;
  const Engine& engine = *model->model().engine;
  const ModelSpec& spec = engine.spec();
  const MemoryPlan& plan = engine.memory_plan();
  Json formats = Json::array();
  for (const auto& [format, bytes] : expert_bytes_by_format(engine.loaded().experts)) {
    formats.push_back({{"format", format}, {"expert_bytes", bytes}});
  }
  Json json = {{"name", model->options().model_name},
               {"family", spec.model_type},
               {"layers", spec.num_layers()},
               {"hidden_size", spec.hidden_size},
               {"vocab_size", spec.vocab_size},
               {"experts", last_moe(spec).num_experts},
               {"experts_per_token", last_moe(spec).experts_per_token},
               {"context_length", plan.context_length},
               {"parameters", measure_model(engine.loaded()).parameters},
               {"formats", std::move(formats)},
               {"dense_bytes", plan.dense_bytes},
               {"experts_bytes", plan.experts_bytes},
               {"template", nullptr}};
  if (model->format().ok()) {
    const ChatFormat& format = **model->format();
    json["template"] = capabilities_json(format.chat_template().capabilities(true));
    json["output_format"] = format.output().name;
  }
  call.answer(json);
}

void show_options(Call& call) {
  if (!check_admin(call)) return;
  Json options = Json::array();
  for (const OptionInForce& one : call.state.page().options) {
    options.push_back({{"name", one.name}, {"value", one.value}, {"given", one.given}});
  }
  call.answer({{"options", std::move(options)}});
}

void watch_log(Call& call) {
  if (!check_admin(call)) return;
  call.target.begin_stream();
  const auto lines = [log = call.state.page().log, seen = std::make_shared<uint64_t>(0)] {
    std::string frames;
    for (const LogLine& line : log->after(*seen)) {
      *seen = line.number;
      frames += data_frame({{"n", line.number}, {"t", line.time_ms}, {"line", line.text}});
    }
    return frames.empty() ? std::string(": keep-alive\n\n") : frames;
  };
  call.target.response->write(lines());
  call.target.response->break_silence(lines, kLogInterval);
  call.state.watch(call.target.response);
}

void list_forecasts(Call& call) { call.answer({{"like", call.state.page().forecast_models}}); }

// Headers are read and a step is counted, which takes a while with large models.
void forecast_machine(Call& call) {
  const PageOptions& page = call.state.page();
  if (!page.forecast) {
    return call.fail(
        {.status = 404, .type = "not_found_error", .message = "this server makes no forecasts"});
  }
  if (!call.may_take_long) {
    call.is_put_off = true;
    return;
  }
  std::string folder;
  std::string name;
  if (!Fields(call.body).has("like")) {
    const ModelLease model = call.find_loaded(Json::object());
    if (!model) return;
    folder = model->model().directory;
    name = model->options().model_name;
  }
  Result<Json> forecast = page.forecast(call.body, folder);
  if (!forecast.ok()) return call.fail(api_error(forecast.error()));
  // Where the server has the model is no client's business.
  if (!name.empty()) (*forecast)["model"] = name;
  call.answer(*forecast);
}

}  // namespace moeflux::serve
