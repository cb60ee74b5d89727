// moeflux perplexity: how well a model predicts a text, over windows of the context size, and how
// far its predictions lie from those of another device, model or program.
#include "cli/commands/perplexity.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "chat/model_text.h"
#include "cli/commands/command.h"
#include "cli/logits_source.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "io/file.h"
#include "io/host_memory.h"
#include "lab/saved_logits.h"
#include "plan/memory_plan.h"
#include "sampling/text_score.h"

namespace moeflux {
namespace perplexity_command {
namespace {

using Options = PerplexityOptions;

/// The other side of a comparison: this model elsewhere, in f32, or another model in its place.
ModelOptions base_options(const Options& options) {
  ModelOptions base = options.model;
  if (path_exists(options.base)) {
    base.model = options.base;
    return base;
  }
  base.device.name = options.base;
  base.device.precision = "f32";
  base.cache_type_k = base.cache_type_v = "f32";
  base.device.pin_threads = false;
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
  return open_model(directory, {.device = options.device, .engine = std::move(engine)});
}

struct Models {
  std::shared_ptr<OpenModel> subject;
  std::shared_ptr<OpenModel> base;  // or null
};

Result<Models> open_models(const Options& options) {
  Models models;
  if (options.base.empty()) {
    MF_ASSIGN_OR_RETURN(models.subject, open_model(options.model));
    return models;
  }
  Result<std::shared_ptr<OpenModel>> base = open_one_of_two(base_options(options));
  if (!base.ok()) {
    return base.error().with_context("--compare: neither a model nor a device that works");
  }
  models.base = std::move(base).value();
  MF_ASSIGN_OR_RETURN(models.subject, open_one_of_two(options.model));
  return models;
}

bool scores_second_halves(const Options& options) {
  return options.score == "second-half" || !options.saved_base.empty();
}

// Second halves are for comparing with another program, which reads a text with what the tokenizer
// puts around it, and finds no control tokens in it.
EncodeOptions encode_options(const Options& options) {
  if (!scores_second_halves(options)) return {};
  return {.add_special_tokens = true, .match_added_tokens = false};
}

struct Text {
  std::string text;  // empty where the tokens come from a file
  std::vector<TokenId> tokens;
  std::vector<TokenId> prefix;  // Tokenizer::prefix() of the model
};

// A text that is given besides must be the one whose tokens the file has.
Status check_saved_tokens(const SavedLogits& saved, const std::string& file,
                          std::span<const TokenId> tokens) {
  const std::vector<TokenId>& others = saved.tokens();
  const auto [ours, theirs] = std::ranges::mismatch(tokens, others);
  if (theirs == others.end()) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--kl-base: token {} of {} is {}, of {} {}; expected one text and tokenizer",
                    theirs - others.begin(), saved.path(), *theirs, file,
                    ours == tokens.end() ? "there is none" : formatted("it is {}", *ours));
}

Result<Text> read_text(const Options& options, const std::string& directory,
                       const std::optional<SavedLogits>& saved) {
  Text text;
  const Result<Tokenizer> tokenizer = load_tokenizer(directory);
  if (tokenizer.ok()) {
    text.prefix = tokenizer->prefix();
  } else if (!options.file.empty() || tokenizer.error().code() != ErrorCode::kNotFound) {
    return tokenizer.error();
  }
  if (!options.file.empty()) {
    MF_ASSIGN_OR_RETURN(text.text, read_text_input(options.file));
    MF_ASSIGN_OR_RETURN(text.tokens, tokenizer->encode(text.text, encode_options(options)));
  }
  if (!saved) return text;
  if (!options.file.empty()) {
    MF_RETURN_IF_ERROR(check_saved_tokens(*saved, options.file, text.tokens));
  }
  text.tokens = saved->tokens();
  return text;
}

// The text has the same tokens for both.
Status check_tokenizers(const Models& models, const Options& options, const Text& text) {
  if (models.base->directory == models.subject->directory) return {};
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(models.base->directory));
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> others,
                      tokenizer.encode(text.text, encode_options(options)));
  if (text.tokens == others) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--compare: the tokenizers of {} and {} make {} and {} tokens of the text, "
                    "expected the same ones",
                    models.base->directory, models.subject->directory, others.size(),
                    text.tokens.size());
}

// Tokens in windows of one size, each to be evaluated afresh.
struct Windows {
  std::vector<TokenId> tokens;
  size_t size = 0;
  size_t count = 0;
  size_t first_scored = 0;  // what positions before this one of a window expect does not count

  // The last one may be short.
  std::span<const TokenId> at(size_t i) const {
    const std::span<const TokenId> rest = std::span(tokens).subspan(i * size);
    return rest.first(std::min(size, rest.size()));
  }
};

