// Conversations in C++20, over moeflux.hpp: a model that answers, remembers and calls tools.
//
//     auto chat = moeflux::Chat::open(*model);
//     auto reply = chat->send("Who are you?", {}, [](std::string_view text) {
//       std::cout << text;
//       return true;
//     });
//     reply = chat->send("Say it in one word.");
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moeflux/moeflux.hpp"

namespace moeflux {
inline namespace api {

/// `arguments` is a JSON object.
struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = {};
};

/// The fields of mf_message; empty strings are null, but for a user's or tool's text.
struct Message {
  std::string role = {};  // "system", "user", "assistant", "tool"
  std::string content = {};
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {};
};

/// `parameters` is a JSON schema of the arguments; empty: there are none.
struct Tool {
  std::string name = {};
  std::string description = {};
  std::string parameters = {};
};

/// How to answer; the fields of mf_chat_request.
struct ChatOptions {
  int64_t tokens_max = 0;  // 0: until the answer or the context ends
  std::optional<SamplerOptions> sampler = {};
  std::vector<Tool> tools = {};
  int32_t tool_choice = MF_TOOL_CHOICE_AUTO;
  bool one_tool_call = false;
  std::string schema = {};  // a JSON schema that the text has to follow
  std::vector<std::string> stop_strings = {};
  TextSink on_reasoning = {};
};

struct ChatReply {
  Message message = {};       // of the assistant
  int32_t finish_reason = 0;  // one of MF_CHAT_*
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
};

namespace detail {

/// The request in C of what must outlive it.
class ChatArgument {
 public:
  ChatArgument(const std::vector<Message>& messages, const ChatOptions& options,
               const mf_sampler_options& default_sampler) {
    calls_.reserve(messages.size());
    for (const Message& message : messages) add(message);
    for (const Tool& tool : options.tools) {
      auto c = sized<mf_tool>();
      c.name = tool.name.c_str();
      c.description = or_null(tool.description);
      c.parameters = or_null(tool.parameters);
      tools_.push_back(c);
    }
    for (const std::string& string : options.stop_strings) stops_.push_back(string.c_str());
    if (options.sampler) c_.sampler = sampler_.emplace(default_sampler, *options.sampler).get();
    c_.messages = messages_.data();
    c_.messages_count = messages_.size();
    c_.tools = tools_.data();
    c_.tools_count = tools_.size();
    c_.tool_choice = options.tool_choice;
    c_.one_tool_call = options.one_tool_call ? 1 : 0;
    c_.schema = or_null(options.schema);
    c_.tokens_max = options.tokens_max;
    c_.stop_strings = stops_.data();
    c_.stop_strings_count = stops_.size();
  }
  const mf_chat_request* get() const { return &c_; }
  ChatArgument(const ChatArgument&) = delete;
  ChatArgument& operator=(const ChatArgument&) = delete;

 private:
  void add(const Message& message) {
    std::vector<mf_tool_call>& calls = calls_.emplace_back();
    for (const ToolCall& call : message.tool_calls) {
      calls.push_back({call.id.c_str(), call.name.c_str(), call.arguments.c_str()});
    }
    auto c = sized<mf_message>();
    c.role = message.role.c_str();
    c.content = calls.empty() ? message.content.c_str() : or_null(message.content);
    c.reasoning = or_null(message.reasoning);
    c.tool_calls = calls.data();
    c.tool_calls_count = calls.size();
    c.tool_call_id = or_null(message.tool_call_id);
    messages_.push_back(c);
  }

  std::vector<std::vector<mf_tool_call>> calls_;
  std::vector<mf_message> messages_;
  std::vector<mf_tool> tools_;
  std::vector<const char*> stops_;
  std::optional<SamplerArgument> sampler_;
  mf_chat_request c_ = sized<mf_chat_request>();
};

/// Adds what came to a reply; false when a sink does not want more.
inline bool add_piece(const mf_chat_piece& piece, const TextSink& on_text,
                      const TextSink& on_reasoning, ChatReply& reply) {
  const std::string_view text(piece.text, piece.text_bytes);
  const std::string_view reasoning(piece.reasoning, piece.reasoning_bytes);
  reply.message.content += text;
  reply.message.reasoning += reasoning;
  if (!reasoning.empty() && on_reasoning && !on_reasoning(reasoning)) return false;
  if (!text.empty() && on_text && !on_text(text)) return false;
  for (size_t i = 0; i < piece.tool_calls_count; ++i) {
    const mf_tool_call& call = piece.tool_calls[i];
    reply.message.tool_calls.push_back({call.id, call.name, call.arguments});
  }
  reply.finish_reason = piece.finish_reason;
  reply.prompt_tokens = piece.prompt_tokens;
  reply.generated_tokens = piece.generated_tokens;
  return true;
}

}  // namespace detail

/// One conversation with a model. A turn evaluates the messages that are new, where the model has
/// a prefix cache. For one thread at a time; keeps what it needs of its model.
class Chat {
 public:
  /// Sampler, template and limits of `options` count. Fails as Service::open() does.
  static Result<Chat> open(const Model& model, const ServiceOptions& options = {}) {
    Result<Service> service = Service::open(model, options);
    if (!service) return service.error();
    Chat chat(std::move(*service));
    const Status done = detail::run(mf_model_default_sampler, model.get(), &chat.default_sampler_);
    if (!done) return done.error();
    return chat;
  }

  /// The conversation, to read, to begin with a system's message and to change.
  std::vector<Message>& messages() { return messages_; }

  /// Says something as the user and waits for the answer, which `on_text` receives as it is made.
  Result<ChatReply> send(std::string_view text, const ChatOptions& options = {},
                         const TextSink& on_text = {}) {
    return send(Message{.role = "user", .content = std::string(text)}, options, on_text);
  }
  /// The same with a message, such as a tool's result. The message and its answer become part of
  /// the conversation; a call that fails leaves it as it was. Fails with kInvalidArgument for what
  /// cannot be answered, and with kCancelled where a sink returned false.
  Result<ChatReply> send(Message message, const ChatOptions& options = {},
                         const TextSink& on_text = {}) {
    std::vector<Message> messages = messages_;
    messages.push_back(std::move(message));
    Result<ChatReply> reply = answer(messages, options, on_text);
    if (!reply) return reply;
    messages.push_back(reply->message);
    messages_ = std::move(messages);
    return reply;
  }

 private:
  explicit Chat(Service service) : service_(std::move(service)) {}

  Result<ChatReply> answer(const std::vector<Message>& messages, const ChatOptions& options,
                           const TextSink& on_text) const {
    const detail::ChatArgument argument(messages, options, default_sampler_);
    const Result<mf_answer*> begun =
        detail::stored<mf_answer*>(mf_service_chat, service_.get(), argument.get());
    if (!begun) return begun.error();
    const detail::Owner<mf_answer> owner(*begun);
    ChatReply reply{.message = {.role = "assistant"}};
    auto piece = detail::sized<mf_chat_piece>();
    while (piece.ended == 0) {
      const Status done = detail::run(mf_answer_next_chat, owner.get(), MF_WAIT_FOREVER, &piece);
      if (!done) return done.error();
      if (!detail::add_piece(piece, on_text, options.on_reasoning, reply)) {
        return Error{Code::kCancelled, "the answer was not wanted any longer"};
      }
    }
    return reply;
  }

  Service service_;
  mf_sampler_options default_sampler_ = detail::sized<mf_sampler_options>();
  std::vector<Message> messages_;
};

}  // namespace api
}  // namespace moeflux
