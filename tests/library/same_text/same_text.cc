// Continues a prompt through the C++ facade, with the modes of same_text.c: same_text MODEL_FOLDER
// PROMPT MODE [VALUE]
#include <iostream>
#include <string>

#include "moeflux/moeflux.hpp"

namespace {

moeflux::Status write_text(const char* folder, const char* prompt, const std::string& mode,
                           const std::string& value) {
  moeflux::ModelOptions model_options;
  if (mode == "full") model_options.context_length = std::stoi(value);
  auto model = moeflux::Model::open(folder, model_options);
  if (!model) return model.error();
  const auto tokens = model->tokenize(prompt, MF_TOKENIZE_ADD_SPECIAL);
  if (!tokens) return tokens.error();
  auto sequence = model->create_sequence();
  if (!sequence) return sequence.error();
  moeflux::GenerateOptions options;
  if (mode != "default") {
    options.tokens_max = 60;
    if (mode == "short") options.tokens_max = std::stoi(value);
    if (mode == "full") options.tokens_max = -1;
    if (mode == "stopped") options.stop_strings = {value};
    options.ignore_stop_tokens = true;
    const auto set = sequence->set_sampler({.temperature = 0.9f,
                                            .top_k = 30,
                                            .top_p = 0.95f,
                                            .min_p = 0.02f,
                                            .repeat_penalty = 1.2f,
                                            .repeat_last_n = 32,
                                            .presence_penalty = 0.1f,
                                            .frequency_penalty = 0.2f,
                                            .seed = 7,
                                            .typical_p = 0.95f,
                                            .dynatemp_range = 0.25f,
                                            .dry_multiplier = 0.75f,
                                            .dry_sequence_breakers = {{"\n"}},
                                            .samplers = "penalties;dry;typ_p;top_k;top_p;min_p;"
                                                        "temperature"});
    if (!set) return set.error();
  }
  int pieces_left = mode == "cancelled" ? std::stoi(value) : -1;
  const auto done = sequence->generate(*tokens, options, [&](std::string_view text) {
    std::cout << text;
    return --pieces_left != 0;
  });
  if (!done) return done.error();
  std::cout << '\n';  // as the program does
  return std::monostate();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  const moeflux::Status done = write_text(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : "");
  if (done) return 0;
  std::cerr << "same_text: " << done.error().message << '\n';
  return 1;
}
