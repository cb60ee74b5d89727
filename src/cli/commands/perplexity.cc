// moeflux perplexity: how well a model predicts a text, over windows of the context size.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "chat/model_text.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"

namespace moeflux {
namespace {

struct Options {
  ModelOptions model;
  std::string file;
  int64_t windows_max = 0;
};

// Negative log-likelihood of `target`, with the softmax in f64.
double surprise(std::span<const float> logits, TokenId target) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += std::exp(logit - largest);
  return std::log(total) + largest - logits[static_cast<size_t>(target)];
}

struct Score {
  double nats = 0.0;
  double squares = 0.0;
  int64_t tokens = 0;
};

// Every token of a window but the first is predicted from those before it, in a fresh sequence.
Status score_window(Engine& engine, std::span<const TokenId> window, Score& score) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, engine.create_sequence());
  const auto vocab = static_cast<size_t>(engine.spec().vocab_size);
  return engine.eval(*sequence, window.first(window.size() - 1), {.logits = LogitsMode::kAll},
                     [&](int64_t first, std::span<const float> rows) {
                       for (size_t row = 0; row < rows.size() / vocab; ++row) {
                         const double nats = surprise(rows.subspan(row * vocab, vocab),
                                                      window[static_cast<size_t>(first) + row + 1]);
                         score.nats += nats;
                         score.squares += nats * nats;
                         ++score.tokens;
                       }
                       return Status();
                     });
}

Status run(Options options) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(options.file));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(directory));
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, tokenizer.encode(text));
  if (options.model.context_size == 0) options.model.context_size = 512;
  MF_ASSIGN_OR_RETURN(OpenedModel opened, open_model(options.model));
  const auto window = static_cast<size_t>(opened.engine->context_length());
  if (window < 2 || tokens.size() < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} tokens in windows of {}; perplexity needs at least 2 of each",
                      options.file, tokens.size(), window);
  }
  size_t windows = (tokens.size() - 2) / window + 1;  // the last one may be short
  if (options.windows_max > 0) {
    windows = std::min(windows, static_cast<size_t>(options.windows_max));
  }
  Score score;
  {
    ProgressBar progress("perplexity", windows);
    for (size_t i = 0; i < windows; ++i) {
      const std::span<const TokenId> rest = std::span(tokens).subspan(i * window);
      MF_RETURN_IF_ERROR(
          score_window(*opened.engine, rest.first(std::min(window, rest.size())), score));
      progress.update(i + 1);
    }
  }
  const auto n = static_cast<double>(score.tokens);
  const double mean = score.nats / n;
  const double deviation = std::sqrt(std::max(0.0, score.squares / n - mean * mean) / n);
  return print_out(
      format("perplexity {:.4f} +/- {:.4f} ({:.5f} nats/token, {} tokens, {} windows of {}, {})\n",
             std::exp(mean), std::exp(mean) * deviation, mean, score.tokens, windows, window,
             opened.device->name()));
}

}  // namespace

RegisteredCommand add_perplexity_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app = program.add_subcommand(
      "perplexity", "Perplexity of a text file, in windows of the context size (default 512)");
  add_model_options(*app, options->model);
  app->add_option("-f,--file", options->file, "Text file ('-': standard input)")->required();
  app->add_option("--chunks", options->windows_max, "Stop after this many windows (0: all)")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  return {app, [options] { return run(*options); }};
}

}  // namespace moeflux
