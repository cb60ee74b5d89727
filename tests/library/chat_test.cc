// Conversations through the public interface: turns, tools, schemas and what is refused.
#include "moeflux/chat.hpp"

#include "tests/library/library_model.h"

namespace moeflux::testing {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";
constexpr const char* kSchema =
    R"({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],)"
    R"( "additionalProperties": false})";

SamplerOptions greedy() { return {.temperature = 0.0f, .seed = 7}; }

Tool weather() {
  return {.name = "get_weather",
          .description = "The weather",
          .parameters = R"({"type": "object", "properties": {"unit": {"enum": ["C", "F"]}},)"
                        R"( "required": ["unit"], "additionalProperties": false})"};
}

class ChatApi : public LibraryTest {
 protected:
  Chat start() {
    return take(Chat::open(take(Model::open(fable(), {.context_length = 1024, .threads = 1})),
                           {.chat_template = kTemplate}));
  }
};

TEST_F(ChatApi, TurnsAreRemembered) {
  Chat chat = start();
  chat.messages().push_back({.role = "system", .content = "Tell stories."});
  std::string pieces;
  const ChatReply first =
      take(chat.send("A fox.", {.tokens_max = 8, .sampler = greedy()}, [&](std::string_view text) {
        pieces += text;
        return true;
      }));
  EXPECT_FALSE(pieces.empty());
  EXPECT_EQ(first.message.content, pieces);
  EXPECT_EQ(first.message.role, "assistant");
  EXPECT_EQ(first.finish_reason, MF_CHAT_LENGTH);
  EXPECT_EQ(first.generated_tokens, 8);
  const ChatReply second = take(chat.send("And then?", {.tokens_max = 8, .sampler = greedy()}));
  EXPECT_GT(second.prompt_tokens, first.prompt_tokens);
  ASSERT_EQ(chat.messages().size(), 5u);
  EXPECT_EQ(chat.messages()[2].content, first.message.content);
  EXPECT_EQ(chat.messages()[3].content, "And then?");
}

TEST_F(ChatApi, ToolsAreCalledAndAnswered) {
  Chat chat = start();
  const ChatReply reply = take(chat.send("The weather?", {.tokens_max = 200,
                                                          .sampler = greedy(),
                                                          .tools = {weather()},
                                                          .tool_choice = MF_TOOL_CHOICE_REQUIRED,
                                                          .one_tool_call = true}));
  EXPECT_EQ(reply.finish_reason, MF_CHAT_TOOL_CALLS);
  ASSERT_FALSE(reply.message.tool_calls.empty());
  const ToolCall& call = reply.message.tool_calls.front();
  EXPECT_EQ(call.name, "get_weather");
  EXPECT_NE(call.arguments.find("unit"), std::string::npos) << call.arguments;
  EXPECT_FALSE(call.id.empty());
  const ChatReply after =
      take(chat.send({.role = "tool", .content = "18 degrees", .tool_call_id = call.id},
                     {.tokens_max = 4, .sampler = greedy(), .tools = {weather()}}));
  EXPECT_GT(after.prompt_tokens, reply.prompt_tokens);
}

TEST_F(ChatApi, TextsFollowASchema) {
  const ChatReply reply =
      take(start().send("Well?", {.tokens_max = 60, .sampler = greedy(), .schema = kSchema}));
  EXPECT_NE(reply.message.content.find("\"ok\""), std::string::npos) << reply.message.content;
}

TEST_F(ChatApi, WhatIsRefusedLeavesTheConversationAsItWas) {
  Chat chat = start();
  expect_error(chat.send({.content = "Who?"}), Code::kInvalidArgument, {"role"});
  expect_error(chat.send("A", {.schema = "{"}), Code::kInvalidArgument, {"schema"});
  expect_error(chat.send("A", {.sampler = SamplerOptions{.temperature = 1000.0f}}),
               Code::kInvalidArgument, {"temperature"});
  expect_error(chat.send("A", {.tokens_max = -1}), Code::kInvalidArgument, {"tokens_max"});
  expect_error(chat.send("A", {.tools = {weather()}, .tool_choice = 9}), Code::kInvalidArgument,
               {"tool_choice is 9"});
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "word ";
  expect_error(chat.send(many), Code::kResourceExhausted, {});
  expect_error(chat.send("A", {.tokens_max = 50}, [](std::string_view) { return false; }),
               Code::kCancelled, {});
  EXPECT_TRUE(chat.messages().empty());
}

TEST_F(ChatApi, AnswersOfOneKindAreNotReadAsTheOther) {
  Service service = take(Service::open(model_, {.chat_template = kTemplate}));
  mf_message message = MF_OPTIONS(message);
  message.role = "user";
  message.content = "A";
  mf_chat_request request = MF_OPTIONS(request);
  request.messages = &message;
  request.messages_count = 1;
  request.tokens_max = 1;
  mf_answer* chat = nullptr;
  mf_error error;
  ASSERT_EQ(mf_service_chat(service.get(), &request, &chat, &error), MF_OK) << error.message;
  mf_answer_piece piece = MF_OPTIONS(piece);
  EXPECT_EQ(mf_answer_next(chat, 0, &piece, &error), MF_ERROR_FAILED_PRECONDITION);
  mf_answer_free(chat);
  const Answer answer = take(service.submit({.method = "GET", .target = "/health"}));
  mf_chat_piece said = MF_OPTIONS(said);
  EXPECT_EQ(mf_answer_next_chat(answer.get(), 0, &said, &error), MF_ERROR_FAILED_PRECONDITION);
}

TEST_F(ChatApi, WrongStructsAreErrors) {
  Service service = take(Service::open(model_, {.chat_template = kTemplate}));
  mf_message message = MF_OPTIONS(message);
  mf_chat_request request = MF_OPTIONS(request);
  mf_answer* answer = nullptr;
  mf_error error;
  const auto refused = [&](const char* part) {
    EXPECT_EQ(mf_service_chat(service.get(), &request, &answer, &error), MF_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find(part), std::string::npos) << error.message;
    EXPECT_EQ(answer, nullptr);
  };
  request.messages_count = 1;
  refused("messages is null");
  request.messages = &message;
  refused("role");
  message.struct_size = 3;
  refused("messages");
  EXPECT_EQ(mf_service_chat(nullptr, &request, &answer, nullptr), MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mf_service_chat(service.get(), nullptr, &answer, nullptr), MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mf_answer_next_chat(nullptr, 0, nullptr, nullptr), MF_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace moeflux::testing
