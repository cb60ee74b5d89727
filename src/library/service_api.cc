// Services and answers of moeflux.h.
#include <cstddef>
#include <utility>

#include "base/ascii.h"
#include "chat/session.h"
#include "library/answers.h"
#include "library/options.h"
#include "library/outcome.h"
#include "serve/http/http_text.h"

namespace moeflux {
namespace {

// As `moeflux serve` has them.
constexpr int kQueueUsual = 64;

Result<int> count_of(const char* name, int32_t value, int usual, int32_t none) {
  if (value == 0) return usual;
  if (value == none) return 0;
  if (value > 0) return value;
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected 0 or more", name, value);
}

Result<int64_t> reasoning_limit(int64_t tokens) {
  if (tokens == 0) return int64_t{-1};
  if (tokens == MF_REASONING_NONE) return int64_t{0};
  if (tokens > 0) return tokens;
  return make_error(ErrorCode::kInvalidArgument, "reasoning_tokens_max is {}, expected 0 or more",
                    tokens);
}

Result<std::vector<std::string>> aliases_of(const mf_service_options& options) {
  std::vector<std::string> aliases;
  if (options.model_aliases == nullptr && options.model_aliases_count > 0) {
    return null_argument("model_aliases");
  }
  for (size_t i = 0; i < options.model_aliases_count; ++i) {
    if (options.model_aliases[i] == nullptr) return null_argument("an entry of model_aliases");
    aliases.emplace_back(options.model_aliases[i]);
  }
  return aliases;
}

Result<serve::ServiceOptions> service_options(const OpenModel& model,
                                              const mf_service_options* options) {
  MF_ASSIGN_OR_RETURN(const mf_service_options read, read_struct("mf_service_options", options));
  serve::ServiceOptions service;
  if (read.model_name != nullptr) service.model_name = read.model_name;
  MF_ASSIGN_OR_RETURN(service.aliases, aliases_of(read));
  if (read.chat_template != nullptr) service.template_text = read.chat_template;
  service.defaults.sampler = model.text.defaults.sampler;
  if (read.sampler != nullptr) {
    MF_ASSIGN_OR_RETURN(
        const mf_sampler_options sampler,
        read_struct("mf_sampler_options", read.sampler, to_c(model.text.defaults.sampler)));
    MF_ASSIGN_OR_RETURN(service.defaults.sampler, sampler_options(sampler));
    MF_RETURN_IF_ERROR(check_sampler(service.defaults.sampler, model.engine->spec().vocab_size));
  }
  MF_ASSIGN_OR_RETURN(service.defaults.reasoning_tokens_max,
                      reasoning_limit(read.reasoning_tokens_max));
  const auto usual = static_cast<int>(usual_sequences(*model.engine));
  MF_ASSIGN_OR_RETURN(service.scheduler.active_max,
                      count_of("active_max", read.active_max, usual, 0));
  MF_ASSIGN_OR_RETURN(service.scheduler.queue_max,
                      count_of("queue_max", read.queue_max, kQueueUsual, MF_QUEUE_NONE));
  return service;
}

Result<serve::Request> request_of(const mf_request& from) {
  if (from.method == nullptr) return null_argument("method");
  if (from.target == nullptr) return null_argument("target");
  if (from.body == nullptr && from.body_size > 0) return null_argument("body");
  if (from.headers == nullptr && from.headers_count > 0) return null_argument("headers");
  std::optional<serve::Target> target = serve::parse_target(from.target);
  if (!target) {
    return make_error(ErrorCode::kInvalidArgument, "target \"{}\" is not the path of a request",
                      std::string_view(from.target).substr(0, 100));
  }
  serve::Request request{
      .method = from.method, .path = std::move(target->path), .query = std::move(target->query)};
  if (from.body_size > 0) request.body.assign(from.body, from.body_size);
  for (size_t i = 0; i < from.headers_count; ++i) {
    const mf_header& header = from.headers[i];
    if (header.name == nullptr || header.value == nullptr) return null_argument("a header");
    request.headers.emplace_back(lower_case(header.name), header.value);
  }
  return request;
}

mf_answer_piece piece_of(mf_answer& answer) {
  const AnswerPiece& piece = answer.piece;
  mf_answer_piece c = MF_OPTIONS(c);
  c.status = piece.status;
  c.ended = piece.ended ? 1 : 0;
  c.bytes = piece.bytes.data();
  c.size = piece.bytes.size();
  answer.headers.clear();
  for (const auto& [name, value] : piece.headers) {
    answer.headers.push_back({name.c_str(), value.c_str()});
    if (equal_without_case(name, "content-type")) c.content_type = value.c_str();
  }
  c.headers = answer.headers.data();
  c.headers_count = answer.headers.size();
  if (piece.keep_alive_interval.count() > 0) {
    c.keep_alive = piece.keep_alive.c_str();
    c.keep_alive_ms = piece.keep_alive_interval.count();
  }
  return c;
}

mf_service_health health_of(const ServiceHost& host) {
  const SchedulerCounters counters = host.service().counters();
  mf_service_health health = MF_OPTIONS(health);
  health.state = host.is_draining() ? MF_SERVICE_DRAINING : MF_SERVICE_READY;
  health.waiting = counters.waiting;
  health.running = counters.running;
  health.parked = counters.parked;
  health.finished = counters.finished;
  health.cancelled = counters.cancelled;
  health.failed = counters.failed;
  health.model_name = host.service().model_name().c_str();
  return health;
}

}  // namespace

Result<std::shared_ptr<ServiceHost>> hold_service(const mf_service* service) {
  if (service == nullptr) return null_argument("service");
  return std::shared_ptr<ServiceHost>(service->host);
}

Result<std::unique_ptr<mf_answer>> begin_answer(std::shared_ptr<ServiceHost> host,
                                                const serve::Request& request, mf_ready_fn on_ready,
                                                void* user_data) {
  std::function<void()> ready;
  if (on_ready != nullptr) ready = [on_ready, user_data] { on_ready(user_data); };
  auto begun = std::make_unique<mf_answer>();
  MF_ASSIGN_OR_RETURN(begun->box, host->submit(request, std::move(ready)));
  begun->host = std::move(host);
  return begun;
}

Status take_piece(mf_answer& answer, int64_t timeout_ms) {
  if (timeout_ms < 0 && timeout_ms != MF_WAIT_FOREVER) {
    return make_error(ErrorCode::kInvalidArgument,
                      "timeout_ms is {}, expected 0 or more, or MF_WAIT_FOREVER", timeout_ms);
  }
  MF_ASSIGN_OR_RETURN(answer.piece, answer.box->take(timeout_ms));
  return {};
}

}  // namespace moeflux

