// Chats of a page, which the server keeps where it may: JSON objects that it does not look into.
#include <string>
#include <utility>

#include "base/format.h"
#include "serve/native/conversations.h"
#include "serve/native/handlers.h"

namespace moeflux::serve {
namespace {

constexpr size_t kChatBytesMax = size_t{4} << 20;

// Null where none are kept, which has been answered.
Keeper* chats_of(const Call& call) {
  Keeper* const chats = call.state.chats();
  if (chats == nullptr) {
    call.fail({.status = 404,
               .type = "not_found_error",
               .message = "this server keeps no chats, see --keep-chats"});
  }
  return chats;
}

ApiError unknown_chat(const std::string& name) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no chat {} is kept, or it is damaged", json_excerpt(Json(name)))};
}

ApiError chat_not_kept(const std::string& name, const Error& error) {
  if (error.code() == ErrorCode::kResourceExhausted) {
    return {.status = 409, .code = "chats_full", .message = error.message()};
  }
  if (error.code() == ErrorCode::kNotFound) return unknown_chat(name);
  if (error.code() == ErrorCode::kFailedPrecondition) {
    return {.status = 409,
            .code = "chat_busy",
            .message = formatted("chat {} is being saved", json_excerpt(Json(name)))};
  }
  return api_error(error);
}

}  // namespace

void list_chats(Call& call) {
  Keeper* const chats = chats_of(call);
  if (chats == nullptr) return;
  const auto kept = chats->list(call.request.owner);
  if (!kept.ok()) return call.fail(api_error(kept.error()));
  Json list = Json::array();
  for (const ShelfItem& one : *kept) list.push_back(shelf_json(one));
  call.answer({{"chats", std::move(list)}});
}

void kept_chat(Call& call) {
  Keeper* const chats = chats_of(call);
  if (chats == nullptr) return;
  const OwnedName name{call.request.owner, call.id};
  const Result<std::string> text = chats->find(name);
  if (!text.ok()) {
    if (text.error().code() != ErrorCode::kNotFound) call.state.note(text.error().message());
    return call.fail(unknown_chat(call.id));
  }
  const Result<Json> chat = parse_json(*text, chats->place_of(name), {.values = kChatBytesMax});
  if (!chat.ok() || !chat->is_object()) return call.fail(unknown_chat(call.id));
  call.answer(*chat);
}

void keep_chat(Call& call) {
  Keeper* const chats = chats_of(call);
  if (chats == nullptr) return;
  if (!is_kept_name(call.id)) {
    return call.fail(bad_field("", formatted("{} cannot be a chat's name, expected up to 64 "
                                             "letters, digits, '_' and '-', the first of them a "
                                             "letter or digit",
                                             json_excerpt(Json(call.id)))));
  }
  if (!call.body.is_object()) {
    return call.fail(bad_field("", "the body is not an object, expected a chat"));
  }
  const std::string text = dump_json(call.body);
  if (text.size() > kChatBytesMax) {
    return call.fail({.status = 413,
                      .message = formatted("the chat has {} bytes, expected at most {}",
                                           text.size(), kChatBytesMax)});
  }
  const Status kept = chats->keep({call.request.owner, call.id}, text);
  if (!kept.ok()) return call.fail(chat_not_kept(call.id, kept.error()));
  call.answer({{"id", call.id}});
}

void delete_chat(Call& call) {
  Keeper* const chats = chats_of(call);
  if (chats == nullptr) return;
  const auto told = [target = call.target, id = call.id](const Status& erased) {
    if (!erased.ok()) return target.fail(chat_not_kept(id, erased.error()));
    target.answer({{"id", id}, {"deleted", true}});
  };
  chats->erase({call.request.owner, call.id}, call.state.jobs(), told);
}

}  // namespace moeflux::serve
