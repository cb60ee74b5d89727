#include "serve/service.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "io/thread_priority.h"
#include "serve/call.h"
#include "serve/http/handler_lanes.h"
#include "serve/http/http_text.h"
#include "serve/loading_stream.h"
#include "serve/service_limits.h"

namespace moeflux::serve {
namespace {

ApiError unknown_path(const Request& request) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no {} {} here; /openapi.json lists what there is", request.method,
                               request.path)};
}

}  // namespace

/// A request that goes on elsewhere, without the text of its body.
struct Service::PutOff {
  PutOff(Call& from, std::atomic<size_t>& all)
      : request{.method = from.request.method,
                .path = from.request.path,
                .query = from.request.query,
                .headers = from.request.headers,
                .body = {},
                .owner = from.request.owner,
                .shares_with = from.request.shares_with,
                .is_admin = from.request.is_admin},
        bytes(from.request.body.size()),
        share(all),
        call{.state = from.state,
             .models = from.models,
             .request = request,
             .target = std::move(from.target),
             .body = std::move(from.body),
             .id = std::move(from.id),
             .model = std::move(from.model)} {}
  const Request request;
  const size_t bytes;
  BodyShare share;
  Call call;
};

ModelLease Call::find_loaded(const Json& nothing) const {
  TakenModel taken = models.loaded(query_value(request.query, "model").value_or(""));
  if (const auto* error = std::get_if<ApiError>(&taken)) {
    fail(*error);
    return nullptr;
  }
  ModelLease found = std::get<ModelLease>(std::move(taken));
  if (!found) answer(nothing);
  return found;
}

void not_offered(Call& call) {
  call.fail({.status = 404,
             .type = "not_found_error",
             .message = formatted("{} is not offered: moeflux makes no summaries, sounds or "
                                  "images",
                                  call.request.path)});
}

Service::Service(std::unique_ptr<ServiceState> state, ModelsOptions models)
    : state_(std::move(state)), models_(std::make_unique<Models>(*state_, std::move(models))) {}

Result<std::unique_ptr<Service>> Service::start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options) {
  MF_ASSIGN_OR_RETURN(auto service, start(ModelsOptions{}, options));
  MF_ASSIGN_OR_RETURN(auto context,
                      Context::create(std::move(model), std::move(options), *service->state_));
  service->model_name_ = context->options().model_name;
  service->models_->add(std::move(context));
  return service;
}

Result<std::unique_ptr<Service>> Service::start(ModelsOptions models, ServiceOptions options) {
  MF_ASSIGN_OR_RETURN(auto state, ServiceState::open(std::move(options)));
  return std::unique_ptr<Service>(new Service(std::move(state), std::move(models)));
}

Service::~Service() {
  refuse();
  end_watching();
  models_->end();  // it tells of models on threads of ours
}

void Service::refuse() {
  state_->refuse();
  models_->refuse();
}

bool Service::is_at_once(const Request& request) {
  const Route* route = find_route(request.method, request.path).route;
  return route != nullptr && route->kind == RouteKind::kAtOnce;
}

void Service::handle(const Request& request, std::shared_ptr<Response> response) {
  Routed routed = find_route(request.method, request.path);
  Call call{.state = *state_,
            .models = *models_,
            .request = request,
            .target = {.response = std::move(response),
                       .interface = routed.interface,
                       .request_id = std::string(header(request, "x-request-id"))},
            .id = std::move(routed.id)};
  state_->count_asked(routed.number);
  if (routed.route == nullptr) {
    if (routed.allowed.empty()) return call.fail(unknown_path(request));
    return call.target.fail(
        {.status = 405,
         .message = formatted("{} takes {}, not {}", request.path, routed.allowed, request.method)},
        {{"Allow", routed.allowed}});
  }
  const Route& route = *routed.route;
  if (request.method == "POST") {
    if (state_->is_draining()) return call.fail(draining());
    if (route.kind != RouteKind::kAtOnce && !read_body(call)) return;
  }
  if (route.kind == RouteKind::kNoModel || route.kind == RouteKind::kAtOnce) {
    return answer(call, route);
  }
  const auto use = read_use(call);
  if (!use) return;
  if (route.without_model != nullptr) {
    const auto status = models_->find(use->name);
    const bool is_unloaded = status && status->state == ModelState::kUnloaded;
    if (is_unloaded && route.without_model(call, status->listed.name)) return;
  }
  TakenModel taken = models_->take(*use);
  if (const auto* error = std::get_if<ApiError>(&taken)) return call.fail(*error);
  call.model = std::get<ModelLease>(std::move(taken));
  if (!call.model) return wait(call, route, *use);
  answer(call, route);
}

