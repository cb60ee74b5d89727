#include "serve/native/conversations.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/format.h"
#include "serve/openai/chat_answer.h"
#include "serve/openai/chat_messages.h"
#include "serve/wire/utc_time.h"

namespace moeflux::serve {
namespace {

ApiError bad_name(const std::string& param, const std::string& name) {
  return bad_field(param,
                   formatted("{} cannot be a conversation's name, expected up to 64 letters, "
                             "digits, '_' and '-', the first of them a letter or digit",
                             json_excerpt(Json(name))));
}

ApiError unknown_conversation(const std::string& name) {
  return {.status = 404,
          .type = "not_found_error",
          .message =
              formatted("no conversation {} is saved, or it is damaged", json_excerpt(Json(name))),
          .param = "conversation"};
}

ApiError being_answered(const std::string& name) {
  return {.status = 409,
          .code = "conversation_busy",
          .message = formatted("conversation {} is being answered", json_excerpt(Json(name))),
          .param = "conversation"};
}

// A client without room has to delete some.
ApiError not_kept(const std::string& name, const Error& error) {
  if (error.code() == ErrorCode::kResourceExhausted) {
    return {.status = 409, .code = "conversations_full", .message = error.message()};
  }
  if (error.code() == ErrorCode::kFailedPrecondition) return being_answered(name);
  if (error.code() == ErrorCode::kNotFound) return unknown_conversation(name);
  return api_error(error);
}

std::optional<Conversation> find_conversation(ServiceState& state, const OwnedName& name) {
  const Result<std::string> text = state.conversations().find(name);
  if (!text.ok()) {
    if (text.error().code() != ErrorCode::kNotFound) state.note(text.error().message());
    return std::nullopt;
  }
  Result<Conversation> talk = Conversation::parse(*text, state.conversations().place_of(name));
  if (talk.ok()) return std::move(talk).value();
  state.note(talk.error().message());
  return std::nullopt;
}

// The messages of a request as chat reads them, which are named by their place in it.
Json read_messages(Fields& fields) {
  const Json* given = fields.array("messages");
  if (given == nullptr || given->empty()) return Json::array();
  Json messages = read_chat_messages(fields);
  for (size_t i = 0; i < messages.size() && !fields.problem(); ++i) {
    Json& message = messages[i];
    const bool is_empty = !message.contains("content") || message["content"].is_null();
    const bool has_calls = message.contains("tool_calls") && !message["tool_calls"].empty();
    if (is_empty && !has_calls && message["role"] == "assistant") message["content"] = "";
    if (is_conversation_message(message)) continue;
    const std::string path = formatted("messages[{}]", i);
    fields.fail(bad_field(path, formatted("{} is {}, expected a text, or an assistant's tool_calls",
                                          path, json_excerpt((*given)[i]))));
  }
  return messages;
}

}  // namespace

Json shelf_json(const ShelfItem& item) {
  const auto used = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(item.used_ns)));
  return {{"id", item.name}, {"size_bytes", item.size_bytes}, {"used_at", utc_text(used)}};
}

std::optional<ApiError> SavedConversation::add(const AnswerPart& answer) {
  if (continues_) {
    talk_.continue_answer(answer.content, answer.reasoning, chat_calls(answer.calls));
  } else {
    talk_.add_answer(answer.content, answer.reasoning, chat_calls(answer.calls));
  }
  const Status kept = answer_->keep(talk_.to_json());
  if (kept.ok()) return std::nullopt;
  if (kept.error().code() == ErrorCode::kCancelled) return deleted_meanwhile();
  state_.note(formatted("an answer is not saved in its conversation: {}", kept.error().message()));
  ApiError error = not_kept(name_.name, kept.error());
  error.message = formatted("the answer is not saved in conversation {}: {}",
                            json_excerpt(Json(name_.name)), error.message);
  return error;
}

