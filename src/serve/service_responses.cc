// The requests of OpenAI's responses.
#include <utility>

#include "base/format.h"
#include "serve/responses_answer.h"
#include "serve/responses_request.h"
#include "serve/service_call.h"

namespace moeflux::serve {
namespace {

ApiError unknown_response(const std::string& id) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no response \"{}\" is kept: it was never stored, was deleted, made "
                               "room for others, or the server has started since",
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

}  // namespace

bool Service::find_previous(const Call& call, std::shared_ptr<const StoredTurn>& previous) {
  Fields fields(call.body);
  const auto id = fields.text("previous_response_id");
  if (id) previous = responses_.find(*id);
  if (fields.problem()) {
    call.fail(*fields.problem());
    return false;
  }
  if (id && !previous) call.fail(unknown_response(*id));
  return !id || previous;
}

void Service::responses(Call& call) {
  std::shared_ptr<const StoredTurn> previous;
  if (!find_previous(call, previous)) return;
  auto decoded = decode_responses_request(call.body, options_.defaults,
                                          previous ? previous->conversation() : Json::array());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  auto& request = std::get<ResponsesRequest>(decoded);
  const auto chat = read_chat(call, std::move(request.chat));
  if (!chat) return;
  ResponseAnswerOptions options{.identity = identity("resp_", chat->request.generation),
                                .echo = std::move(request.echo)};
  if (chat->request.top_logprobs >= 0) options.spelling.emplace(tokenizer());
  if (request.store) {
    options.on_end = [this, id = options.identity.id, input = dump_json(request.input),
                      previous](const Json& response) {
      responses_.keep(id, input, dump_json(response), previous);
    };
  }
  answer_once(call, *chat, std::make_unique<ResponseEncoder>(std::move(options)));
}

void Service::count_response_tokens(Call& call) {
  std::shared_ptr<const StoredTurn> previous;
  if (!find_previous(call, previous)) return;
  auto decoded = decode_responses_request(call.body, options_.defaults,
                                          previous ? previous->conversation() : Json::array());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  const auto chat = read_chat(call, std::move(std::get<ResponsesRequest>(decoded).chat));
  if (!chat) return;
  call.answer({{"object", "response.input_tokens"}, {"input_tokens", chat->prompt.tokens.size()}});
}

void Service::stored_response(Call& call) {
  const auto turn = responses_.find(call.id);
  if (!turn) return call.fail(unknown_response(call.id));
  call.answer(turn->response());
}

void Service::stored_input(Call& call) {
  const auto turn = responses_.find(call.id);
  if (!turn) return call.fail(unknown_response(call.id));
  const Json items = with_ids(turn->input(), call.id);
  call.answer({{"object", "list"},
               {"data", items},
               {"first_id", items.empty() ? Json() : items.front()["id"]},
               {"last_id", items.empty() ? Json() : items.back()["id"]},
               {"has_more", false}});
}

void Service::delete_response(Call& call) {
  if (!responses_.erase(call.id)) return call.fail(unknown_response(call.id));
  call.answer({{"id", call.id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace moeflux::serve
