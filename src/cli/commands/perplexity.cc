// moeflux perplexity: how well a model predicts a text, over windows of the context size, and how
// far its predictions lie from those of another device or model.
#include "cli/commands/perplexity.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "chat/model_text.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "engine/memory_plan.h"
#include "io/file.h"
#include "io/host_memory.h"
#include "sampling/text_score.h"

namespace moeflux {
namespace {

using Options = PerplexityOptions;

/// The other side of a comparison: this model elsewhere, in f32, or another model in its place.
ModelOptions base_options(const Options& options) {
  ModelOptions base = options.model;
  if (is_directory(options.base)) {
    base.model = options.base;
    return base;
  }
  base.device = options.base;
  base.precision = "f32";
  base.cache_type_k = base.cache_type_v = "f32";
  base.pin_threads = false;
  return base;
}

HostMemory half_of_memory() {
  HostMemory memory = query_host_memory();
  memory.available_bytes /= 2;
  return memory;
}

// Leaves room for another.
Result<std::shared_ptr<OpenModel>> open_one_of_two(const ModelOptions& options) {
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options));
  engine.read_memory = half_of_memory;
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options));
  return open_model(directory, {.device = device_options(options), .engine = std::move(engine)});
}

struct Models {
  std::shared_ptr<OpenModel> subject;
  std::shared_ptr<OpenModel> base;  // or null
};

// Ids must mean the same to both: the text has the same tokens, and rows are as long.
Status check_vocabulary(const Models& models, const std::string& text,
                        std::span<const TokenId> tokens) {
  const int64_t vocab = models.subject->engine->spec().vocab_size;
  const int64_t base_vocab = models.base->engine->spec().vocab_size;
  if (base_vocab != vocab) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--compare: {} has logits of {} tokens, {} of {}; expected one vocabulary",
                      models.base->directory, base_vocab, models.subject->directory, vocab);
  }
  if (models.base->directory == models.subject->directory) return {};
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(models.base->directory));
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> others, tokenizer.encode(text));
  if (std::ranges::equal(tokens, others)) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--compare: the tokenizers of {} and {} make {} and {} tokens of the text, "
                    "expected the same ones",
                    models.base->directory, models.subject->directory, others.size(),
                    tokens.size());
}

Result<Models> open_models(const Options& options) {
  Models models;
  if (options.base.empty()) {
    MF_ASSIGN_OR_RETURN(models.subject, open_model(options.model));
    return models;
  }
  Result<std::shared_ptr<OpenModel>> base = open_one_of_two(base_options(options));
  if (!base.ok()) {
    return base.error().with_context("--compare: neither a model folder nor a device that works");
  }
  models.base = std::move(base).value();
  MF_ASSIGN_OR_RETURN(models.subject, open_one_of_two(options.model));
  return models;
}

struct Scores {
  TextScore subject;
  TextScore base;
  DivergenceScore apart;
};

// logits [tokens, vocab] of the next tokens of a sequence.
Status eval_rows(Engine& engine, Sequence& sequence, std::span<const TokenId> tokens,
                 std::vector<float>& logits) {
  logits.clear();
  return engine.eval(sequence, tokens, {.logits = LogitsMode::kAll},
                     [&](int64_t, std::span<const float> rows) {
                       logits.insert(logits.end(), rows.begin(), rows.end());
                       return Status();
                     });
}