// Whole windows alone, each of which begins with the token that begins a text, if there is one: it
// takes the place of the window's first.
Result<Windows> cut_second_halves(const Options& options, const Text& text, size_t size) {
  Windows windows{.tokens = text.tokens, .size = size, .count = text.tokens.size() / size};
  windows.first_scored = static_cast<size_t>(first_scored_position(static_cast<int64_t>(size)));
  if (size < 3 || windows.count == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} tokens in windows of {}; second halves need at least one whole "
                      "window of 3 or more",
                      options.file, text.tokens.size(), size);
  }
  if (text.prefix.empty()) return windows;
  for (size_t i = 0; i < windows.count; ++i) windows.tokens[i * size] = text.prefix.front();
  return windows;
}

Result<Windows> cut(const Options& options, const Text& text, int64_t context) {
  const auto size = static_cast<size_t>(context);
  Windows windows{.tokens = text.tokens, .size = size};
  if (scores_second_halves(options)) {
    MF_ASSIGN_OR_RETURN(windows, cut_second_halves(options, text, size));
  } else if (size < 2 || text.tokens.size() < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} tokens in windows of {}; perplexity needs at least 2 of each",
                      options.file, text.tokens.size(), size);
  } else {
    windows.count = (text.tokens.size() - 2) / size + 1;
  }
  if (options.windows_max > 0) {
    windows.count = std::min(windows.count, static_cast<size_t>(options.windows_max));
  }
  return windows;
}

struct Sources {
  std::unique_ptr<LogitsSource> subject;
  std::unique_ptr<LogitsSource> base;  // or null
  // Tokens to ask rows of at a time: as many as the engine computes at once, so that memory stays
  // small.
  size_t step = 1;
};

// Ids must mean the same to both: rows are as long.
Result<Sources> make_sources(const Models& models, std::optional<SavedLogits> saved) {
  const Engine& engine = *models.subject->engine;
  Sources sources{.subject = make_logits_source(models.subject)};
  sources.step = static_cast<size_t>(logits_rows_max(engine.spec(), engine.prefill_chunk()));
  if (models.base) sources.base = make_logits_source(models.base);
  if (saved) sources.base = make_logits_source(std::move(*saved));
  if (!sources.base) return sources;
  const int64_t vocab = sources.subject->vocab_size();
  const int64_t base_vocab = sources.base->vocab_size();
  if (base_vocab == vocab) return sources;
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: {} has logits of {} tokens, {} of {}; expected one vocabulary",
                    models.base ? "--compare" : "--kl-base", sources.base->name(), base_vocab,
                    sources.subject->name(), vocab);
}

struct Scores {
  TextScore subject;
  TextScore base;
  DivergenceScore apart;
};

// Every token of a window behind the first scored position is predicted from those before it.
Status score_window(Sources& sources, const Windows& windows, size_t i, Scores& scores) {
  std::span<const TokenId> window = windows.at(i);
  const std::span<const TokenId> unscored = window.first(windows.first_scored);
  window = window.subspan(windows.first_scored);
  for (LogitsSource* source : {sources.subject.get(), sources.base.get()}) {
    if (source == nullptr) continue;
    MF_RETURN_IF_ERROR(source->begin_window(static_cast<int64_t>(i)));
    MF_RETURN_IF_ERROR(source->skip(unscored));
  }
  const auto vocab = static_cast<size_t>(sources.subject->vocab_size());
  for (const TokenId token : window) {
    if (token >= 0 && static_cast<size_t>(token) < vocab) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "token {} of the text is outside the vocabulary of {}", token, vocab);
  }
  std::vector<float> rows;
  std::vector<float> base_rows;
  for (; window.size() > 1; window = window.subspan(std::min(sources.step, window.size() - 1))) {
    const auto tokens = window.first(std::min(sources.step, window.size() - 1));
    MF_RETURN_IF_ERROR(sources.subject->read(tokens, rows));
    if (sources.base) MF_RETURN_IF_ERROR(sources.base->read(tokens, base_rows));
    for (size_t t = 0; t < tokens.size(); ++t) {
      const auto row = std::span<const float>(rows).subspan(t * vocab, vocab);
      scores.subject.add(surprise(row, window[t + 1]));
      if (!sources.base) continue;
      const auto base_row = std::span<const float>(base_rows).subspan(t * vocab, vocab);
      scores.base.add(surprise(base_row, window[t + 1]));
      scores.apart.add(base_row, row, sources.base->least());
    }
  }
  return {};
}

std::string describe(const TextScore& score) {
  return formatted("{:.4f} +/- {:.4f} ({:.5f} nats/token", score.perplexity(),
                   score.perplexity_error(), score.mean());
}

