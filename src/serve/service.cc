#include "serve/service.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "io/thread_priority.h"
#include "serve/call.h"
#include "serve/http/handler_lanes.h"
#include "serve/http/http_text.h"
#include "serve/service_limits.h"

namespace moeflux::serve {
namespace {

/// A request that goes on elsewhere, without the text of its body.
struct PutOff {
  PutOff(Request of, std::atomic<size_t>& all) : request(std::move(of)), share(all) {}
  Request request;
  BodyShare share;
};

ApiError unknown_path(const Request& request) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no {} {} here; /openapi.json lists what there is", request.method,
                               request.path)};
}

}  // namespace

void not_offered(Call& call) {
  call.fail({.status = 404,
             .type = "not_found_error",
             .message = formatted("{} is not offered: moeflux continues texts, it makes no "
                                  "embeddings, scores, summaries, sounds or images",
                                  call.request.path)});
}

Result<std::unique_ptr<Service>> Service::start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options) {
  MF_ASSIGN_OR_RETURN(auto context, Context::create(std::move(model), std::move(options)));
  return std::unique_ptr<Service>(new Service(std::move(context)));
}

Service::~Service() {
  context_->refuse();
  end_watching();
}

bool Service::is_at_once(const Request& request) {
  const Route* route = find_route(request.method, request.path).route;
  return route != nullptr && route->kind == RouteKind::kAtOnce;
}

void Service::handle(const Request& request, std::shared_ptr<Response> response) {
  Routed routed = find_route(request.method, request.path);
  Call call{.service = *context_,
            .request = request,
            .target = {.response = std::move(response),
                       .interface = routed.interface,
                       .request_id = std::string(header(request, "x-request-id"))},
            .id = std::move(routed.id)};
  context_->count_asked(routed.number);
  if (routed.route == nullptr) {
    if (routed.allowed.empty()) return call.fail(unknown_path(request));
    return call.target.fail(
        {.status = 405,
         .message = formatted("{} takes {}, not {}", request.path, routed.allowed, request.method)},
        {{"Allow", routed.allowed}});
  }
  if (request.method == "POST") {
    if (context_->is_draining()) return call.fail(draining());
    if (!read_body(call, *routed.route)) return;
  }
  routed.route->handle(call);
  if (call.is_put_off) put_off(call, *routed.route);
}

bool Service::read_body(Call& call, const Route& route) {
  Result<Json> body = parse_json(
      call.request.body, "the body",
      {.values = kBodyValuesMax,
       .is_given_up = [&response = *call.target.response] { return response.is_closed(); }});
  if (!body.ok()) {
    call.fail(bad_field("", body.error().message()));
    return false;
  }
  const bool is_prompt = route.kind != RouteKind::kTexts;
  if (const auto error =
          is_prompt ? too_many_messages(*body, context_->context_length()) : std::nullopt) {
    call.fail(*error);
    return false;
  }
  call.body = std::move(body).value();
  if (call.body.is_object() && route.kind != RouteKind::kAnyModel) {
    Fields fields(call.body);
    const std::string model = fields.text("model").value_or("");
    const auto problem = fields.problem() ? std::optional<ApiError>(*fields.problem())
                                          : context_->unknown_model(model);
    if (problem) {
      call.fail(*problem);
      return false;
    }
  }
  // The answer may be left and come back to under this name.
  const std::string_view conversation = header(call.request, "x-conversation-id");
  if (call.target.interface->stream.is_events && is_request_id(conversation)) {
    call.target.response = context_->streams().keep(owned_text(call.request.owner, conversation),
                                                    call.target.response);
  }
  return true;
}

void Service::put_off(Call& call, const Route& route) {
  const Request& request = call.request;
  const auto kept = std::make_shared<PutOff>(Request{.method = request.method,
                                                     .path = request.path,
                                                     .query = request.query,
                                                     .headers = request.headers,
                                                     .body = {},
                                                     .owner = request.owner,
                                                     .shares_with = request.shares_with},
                                             put_off_bytes_);
  if (kept->share.add(std::max(request.body.size(), kPutOffBytesMin)) > kPutOffBytesMax) {
    return call.fail({.status = 429,
                      .type = "rate_limit_error",
                      .message = "too many requests wait for constraints or embeddings, try "
                                 "again later"});
  }
  const bool evaluates = call.evaluates;
  const auto later = std::make_shared<Call>(Call{.service = *context_,
                                                 .request = kept->request,
                                                 .target = std::move(call.target),
                                                 .body = std::move(call.body),
                                                 .id = std::move(call.id),
                                                 .may_take_long = true});
  JobThread& thread = evaluates ? evaluations_ : long_jobs_;
  thread.add([kept, later, evaluates, again = route.handle] {
    if (!evaluates) lower_thread_priority();  // one that evaluates shares the model's threads
    if (later->target.response->is_closed()) return;
    if (later->service.is_draining()) return later->fail(draining());
    again(*later);
  });
}

void Service::drain() {
  refuse();
  context_->scheduler().drain();
  context_->jobs().wait();
}

bool Service::drain_within(std::chrono::milliseconds time) {
  refuse();
  if (!context_->scheduler().drain_within(time)) return false;
  context_->jobs().wait();
  return true;
}

}  // namespace moeflux::serve
