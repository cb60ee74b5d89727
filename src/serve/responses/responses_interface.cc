// OpenAI's responses: answered, kept and gone on from.
#include <string_view>
#include <utility>

#include "base/format.h"
#include "serve/call.h"
#include "serve/http/http_text.h"
#include "serve/responses/answer.h"
#include "serve/responses/input_items.h"
#include "serve/responses/request.h"
#include "serve/responses/stored_response.h"

namespace moeflux::serve {
namespace {

constexpr std::string_view kResponsePrefix = "resp_";

// `param` is empty where the id is a part of the path.
ApiError unknown_response(const std::string& id, std::string param = {}) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no response \"{}\" is kept: it was never stored, was deleted, made "
                               "room for others, or was not kept in a folder (see --states) when "
                               "the server ended",
                               id),
          .param = std::move(param)};
}

std::optional<StoredResponse> find_response(ServiceState& state, const OwnedName& id) {
  const Result<std::string> text = state.responses().find(id);
  if (!text.ok()) {
    if (text.error().code() != ErrorCode::kNotFound) state.note(text.error().message());
    return std::nullopt;
  }
  const std::string place = state.responses().place_of(id);
  Result<StoredResponse> response = StoredResponse::parse(*text, place);
  if (!response.ok()) {
    state.note(response.error().message());
    return std::nullopt;
  }
  const auto& held = response->response["id"].get_ref<const std::string&>();
  if (held == id.name) return std::move(response).value();
  // A file without a seal does not say so itself.
  state.note(formatted("{}: holds response {}, expected {}", place, held, id.name));
  return std::nullopt;
}

std::optional<Json> earlier_items(const Call& call) {
  Fields fields(call.body);
  const auto id = fields.text("previous_response_id");
  if (id && !id->starts_with(kResponsePrefix)) {
    fields.fail(bad_field("previous_response_id",
                          formatted("previous_response_id is {}, expected the id of a response, "
                                    "which begins with {}",
                                    json_excerpt(*id), kResponsePrefix)));
  }
  if (fields.problem()) {
    call.fail(*fields.problem());
    return std::nullopt;
  }
  if (!id) return Json::array();
  const auto previous = find_response(call.state, {call.request.owner, *id});
  if (previous) return previous->conversation();
  call.fail(unknown_response(*id, "previous_response_id"));
  return std::nullopt;
}

/// The message for the client where the response could not be stored; nothing where it was.
std::optional<std::string> keep_response(ServiceState& state, KeptAnswer& answer,
                                         const StoredResponse& response) {
  const Status kept = answer.keep(response.text());
  if (kept.ok()) return std::nullopt;
  const auto id = response.response["id"].get<std::string>();
  state.note(formatted("response {} is not kept: {}", id, kept.error().message()));
  return api_error(kept.error()).message;
}

/// The request behind `earlier` items. Nothing where it cannot be, which has been answered.
std::optional<ResponsesRequest> read_request(const Call& call, const std::optional<Json>& earlier) {
  if (!earlier) return std::nullopt;
  auto decoded = decode_responses_request(call.body, call.service().options().defaults, *earlier);
  if (auto* request = std::get_if<ResponsesRequest>(&decoded)) return std::move(*request);
  call.fail(std::get<ApiError>(decoded));
  return std::nullopt;
}

void responses(Call& call) {
  std::optional<Json> earlier = earlier_items(call);
  auto decoded = read_request(call, earlier);
  if (!decoded) return;
  ResponsesRequest& request = *decoded;
  const auto chat = call.service().read_chat(call, std::move(request.chat));
  if (!chat) return;
  const GenerationFields& generation = chat->request.generation;
  ResponseAnswerOptions options{.identity = call.service().identity(kResponsePrefix, generation),
                                .echo = std::move(request.echo),
                                .return_progress = generation.return_progress,
                                .timings_per_token = generation.timings_per_token};
  if (chat->request.top_logprobs >= 0) options.spelling.emplace(call.service().tokenizer());
  std::shared_ptr<KeptAnswer> kept;
  if (request.store) {
    kept = call.state.responses().begin({call.request.owner, options.identity.id});
    const auto stored = std::make_shared<StoredResponse>(
        StoredResponse{.earlier = std::move(*earlier),
                       .input = std::move(request.input),
                       .continues = chat->request.conversation.continue_final_message});
    options.on_end = [&state = call.state, kept, stored](const Json& response) {
      stored->response = response;
      return keep_response(state, *kept, *stored);
    };
  }
  call.service().answer(call, *chat, std::make_unique<ResponseEncoder>(std::move(options)), kept);
}

void count_input_tokens(Call& call) {
  auto request = read_request(call, earlier_items(call));
  if (!request) return;
  const auto chat = call.service().read_chat(call, std::move(request->chat));
  if (!chat) return;
  call.answer({{"object", "response.input_tokens"}, {"input_tokens", chat->prompt.tokens.size()}});
}

void stored_response(Call& call) {
  if (query_value(call.request.query, "stream") == "true") {
    return call.fail(unsupported_field(
        "stream", "stream is true, which is not offered for a stored response: it is there whole"));
  }
  const auto found = find_response(call.state, {call.request.owner, call.id});
  if (!found) return call.fail(unknown_response(call.id));
  call.answer(found->response);
}

void stored_input(Call& call) {
  const auto found = find_response(call.state, {call.request.owner, call.id});
  if (!found) return call.fail(unknown_response(call.id));
  const auto list = list_input_items(found->input, call.id, call.request.query);
  if (const auto* error = std::get_if<ApiError>(&list)) return call.fail(*error);
  call.answer(std::get<Json>(list));
}

void delete_response(Call& call) {
  const auto told = [target = call.target, id = call.id](const Status& erased) {
    if (erased.ok()) return target.answer({{"id", id}, {"object", "response"}, {"deleted", true}});
    const bool is_unknown = erased.error().code() == ErrorCode::kNotFound;
    target.fail(is_unknown ? unknown_response(id) : api_error(erased.error()));
  };
  call.state.responses().erase({call.request.owner, call.id}, call.state.jobs(), told);
}

constexpr Route kResponsesRoutes[] = {
    {"POST", "/responses", &responses},
    {"POST", "/responses/input_tokens", &count_input_tokens},
    {"POST", "/responses/compact", &not_offered, RouteKind::kNoModel},
    {"GET", "/responses/{id}", &stored_response, RouteKind::kNoModel},
    {"DELETE", "/responses/{id}", &delete_response, RouteKind::kNoModel},
    {"GET", "/responses/{id}/input_items", &stored_input, RouteKind::kNoModel},
};

}  // namespace

extern const Interface responses_interface = {
    .home = "/responses", .routes = kResponsesRoutes, .error_text = &error_text};

}  // namespace moeflux::serve