std::string describe_comparison(const LogitsSource& base, const Scores& scores) {
  return formatted("base perplexity {}, {})\n", describe(scores.base), base.name()) +
         formatted("change of perplexity {:+.3f} %\n",
                   100.0 * (scores.subject.perplexity() / scores.base.perplexity() - 1.0)) +
         formatted("KL(base || this) mean {:.6f}, p99 {:.6f} nats; same top token {:.3f} %\n",
                   scores.apart.mean(), scores.apart.quantile(0.99),
                   100.0 * scores.apart.same_top_share());
}

// Opens what --kl-base names, which says how long windows are.
Result<std::optional<SavedLogits>> open_saved(Options& options) {
  if (options.saved_base.empty()) return std::optional<SavedLogits>();
  MF_ASSIGN_OR_RETURN(std::unique_ptr<File> file, open_file(options.saved_base));
  Result<SavedLogits> saved = SavedLogits::open(std::move(file));
  if (!saved.ok()) return saved.error().with_context("--kl-base");
  if (options.score == "all") {
    return make_error(ErrorCode::kInvalidArgument,
                      "--score all: {} has second halves alone, expected --score second-half",
                      options.saved_base);
  }
  int64_t& context = options.model.engine.context_length;
  if (context != 0 && context != saved->window()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--ctx-size {}: {} has windows of {}, expected that or no --ctx-size",
                      context, options.saved_base, saved->window());
  }
  context = saved->window();
  return std::optional<SavedLogits>(std::move(saved).value());
}

}  // namespace
}  // namespace perplexity_command

Status print_perplexity(PerplexityOptions options) {
  MF_ASSIGN_OR_RETURN(std::optional<SavedLogits> saved, perplexity_command::open_saved(options));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(const perplexity_command::Text text,
                      perplexity_command::read_text(options, directory, saved));
  if (options.model.engine.context_length == 0) options.model.engine.context_length = 512;
  MF_ASSIGN_OR_RETURN(const perplexity_command::Models models,
                      perplexity_command::open_models(options));
  MF_ASSIGN_OR_RETURN(perplexity_command::Sources sources,
                      perplexity_command::make_sources(models, std::move(saved)));
  if (models.base) MF_RETURN_IF_ERROR(perplexity_command::check_tokenizers(models, options, text));
  MF_ASSIGN_OR_RETURN(
      const perplexity_command::Windows windows,
      perplexity_command::cut(options, text, models.subject->engine->memory_plan().context_length));
  perplexity_command::Scores scores;
  {
    ProgressBar progress("perplexity", windows.count);
    for (size_t i = 0; i < windows.count; ++i) {
      MF_RETURN_IF_ERROR(perplexity_command::score_window(sources, windows, i, scores));
      progress.update(i + 1);
    }
  }
  std::string report =
      formatted("perplexity {}, {} tokens, {}{} windows of {}, {})\n",
                perplexity_command::describe(scores.subject), scores.subject.tokens(),
                windows.first_scored > 0 ? "second halves of " : "", windows.count, windows.size,
                models.subject->device->name());
  if (sources.base) report += perplexity_command::describe_comparison(*sources.base, scores);
  return print_out(report);
}

Command make_perplexity_command(const CommandContext& context) {
  auto options = std::make_shared<PerplexityOptions>();
  options->model.log = &context.log;
  CommandOptions command(
      "perplexity", "Perplexity of a text file, in windows of the context size (default 512).");
  command.example("moeflux perplexity -m FOLDER -f text.txt");
  command.example("moeflux perplexity -m model.gguf -f text.txt --compare FOLDER");
  command.example("moeflux perplexity -m model.gguf --kl-base logits.kld");
  command.group("Text");
  Option& file = command.add("-f,--file", options->file, "Text file; '-': standard input")
                     .value("FILE")
                     .not_empty();
  Option& saved =
      command
          .add("--kl-base", options->saved_base,
               "File of llama-perplexity --kl-divergence-base to compare with: its tokens, its "
               "windows, their second halves. --file is then optional, and must be the same text")
          .value("FILE")
          .not_empty();
  file.required_unless(saved);
  command
      .add("--compare", options->base,
           "Base to compare with: another model of the same vocabulary, or another device for "
           "this model, in f32. Prints the base's perplexity, KL(base || this) in nats a token "
           "(mean, 99th percentile) and the share of equal first choices. Each model gets "
           "--expert-cache, by default half of the free memory")
      .value("BASE")
      .not_empty()
      .excludes(saved);
  command
      .add("--score", options->score,
           "Predictions that count: all of a window, or the second-half of whole windows, as in "
           "llama-perplexity (default: all)")
      .value("PART")
      .choices({"all", "second-half"});
  command.add("--chunks", options->windows_max, "Windows to evaluate; 0: all").range(0, 1e18);
  add_model_options(command, options->model);
  return {std::move(command), [options] { return print_perplexity(*options); }};
}

}  // namespace moeflux
