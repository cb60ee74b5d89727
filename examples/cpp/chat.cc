// Answers questions, one after the other, as one conversation in C++:
// chat MODEL_FOLDER CHAT_TEMPLATE "Who are you?" "Say it in one word."
#include <iostream>
#include <moeflux/chat.hpp>

namespace {

int fail(const moeflux::Error& error) {
  std::cerr << "chat: " << error.message << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: chat MODEL_FOLDER CHAT_TEMPLATE QUESTION...\n";
    return 2;
  }
  auto model = moeflux::Model::open(argv[1]);
  if (!model) return fail(model.error());
  moeflux::ServiceOptions options;
  if (*argv[2] != '\0') options.chat_template = argv[2];
  auto chat = moeflux::Chat::open(*model, options);
  if (!chat) return fail(chat.error());
  moeflux::ChatOptions how;
  how.tokens_max = 40;
  how.sampler = moeflux::SamplerOptions{.seed = 7};
  for (int i = 3; i < argc; ++i) {
    const auto reply = chat->send(argv[i], how, [](std::string_view text) {
      std::cout << text << std::flush;
      return true;
    });
    if (!reply) return fail(reply.error());
    std::cout << "\n";
  }
}
