// Continues a prompt through the C++ facade: same_text MODEL_FOLDER PROMPT default|sampled
#include <iostream>

#include "moeflux/moeflux.hpp"

namespace {

moeflux::Status write_text(const char* folder, const char* prompt, bool sampled) {
  auto model = moeflux::Model::open(folder);
  if (!model) return model.error();
  const auto tokens = model->tokenize(prompt, MF_TOKENIZE_ADD_SPECIAL);
  if (!tokens) return tokens.error();
  auto sequence = model->create_sequence();
  if (!sequence) return sequence.error();
  moeflux::GenerateOptions options;
  if (sampled) {
    options.tokens_max = 60;
    options.ignore_stop_tokens = true;
    const auto set = sequence->set_sampler({.temperature = 0.9f,
                                            .top_k = 30,
                                            .top_p = 0.95f,
                                            .min_p = 0.02f,
                                            .repeat_penalty = 1.2f,
                                            .repeat_last_n = 32,
                                            .presence_penalty = 0.1f,
                                            .frequency_penalty = 0.2f,
                                            .seed = 7});
    if (!set) return set.error();
  }
  const auto done = sequence->generate(*tokens, options, [](std::string_view text) {
    std::cout << text;
    return true;
  });
  if (!done) return done.error();
  std::cout << '\n';  // as the program does
  return std::monostate();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const moeflux::Status done = write_text(argv[1], argv[2], std::string_view(argv[3]) == "sampled");
  if (done) return 0;
  std::cerr << "same_text: " << done.error().message << '\n';
  return 1;
}
