// Limits of requests, and the end: what is refused and what is put off.
#include "serve/service_limits.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "io/thread_priority.h"
#include "serve/http/handler_lanes.h"
#include "serve/service_call.h"
#include "text/spec_fields.h"

namespace moeflux::serve {
namespace {

constexpr std::array<std::string_view, 8> kAtOnce = {
    "/", "/health", "/models", "/metrics", "/slots", "/openapi.json", "/api/version", "/api/tags"};

/// A request that goes on elsewhere, without the text of its body.
struct PutOff {
  PutOff(Request of, std::atomic<size_t>& all) : request(std::move(of)), share(all) {}
  Request request;
  BodyShare share;
};

}  // namespace

size_t text_bytes_max(const OpenModel& model) {
  const Tokenizer& tokenizer = model.text.tokenizer.value();
  size_t longest = 1;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(static_cast<TokenId>(id)).size());
  }
  return static_cast<size_t>(model.engine->context_length()) * longest * 4;
}

size_t text_bytes(const Json& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size();
  size_t bytes = 0;
  if (json.is_structured()) {
    for (const Json& one : json) bytes += text_bytes(one);
  }
  return bytes;
}

ApiError draining() {
  return {.status = 503,
          .type = "unavailable_error",
          .message = "the server is draining: it ends what runs and takes nothing new"};
}

bool Service::is_at_once(const Request& request) {
  if (request.method != "GET" && request.method != "HEAD") return false;
  std::string_view path = request.path;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return std::ranges::count(kAtOnce, path) > 0 || path.starts_with("/models/");
}

// A template writes at least a mark for each.
std::optional<ApiError> too_many_messages(const Json& body, int64_t context) {
  for (const char* name : {"messages", "input"}) {
    const Json& list = spec_field(body, name);
    if (!list.is_array() || list.size() <= static_cast<size_t>(context)) continue;
    return ApiError{.code = "context_length_exceeded",
                    .message = formatted("{} {}, the context takes {} tokens (see --ctx-size)",
                                         list.size(), name, context),
                    .param = name};
  }
  return std::nullopt;
}

bool Service::may_fit(const Call& call, const Json& texts) const {
  const int64_t context = model_->engine->context_length();
  ApiError error{.code = "context_length_exceeded", .message = {}, .param = "messages"};
  const size_t bytes = text_bytes(texts);
  if (bytes <= prompt_bytes_max_) return true;
  error.message = formatted(
      "the prompt has {} bytes, the context's {} tokens spell at most {} (see --ctx-size)", bytes,
      context, prompt_bytes_max_);
  call.fail(error);
  return false;
}

void Service::put_off(Call& call, Handle again) {
  const Request& request = call.request;
  const auto kept = std::make_shared<PutOff>(Request{.method = request.method,
                                                     .path = request.path,
                                                     .query = request.query,
                                                     .headers = request.headers,
                                                     .body = {}},
                                             put_off_bytes_);
  if (kept->share.add(std::max(request.body.size(), kPutOffBytesMin)) > kPutOffBytesMax) {
    return call.fail({.status = 429,
                      .type = "rate_limit_error",
                      .message = "too many constraints wait to be compiled, try again later"});
  }
  const auto later = std::make_shared<Call>(Call{.request = kept->request,
                                                 .target = std::move(call.target),
                                                 .body = std::move(call.body),
                                                 .id = std::move(call.id),
                                                 .may_take_long = true});
  long_jobs_.add([this, kept, later, again] {
    lower_thread_priority();
    if (later->target.response->is_closed()) return;
    if (is_draining_) return later->fail(draining());
    (this->*again)(*later);
  });
}

void Service::refuse() {
  is_draining_ = true;
  scheduler_->refuse();
}

void Service::drain() {
  refuse();
  scheduler_->drain();
  jobs_.wait();
}

bool Service::drain_within(std::chrono::milliseconds time) {
  refuse();
  if (!scheduler_->drain_within(time)) return false;
  jobs_.wait();
  return true;
}

}  // namespace moeflux::serve