bool Service::read_body(Call& call) const {
  Result<Json> body = parse_json(
      call.request.body, "the body",
      {.values = kBodyValuesMax,
       .is_given_up = [&response = *call.target.response] { return response.is_closed(); }});
  if (!body.ok()) {
    call.fail(bad_field("", body.error().message()));
    return false;
  }
  call.body = std::move(body).value();
  return true;
}

std::optional<ModelUse> Service::read_use(const Call& call) {
  if (!call.body.is_object()) return ModelUse{};
  Fields fields(call.body);
  ModelUse use{.name = fields.text("model").value_or("")};
  if (fields.problem()) {
    call.fail(*fields.problem());
    return std::nullopt;
  }
  // A time that is not one is refused where the other fields are read.
  const Json* time = fields.find("keep_alive");
  if (call.target.interface->keeps_alive && time != nullptr)
    use.keep_alive = read_keep_alive(*time);
  return use;
}

void Service::answer(Call& call, const Route& route) {
  if (call.model) {
    call.target.model = call.model;
    const bool is_prompt = route.kind != RouteKind::kTexts;
    const auto error =
        is_prompt ? too_many_messages(call.body, call.model->context_length()) : std::nullopt;
    if (error) return call.fail(*error);
  }
  // The answer may be left and come back to under this name.
  const std::string_view conversation = header(call.request, "x-conversation-id");
  if (!call.is_put_off && call.request.method == "POST" &&
      call.target.interface->stream.is_events && is_request_id(conversation)) {
    call.target.response =
        state_->streams().keep(owned_text(call.request.owner, conversation), call.target.response);
  }
  route.handle(call);
  if (call.is_put_off) put_off(call, route);
}

void Service::wait(Call& call, const Route& route, const ModelUse& use) {
  auto kept = put_aside(call);
  if (!kept) return;
  std::function<void(double)> told;
  if (route.empty_chunk != nullptr &&
      wants_loading(kept->call.body, *kept->call.target.interface)) {
    const auto status = models_->find(use.name);
    auto stream = std::make_shared<LoadingStream>(
        kept->call.target, route.empty_chunk(status ? status->listed.name : use.name));
    told = [stream](double progress) { stream->tell(progress); };
    kept->call.target.response = std::move(stream);
  }
  Response& client = *kept->call.target.response;
  models_->wait(
      use, client,
      [this, kept, &route](TakenModel taken) {
        // The thread that tells of it goes on to load.
        ready_.add([this, kept, &route, taken = std::move(taken)]() mutable {
          Call& again = kept->call;
          if (const auto* error = std::get_if<ApiError>(&taken)) return again.fail(*error);
          if (again.target.response->is_closed()) return;
          if (state_->is_draining()) return again.fail(draining());
          again.model = std::get<ModelLease>(std::move(taken));
          answer(again, route);
        });
      },
      std::move(told));
}

void Service::put_off(Call& call, const Route& route) {
  const bool evaluates = call.evaluates;
  const auto kept = put_aside(call);
  if (!kept) return;
  kept->call.may_take_long = true;
  JobThread& thread = evaluates ? evaluations_ : long_jobs_;
  thread.add([kept, evaluates, again = route.handle] {
    Call& later = kept->call;
    if (!evaluates) lower_thread_priority();  // one that evaluates shares the model's threads
    if (later.target.response->is_closed()) return;
    if (later.state.is_draining()) return later.fail(draining());
    again(later);
  });
}

std::shared_ptr<Service::PutOff> Service::put_aside(Call& call) {
  auto kept = std::make_shared<PutOff>(call, put_off_bytes_);
  if (kept->share.add(std::max(kept->bytes, kPutOffBytesMin)) <= kPutOffBytesMax) return kept;
  kept->call.fail({.status = 429,
                   .type = "rate_limit_error",
                   .message = "too many requests wait for models, constraints or embeddings, try "
                              "again later"});
  return nullptr;
}

void Service::drain() {
  refuse();
  for (const ModelLease& model : models_->all_loaded()) model->scheduler().drain();
  state_->wait_for_answers();
}

bool Service::drain_within(std::chrono::milliseconds time) {
  refuse();
  const auto end = std::chrono::steady_clock::now() + time;
  for (const ModelLease& model : models_->all_loaded()) {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (!model->scheduler().drain_within(std::max(rest, std::chrono::milliseconds(0)))) {
      return false;
    }
  }
  state_->wait_for_answers();
  return true;
}

std::string Service::metrics() const {
  return metrics_text(models_->texts(), models_->counters(), asked());
}

}  // namespace moeflux::serve