using moeflux::guarded;
using moeflux::hold_service;
using moeflux::make_error;
using moeflux::null_argument;
using moeflux::Outcome;

mf_code mf_service_open(mf_model* model, const mf_service_options* options, mf_service** service,
                        mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (service == nullptr) return null_argument("service");
    *service = nullptr;
    if (model == nullptr) return null_argument("model");
    const std::shared_ptr<moeflux::OpenModel> open = model->open;
    MF_ASSIGN_OR_RETURN(auto read, moeflux::service_options(*open, options));
    MF_ASSIGN_OR_RETURN(auto started, moeflux::serve::Service::start(open, std::move(read)));
    *service = new mf_service{std::make_shared<moeflux::ServiceHost>(std::move(started))};
    return {};
  });
}

void mf_service_close(mf_service* service) noexcept {
  if (service == nullptr) return;
  service->host->close();
  delete service;
}

mf_code mf_service_submit(mf_service* service, const mf_request* request, mf_answer** answer,
                          mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (answer == nullptr) return null_argument("answer");
    *answer = nullptr;
    if (request == nullptr) return null_argument("request");
    MF_ASSIGN_OR_RETURN(const auto host, hold_service(service));
    MF_ASSIGN_OR_RETURN(const mf_request read, moeflux::read_struct("mf_request", request));
    MF_ASSIGN_OR_RETURN(const moeflux::serve::Request asked, moeflux::request_of(read));
    MF_ASSIGN_OR_RETURN(auto begun,
                        moeflux::begin_answer(host, asked, read.on_ready, read.user_data));
    *answer = begun.release();
    return {};
  });
}

mf_code mf_answer_next(mf_answer* answer, int64_t timeout_ms, mf_answer_piece* piece,
                       mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (answer == nullptr) return null_argument("answer");
    if (piece == nullptr) return null_argument("piece");
    if (answer->chat) {
      return make_error(moeflux::ErrorCode::kFailedPrecondition,
                        "the answer is a chat's, which mf_answer_next_chat() reads");
    }
    MF_RETURN_IF_ERROR(moeflux::check_struct("mf_answer_piece", nullptr, piece->struct_size,
                                             sizeof(*piece), sizeof(*piece)));
    MF_RETURN_IF_ERROR(moeflux::take_piece(*answer, timeout_ms));
    return moeflux::write_struct("mf_answer_piece", moeflux::piece_of(*answer), piece);
  });
}

void mf_answer_abort(mf_answer* answer) noexcept {
  if (answer != nullptr) answer->box->abort();
}

void mf_answer_free(mf_answer* answer) noexcept {
  if (answer == nullptr) return;
  answer->box->silence();
  answer->box->abort();
  delete answer;
}

mf_code mf_service_get_health(const mf_service* service, mf_service_health* health,
                              mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto host, hold_service(service));
    return moeflux::write_struct("mf_service_health", moeflux::health_of(*host), health);
  });
}

mf_code mf_service_metrics(const mf_service* service, mf_bytes** text, mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (text == nullptr) return null_argument("text");
    *text = nullptr;
    MF_ASSIGN_OR_RETURN(const auto host, hold_service(service));
    const std::string metrics = host->service().metrics();
    const auto* begin = reinterpret_cast<const std::byte*>(metrics.data());
    *text = new mf_bytes{{begin, begin + metrics.size()}};
    return {};
  });
}

mf_code mf_service_drain(mf_service* service, mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto host, hold_service(service));
    host->drain();
    return {};
  });
}
