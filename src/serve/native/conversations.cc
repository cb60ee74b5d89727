#include "serve/native/conversations.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/format.h"
#include "serve/openai/chat.h"
#include "serve/utc_time.h"

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

// Who has saved them has to delete some.
ApiError not_kept(const Error& error) {
  ApiError told = api_error(error);
  if (error.code() == ErrorCode::kResourceExhausted) {
    told = {.status = 409, .code = "conversations_full", .message = error.message()};
  }
  return told;
}

Json listed(const KeptText& text) {
  const auto used = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(text.used_ns)));
  return {{"id", text.name}, {"size_bytes", text.size_bytes}, {"used_at", utc_text(used)}};
}

std::optional<Conversation> find_conversation(Context& service, const std::string& name) {
  const Result<std::string> text = service.conversations().find(name);
  if (!text.ok()) {
    if (text.error().code() != ErrorCode::kNotFound) service.note(text.error().message());
    return std::nullopt;
  }
  Result<Conversation> talk = Conversation::parse(*text, service.conversations().place_of(name));
  if (talk.ok()) return std::move(talk).value();
  service.note(talk.error().message());
  return std::nullopt;
}

}  // namespace

Claim::Claim(Context& service, std::string name)
    : service_(service), name_(std::move(name)), is_ours_(service_.claim(name_)) {}

Claim::~Claim() {
  if (is_ours_) service_.release(name_);
}

SavedConversation::SavedConversation(Context& service, std::string name)
    : service_(service), name_(std::move(name)) {
  claim_.emplace(service_, name_);
}

// A client has its answer, saved or not. It may ask on as soon as it has heard the end.
void SavedConversation::add(const AnswerPart& answer) {
  talk_.add_answer(answer.content, answer.reasoning, chat_calls(answer.calls));
  const Status kept = service_.conversations().keep(name_, talk_.to_json());
  if (!kept.ok()) {
    service_.note(
        formatted("an answer is not saved in its conversation: {}", kept.error().message()));
  }
  claim_.reset();
}

std::optional<std::shared_ptr<SavedConversation>> go_on(Call& call) {
  Fields fields(call.body);
  const auto fail = [&](const ApiError& error) {
    call.fail(error);
    return std::nullopt;
  };
  const auto name = fields.text("conversation");
  if (name) (void)fields.integer("n", {1, 1});
  const Json* given = name ? fields.array("messages") : nullptr;
  if (fields.problem()) return fail(*fields.problem());
  if (!name) return std::shared_ptr<SavedConversation>();
  auto saved = std::make_shared<SavedConversation>(call.service, *name);
  // The client may ask again as soon as it hears of it.
  const auto refuse = [&](const ApiError& error) {
    saved.reset();
    return fail(error);
  };
  if (!saved->is_ours()) return refuse(being_answered(*name));
  const auto before = find_conversation(call.service, *name);
  if (!before) return refuse(unknown_conversation(*name));
  Json messages = before->messages();
  for (const Json& message : given == nullptr ? Json::array() : *given) messages.push_back(message);
  Result<Conversation> talk = Conversation::from_json(messages, "the conversation");
  if (!talk.ok()) return refuse(bad_field("messages", talk.error().message()));
  saved->set(std::move(talk).value());
  call.body["messages"] = std::move(messages);
  return saved;
}

void list_conversations(Call& call) {
  const SchedulerCounters counters = call.service.scheduler().counters();
  const auto responses = call.service.responses().list();
  if (!responses.ok()) return call.fail(api_error(responses.error()));
  const auto saved = call.service.conversations().list();
  if (!saved.ok()) return call.fail(api_error(saved.error()));
  Json conversations = Json::array();
  for (const KeptText& one : *saved) conversations.push_back(listed(one));
  uint64_t response_bytes = 0;
  for (const KeptText& one : *responses) response_bytes += one.size_bytes;
  call.answer({{"conversations", std::move(conversations)},
               {"kept_texts", counters.kept_texts},
               {"kept_tokens", counters.kept_tokens},
               {"stored_responses", responses->size()},
               {"stored_response_bytes", response_bytes},
               {"running", counters.running},
               {"waiting", counters.waiting}});
}

void saved_conversation(Call& call) {
  const auto talk = find_conversation(call.service, call.id);
  if (!talk) return call.fail(unknown_conversation(call.id));
  call.answer({{"id", call.id}, {"messages", talk->messages()}});
}

void save_conversation(Call& call) {
  if (!is_text_name(call.id)) return call.fail(bad_name("", call.id));
  const Result<Conversation> talk = Conversation::from_json(call.body, "the body");
  if (!talk.ok()) return call.fail(bad_field("messages", talk.error().message()));
  std::optional<Claim> claim(std::in_place, call.service, call.id);
  if (!claim->is_ours()) return call.fail(being_answered(call.id));
  const Status kept = call.service.conversations().keep(call.id, talk->to_json());
  claim.reset();  // the client may ask on as soon as it hears of it
  if (!kept.ok()) return call.fail(not_kept(kept.error()));
  call.answer({{"id", call.id}, {"messages", talk->messages()}});
}

void delete_conversation(Call& call) {
  const Status erased = call.service.conversations().erase(call.id);
  if (!erased.ok()) {
    const bool is_unknown = erased.error().code() == ErrorCode::kNotFound;
    return call.fail(is_unknown ? unknown_conversation(call.id) : api_error(erased.error()));
  }
  call.answer({{"id", call.id}, {"deleted", true}});
}

}  // namespace moeflux::serve
