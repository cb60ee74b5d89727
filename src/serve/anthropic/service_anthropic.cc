// Anthropic's requests.
#include <utility>

#include "serve/anthropic/answer.h"
#include "serve/anthropic/request.h"
#include "serve/service_call.h"

namespace moeflux::serve {

DecodedChat Service::decode_messages(const Call& call, bool counts_only) const {
  const bool has_tools = call.body.is_object() && call.body.contains("tools");
  const bool late_system =
      format_.ok() && (*format_)->chat_template().capabilities(has_tools).late_system;
  return decode_messages_request(call.body, options_.defaults,
                                 {.steady_prompts = options_.steady_prompts,
                                  .late_system = late_system,
                                  .counts_only = counts_only});
}

void Service::messages(Call& call) {
  const auto chat = read_chat(call, decode_messages(call, false));
  if (!chat) return;
  const GenerationFields& generation = chat->request.generation;
  answer_once(call, *chat,
              std::make_unique<MessageEncoder>(MessageAnswerOptions{
                  .identity = identity("msg_", generation),
                  .prompt_tokens = static_cast<int64_t>(chat->prompt.tokens.size()),
                  .tokens_max = generation.tokens_max}));
}

void Service::count_message_tokens(Call& call) {
  const auto chat = read_chat(call, decode_messages(call, true));
  if (chat) call.answer({{"input_tokens", chat->prompt.tokens.size()}});
}

}  // namespace moeflux::serve
