// Anthropic's messages.
#include <memory>

#include "serve/anthropic/answer.h"
#include "serve/anthropic/request.h"
#include "serve/call.h"

namespace moeflux::serve {
namespace {

enum class Wants : uint8_t { kAnswer, kCount };

std::optional<Chat> read_messages(Call& call, Wants wants) {
  const bool has_tools = call.body.is_object() && call.body.contains("tools");
  const auto& format = call.service().format();
  const bool late_system =
      format.ok() && (*format)->chat_template().capabilities(has_tools).late_system;
  const ServiceOptions& options = call.service().options();
  return call.service().read_chat(call,
                                  decode_messages_request(call.body, options.defaults,
                                                          {.steady_prompts = options.steady_prompts,
                                                           .late_system = late_system,
                                                           .counts_only = wants == Wants::kCount}));
}

void messages(Call& call) {
  const auto chat = read_messages(call, Wants::kAnswer);
  if (!chat) return;
  const GenerationFields& generation = chat->request.generation;
  call.service().answer(call, *chat,
                        std::make_unique<MessageEncoder>(MessageAnswerOptions{
                            .identity = call.service().identity("msg_", generation),
                            .prompt_tokens = static_cast<int64_t>(chat->prompt.tokens.size()),
                            .tokens_max = generation.tokens_max}));
}

void count_message_tokens(Call& call) {
  const auto chat = read_messages(call, Wants::kCount);
  if (chat) call.answer({{"input_tokens", chat->prompt.tokens.size()}});
}

constexpr Route kAnthropicRoutes[] = {
    {"POST", "/messages", &messages},
    {"POST", "/messages/count_tokens", &count_message_tokens},
};

}  // namespace

extern const Interface anthropic_interface = {
    .home = "/messages",
    .routes = kAnthropicRoutes,
    .error_text = &anthropic_error_text,
    .stream = {.keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n"},
};

}  // namespace moeflux::serve
