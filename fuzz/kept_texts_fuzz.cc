// Files in a folder of stored responses and conversations: each is what was written there, or is
// refused by an error that names the file. The first byte chooses. The seal of a text is taken away
// as it was put on.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <variant>
#include <vector>

#include "chat/conversation.h"
#include "serve/responses/request.h"
#include "serve/responses/stored_response.h"
#include "store/json_seal.h"

namespace {

using moeflux::Conversation;
using moeflux::Error;
using moeflux::Json;
using moeflux::serve::ApiError;
using moeflux::serve::StoredResponse;

void expect(bool fact, const char* what) {
  if (fact) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

void check(const Error& error) {
  expect(error.message().find("the file") != std::string::npos, "the error names the file");
}

void response(std::string_view text) {
  const auto stored = StoredResponse::parse(text, "the file");
  if (!stored.ok()) return check(stored.error());
  const auto again = StoredResponse::parse(stored->text(), "the file");
  expect(again.ok(), "what was read can be written");
  expect(again->text() == stored->text(), "and is the same");
  const Json items = stored->conversation();
  expect(items.is_array(), "a conversation is a list");
  // A request goes on from any items or is told what is wrong.
  const auto request = moeflux::serve::decode_responses_request({{"input", "go on"}}, {}, items);
  if (const auto* error = std::get_if<ApiError>(&request)) {
    expect(error->status == 400 && !error->message.empty(), "an error of the request's");
  }
}

void conversation(std::string_view text) {
  auto talk = Conversation::parse(text, "the file");
  if (!talk.ok()) return check(talk.error());
  const auto again = Conversation::parse(talk->to_json(), "the file");
  expect(again.ok(), "what was read can be written");
  expect(again->messages() == talk->messages(), "and is the same");
  const int turns = talk->turns();
  int undone = 0;
  while (talk->undo()) ++undone;
  expect(undone == turns, "every question can be taken back");
}

void seal(std::string_view text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  const std::vector<std::byte> plain(bytes, bytes + text.size());
  std::vector<std::byte> sealed = plain;
  moeflux::add_seal(sealed, "name");
  const bool is_object = text.starts_with('{');
  const auto state = moeflux::take_seal(sealed, "name");
  expect(!is_object || state == moeflux::SealState::kWhole, "what was sealed is whole");
  expect(!is_object || sealed == plain, "and is what it was");
  (void)moeflux::take_seal(sealed, "other");  // whatever it is
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  seal(text);
  if (data[0] % 2 == 0) {
    response(text);
  } else {
    conversation(text);
  }
  return 0;
}