std::optional<std::shared_ptr<SavedConversation>> go_on(Call& call) {
  Fields fields(call.body);
  const auto fail = [&](const ApiError& error) {
    call.fail(error);
    return std::nullopt;
  };
  const auto name = fields.text("conversation");
  if (name) (void)fields.integer("n", {1, 1});
  const Json given = name ? read_messages(fields) : Json();
  if (fields.problem()) return fail(*fields.problem());
  if (!name) return std::shared_ptr<SavedConversation>();
  const OwnedName own{call.request.owner, *name};
  auto answer = call.state.conversations().go_on(own);
  if (!answer.ok()) return fail(not_kept(*name, answer.error()));
  auto saved = std::make_shared<SavedConversation>(call.state, own, std::move(answer).value());
  // The client may ask again as soon as it hears of it.
  const auto refuse = [&](const ApiError& error) {
    saved.reset();
    return fail(error);
  };
  const auto before = find_conversation(call.state, own);
  if (!before) return refuse(unknown_conversation(*name));
  Json messages = before->messages();
  for (const Json& message : given) messages.push_back(message);
  Result<Conversation> talk = Conversation::from_json(std::move(messages), "the conversation");
  if (!talk.ok()) return refuse(bad_field("messages", talk.error().message()));
  saved->set(std::move(talk).value());
  return saved;
}

void list_conversations(Call& call) {
  const SchedulerCounters counters = call.models.texts();
  const auto responses = call.state.responses().list(call.request.owner);
  if (!responses.ok()) return call.fail(api_error(responses.error()));
  const auto saved = call.state.conversations().list(call.request.owner);
  if (!saved.ok()) return call.fail(api_error(saved.error()));
  Json conversations = Json::array();
  for (const ShelfItem& one : *saved) conversations.push_back(shelf_json(one));
  uint64_t response_bytes = 0;
  for (const ShelfItem& one : *responses) response_bytes += one.size_bytes;
  Json listing = {{"conversations", std::move(conversations)},
                  {"stored_responses", responses->size()},
                  {"stored_response_bytes", response_bytes},
                  {"running", counters.running},
                  {"waiting", counters.waiting}};
  // These are of all clients together: with several they would tell one what another has sent.
  if (call.request.shares_with.empty()) {
    listing["kept_texts"] = counters.kept_texts;
    listing["kept_tokens"] = counters.kept_tokens;
  }
  call.answer(std::move(listing));
}

void saved_conversation(Call& call) {
  const auto talk = find_conversation(call.state, {call.request.owner, call.id});
  if (!talk) return call.fail(unknown_conversation(call.id));
  call.answer({{"id", call.id}, {"messages", talk->messages()}});
}

void save_conversation(Call& call) {
  if (!is_kept_name(call.id)) return call.fail(bad_name("", call.id));
  const Json body = call.body.is_array() ? Json{{"messages", call.body}} : call.body;
  Fields fields(body);
  if (!fields.has("messages"))
    fields.fail(bad_field("messages", "messages is absent, expected an array of messages"));
  Json messages = read_messages(fields);
  if (fields.problem()) return call.fail(*fields.problem());
  const Result<Conversation> talk = Conversation::from_json(std::move(messages), "the body");
  if (!talk.ok()) return call.fail(bad_field("messages", talk.error().message()));
  const Status kept =
      call.state.conversations().keep({call.request.owner, call.id}, talk->to_json());
  if (!kept.ok()) return call.fail(not_kept(call.id, kept.error()));
  call.answer({{"id", call.id}, {"messages", talk->messages()}});
}

void delete_conversation(Call& call) {
  const auto told = [target = call.target, id = call.id](const Status& erased) {
    if (!erased.ok()) return target.fail(not_kept(id, erased.error()));
    target.answer({{"id", id}, {"deleted", true}});
  };
  call.state.conversations().erase({call.request.owner, call.id}, call.state.jobs(), told);
}

}  // namespace moeflux::serve
