// One beginning, three endings: branches MODEL_FOLDER "Once upon a time"
//
// The prompt is evaluated once. Each ending is a fork of it, which shares its memory, with a seed
// of its own.
#include <iostream>
#include <moeflux/moeflux.hpp>

namespace {

int fail(const moeflux::Error& error) {
  std::cerr << "branches: " << error.message << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: branches MODEL_FOLDER PROMPT\n";
    return 2;
  }
  auto model = moeflux::Model::open(argv[1], {.context_length = 512});
  if (!model) return fail(model.error());
  const auto prompt = model->tokenize(argv[2], MF_TOKENIZE_ADD_SPECIAL);
  if (!prompt) return fail(prompt.error());
  auto trunk = model->create_sequence();
  if (!trunk) return fail(trunk.error());
  if (const auto done = trunk->eval(*prompt); !done) return fail(done.error());

  for (uint64_t seed = 1; seed <= 3; ++seed) {
    auto branch = trunk->fork();
    if (!branch) return fail(branch.error());
    if (const auto set = branch->set_sampler({.seed = seed}); !set) return fail(set.error());
    std::cout << seed << ": " << argv[2];
    const auto end =
        branch->generate({}, {.tokens_max = 24, .stop_strings = {"\n"}}, [](std::string_view text) {
          std::cout << text;
          return true;
        });
    if (!end) return fail(end.error());
    std::cout << '\n';
  }
  const auto metrics = model->metrics();
  if (!metrics) return fail(metrics.error());
  std::cerr << metrics->evaluated_tokens << " tokens evaluated, " << metrics->expert_bytes_read
            << " bytes of experts read\n";
  return 0;
}
