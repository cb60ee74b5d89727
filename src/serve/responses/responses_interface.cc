// OpenAI's responses: answered, kept and gone on from.
#include <utility>

#include "base/format.h"
#include "serve/call.h"
#include "serve/responses/answer.h"
#include "serve/responses/request.h"
#include "serve/responses/stored_response.h"

namespace moeflux::serve {
namespace {

ApiError unknown_response(const std::string& id) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no response \"{}\" is kept: it was never stored, was deleted, made "
                               "room for others, or was not kept in a folder (see --states) when "
                               "the server ended",
                               id),
          .param = "previous_response_id"};
}

// What lists show needs a name.
Json with_ids(const Json& items, const std::string& id) {
  Json named = Json::array();
  for (size_t i = 0; i < items.size(); ++i) {
    Json item = items[i];
    if (item.is_object() && !item.contains("id")) item["id"] = formatted("item_{}_{}", id, i);
    named.push_back(std::move(item));
  }
  return named;
}

std::optional<StoredResponse> find_response(Context& service, const std::string& id) {
  const Result<std::string> text = service.responses().find(id);
  if (!text.ok()) {
    if (text.error().code() != ErrorCode::kNotFound) service.note(text.error().message());
    return std::nullopt;
  }
  Result<StoredResponse> response = StoredResponse::parse(*text, service.responses().place_of(id));
  if (response.ok()) return std::move(response).value();
  service.note(response.error().message());
  return std::nullopt;
}

std::optional<Json> earlier_items(const Call& call) {
  Fields fields(call.body);
  const auto id = fields.text("previous_response_id");
  if (fields.problem()) {
    call.fail(*fields.problem());
    return std::nullopt;
  }
  if (!id) return Json::array();
  const auto previous = find_response(call.service, *id);
  if (previous) return previous->conversation();
  call.fail(unknown_response(*id));
  return std::nullopt;
}

// A client has its answer, kept or not.
void keep_response(Context& service, const StoredResponse& response) {
  const Status kept =
      service.responses().keep(response.response["id"].get<std::string>(), response.text());
  if (!kept.ok()) service.note(formatted("a response is not kept: {}", kept.error().message()));
}

void responses(Call& call) {
  std::optional<Json> earlier = earlier_items(call);
  if (!earlier) return;
  auto decoded = decode_responses_request(call.body, call.service.options().defaults, *earlier);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  auto& request = std::get<ResponsesRequest>(decoded);
  const auto chat = call.service.read_chat(call, std::move(request.chat));
  if (!chat) return;
  const GenerationFields& generation = chat->request.generation;
  ResponseAnswerOptions options{.identity = call.service.identity("resp_", generation),
                                .echo = std::move(request.echo),
                                .return_progress = generation.return_progress,
                                .timings_per_token = generation.timings_per_token};
  if (chat->request.top_logprobs >= 0) options.spelling.emplace(call.service.tokenizer());
  if (request.store) {
    const auto stored = std::make_shared<StoredResponse>(
        StoredResponse{.earlier = std::move(*earlier), .input = std::move(request.input)});
    options.on_end = [&service = call.service, stored](const Json& response) {
      stored->response = response;
      keep_response(service, *stored);
    };
  }
  JobThread* const ends_on = request.store ? &call.service.jobs() : nullptr;
  call.service.answer_once(call, *chat, std::make_unique<ResponseEncoder>(std::move(options)),
                           ends_on);
}

void count_tokens(Call& call) {
  const std::optional<Json> earlier = earlier_items(call);
  if (!earlier) return;
  auto decoded = decode_responses_request(call.body, call.service.options().defaults, *earlier);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  const auto chat =
      call.service.read_chat(call, std::move(std::get<ResponsesRequest>(decoded).chat));
  if (!chat) return;
  call.answer({{"object", "response.input_tokens"}, {"input_tokens", chat->prompt.tokens.size()}});
}

void stored_response(Call& call) {
  const auto found = find_response(call.service, call.id);
  if (!found) return call.fail(unknown_response(call.id));
  call.answer(found->response);
}

void stored_input(Call& call) {
  const auto found = find_response(call.service, call.id);
  if (!found) return call.fail(unknown_response(call.id));
  const Json items = with_ids(found->input, call.id);
  call.answer({{"object", "list"},
               {"data", items},
               {"first_id", items.empty() ? Json() : items.front()["id"]},
               {"last_id", items.empty() ? Json() : items.back()["id"]},
               {"has_more", false}});
}

void delete_response(Call& call) {
  const Status erased = call.service.responses().erase(call.id);
  if (!erased.ok()) {
    const bool is_unknown = erased.error().code() == ErrorCode::kNotFound;
    return call.fail(is_unknown ? unknown_response(call.id) : api_error(erased.error()));
  }
  call.answer({{"id", call.id}, {"object", "response"}, {"deleted", true}});
}

constexpr Route kRoutes[] = {
    {"POST", "/responses", &responses},
    {"POST", "/responses/input_tokens", &count_tokens},
    {"POST", "/responses/compact", &not_offered, RouteKind::kAnyModel},
    {"GET", "/responses/{id}", &stored_response},
    {"DELETE", "/responses/{id}", &delete_response},
    {"GET", "/responses/{id}/input_items", &stored_input},
};

}  // namespace

extern const Interface responses_interface;
const Interface responses_interface = {
    .home = "/responses", .routes = kRoutes, .error_text = &error_text};

}  // namespace moeflux::serve