// Every token of a window but the first is predicted from those before it, in a fresh sequence.
// Takes as many tokens at a time as the engine gives logits of at once, so that memory stays small.
Status score_window(Models& models, std::span<const TokenId> window, Scores& scores) {
  Engine& engine = *models.subject->engine;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence, engine.create_sequence());
  std::unique_ptr<Sequence> base_sequence;
  if (models.base) {
    MF_ASSIGN_OR_RETURN(base_sequence, models.base->engine->create_sequence());
  }
  const auto vocab = static_cast<size_t>(engine.spec().vocab_size);
  const auto step = static_cast<size_t>(logits_rows_max(engine.spec(), engine.prefill_chunk()));
  std::vector<float> rows;
  std::vector<float> base_rows;
  for (; window.size() > 1; window = window.subspan(std::min(step, window.size() - 1))) {
    const auto tokens = window.first(std::min(step, window.size() - 1));
    MF_RETURN_IF_ERROR(eval_rows(engine, *sequence, tokens, rows));
    if (models.base) {
      MF_RETURN_IF_ERROR(eval_rows(*models.base->engine, *base_sequence, tokens, base_rows));
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto row = std::span<const float>(rows).subspan(i * vocab, vocab);
      scores.subject.add(surprise(row, window[i + 1]));
      if (!models.base) continue;
      const auto base_row = std::span<const float>(base_rows).subspan(i * vocab, vocab);
      scores.base.add(surprise(base_row, window[i + 1]));
      scores.apart.add(base_row, row);
    }
  }
  return {};
}

std::string describe(const TextScore& score) {
  return formatted("{:.4f} +/- {:.4f} ({:.5f} nats/token", score.perplexity(),
                   score.perplexity_error(), score.mean());
}

std::string describe_comparison(const Models& models, const Scores& scores) {
  return formatted("base perplexity {}, {} on {})\n", describe(scores.base), models.base->directory,
                   models.base->device->name()) +
         formatted("change of perplexity {:+.3f} %\n",
                   100.0 * (scores.subject.perplexity() / scores.base.perplexity() - 1.0)) +
         formatted("KL(base || this) mean {:.6f}, p99 {:.6f} nats; same top token {:.3f} %\n",
                   scores.apart.mean(), scores.apart.quantile(0.99),
                   100.0 * scores.apart.same_top_share());
}

}  // namespace

Status print_perplexity(PerplexityOptions options) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(options.file));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(directory));
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, tokenizer.encode(text));
  if (options.model.context_size == 0) options.model.context_size = 512;
  MF_ASSIGN_OR_RETURN(Models models, open_models(options));
  if (models.base) MF_RETURN_IF_ERROR(check_vocabulary(models, text, tokens));
  const auto window = static_cast<size_t>(models.subject->engine->context_length());
  if (window < 2 || tokens.size() < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} tokens in windows of {}; perplexity needs at least 2 of each",
                      options.file, tokens.size(), window);
  }
  size_t windows = (tokens.size() - 2) / window + 1;  // the last one may be short
  if (options.windows_max > 0) {
    windows = std::min(windows, static_cast<size_t>(options.windows_max));
  }
  Scores scores;
  {
    ProgressBar progress("perplexity", windows);
    for (size_t i = 0; i < windows; ++i) {
      const std::span<const TokenId> rest = std::span(tokens).subspan(i * window);
      MF_RETURN_IF_ERROR(score_window(models, rest.first(std::min(window, rest.size())), scores));
      progress.update(i + 1);
    }
  }
  std::string report =
      formatted("perplexity {}, {} tokens, {} windows of {}, {})\n", describe(scores.subject),
                scores.subject.tokens(), windows, window, models.subject->device->name());
  if (models.base) report += describe_comparison(models, scores);
  return print_out(report);
}

RegisteredCommand add_perplexity_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app = program.add_subcommand(
      "perplexity", "Perplexity of a text file, in windows of the context size (default 512)");
  add_model_options(*app, options->model);
  app->add_option("-f,--file", options->file, "Text file ('-': standard input)")->required();
  app->add_option("--chunks", options->windows_max, "Stop after this many windows (0: all)")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  app->add_option(
         "--compare", options->base,
         "Also evaluate the text with a base: another model folder of the same vocabulary, "
         "on the same device and in the same precision, or this model on another device "
         "(reference, cpu, cuda:0, ...) with all in f32. Prints the base's perplexity, KL(base || "
         "this) in nats a token (mean and 99th percentile) and the share of tokens for "
         "which both expect the same one first. Both models are in memory; --expert-cache "
         "holds for each, by default each takes half of what is free")
      ->check(not_empty());
  return {app, [options] { return print_perplexity(*options); }};
}

}  // namespace moeflux
