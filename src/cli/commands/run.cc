// moeflux run: continues a prompt, token by token, and ends with a line of statistics. Ctrl-C ends
// the text, not the program's success: statistics follow and the exit status is 0. A second Ctrl-C
// ends the program at once, with status 130.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "chat/model_text.h"
#include "chat/text_generator.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "io/host_memory.h"
#include "io/interrupt.h"

namespace moeflux {
namespace {

// What the user set; everything else comes from the model's generation_config.json.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repeat_penalty;
  std::optional<int32_t> repeat_last_n;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::string> logit_bias;
  uint64_t seed = 0;
};

struct Options {
  ModelOptions model;
  SamplingFlags sampling;
  std::string prompt;
  std::string file;
  int64_t tokens_max = 128;
  bool ignore_eos = false;
  bool quiet = false;
  bool json = false;
};

// "15043+1" or "15043-0.5", as in llama.cpp; "-inf" bans.
Result<LogitBias> parse_logit_bias(const std::string& text) {
  const size_t sign = text.find_first_of("+-");
  char* end = nullptr;
  LogitBias bias;
  bool valid = sign != std::string::npos && sign > 0 && sign < 10;
  if (valid) {
    bias.token = static_cast<TokenId>(std::strtol(text.c_str(), &end, 10));
    valid = end == text.c_str() + sign;
  }
  if (valid) {
    bias.bias = std::strtof(text.c_str() + sign, &end);
    valid = *end == '\0' && end > text.c_str() + sign;
  }
  if (valid) return bias;
  return make_error(ErrorCode::kInvalidArgument,
                    "--logit-bias: '{}' is not TOKEN_ID followed by +BIAS or -BIAS", text);
}

Result<SamplerOptions> sampler_options(const SamplingFlags& flags, SamplerOptions options) {
  if (flags.temperature) options.temperature = *flags.temperature;
  if (flags.top_k) options.top_k = *flags.top_k;
  if (flags.top_p) options.top_p = *flags.top_p;
  if (flags.min_p) options.min_p = *flags.min_p;
  if (flags.repeat_penalty) options.repeat_penalty = *flags.repeat_penalty;
  if (flags.repeat_last_n) options.repeat_last_n = *flags.repeat_last_n;
  if (flags.presence_penalty) options.presence_penalty = *flags.presence_penalty;
  if (flags.frequency_penalty) options.frequency_penalty = *flags.frequency_penalty;
  for (const std::string& text : flags.logit_bias) {
    MF_ASSIGN_OR_RETURN(const LogitBias bias, parse_logit_bias(text));
    options.logit_bias.push_back(bias);
  }
  options.seed = flags.seed;
  MF_RETURN_IF_ERROR(validate(options));
  return options;
}

void add_sampling_options(CLI::App& app, SamplingFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)
        ->group("Sampling (defaults: generation_config.json)")
        ->allow_extra_args(false);  // one value a flag: the next word may be the prompt
  };
  add("--temp", flags.temperature, "Temperature; 0 is greedy");
  add("--top-k", flags.top_k, "Keep the k likeliest tokens; 0 keeps all");
  add("--top-p", flags.top_p, "Keep the likeliest tokens up to this probability");
  add("--min-p", flags.min_p, "Drop tokens less likely than this share of the likeliest");
  add("--repeat-penalty", flags.repeat_penalty, "Penalty for recent tokens; 1 is none");
  add("--repeat-last-n", flags.repeat_last_n, "How many tokens count as recent; -1: all");
  add("--presence-penalty", flags.presence_penalty, "Subtracted once from recent tokens");
  add("--frequency-penalty", flags.frequency_penalty, "Subtracted per use from recent tokens");
  add("--logit-bias", flags.logit_bias, "TOKEN_ID+BIAS or TOKEN_ID-BIAS; may be repeated");
  add("-s,--seed", flags.seed, "Same seed, same text (default 0)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text.rfind('-', 0) == 0 ? "is " + text + ", expected 0 or more" : std::string();
          },
          ""));
}

Result<std::string> read_prompt(const Options& options, bool prompt_given) {
  if (prompt_given && !options.file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "give the prompt as text or with -f, not both");
  }
  if (prompt_given) return options.prompt;
  if (!options.file.empty()) return read_text_input(options.file);
  if (isatty(STDIN_FILENO) == 0) return read_text_input("-");
  return make_error(ErrorCode::kInvalidArgument,
                    "no prompt; give one as an argument, with -f FILE or on standard input");
}

Status run(const Options& options, bool prompt_given) {
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(GenerationDefaults defaults, load_generation_defaults(directory));
  GenerateOptions generation;
  generation.tokens_max = options.tokens_max;
  generation.stop = interrupts->token();
  MF_ASSIGN_OR_RETURN(generation.sampler, sampler_options(options.sampling, defaults.sampler));
  MF_ASSIGN_OR_RETURN(const std::string prompt, read_prompt(options, prompt_given));
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(directory));
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                      tokenizer.encode(prompt, {.add_special_tokens = true}));
  if (tokens.empty()) return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  MF_ASSIGN_OR_RETURN(OpenedModel opened, open_model(options.model));
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, opened.engine->create_sequence());
  for (const LogitBias& bias : generation.sampler.logit_bias) {
    if (bias.token < opened.engine->spec().vocab_size) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "--logit-bias: token {} is outside the vocabulary of {}", bias.token,
                      opened.engine->spec().vocab_size);
  }
  generation.sampler.vocab_limit = tokenizer.vocab_size();
  if (options.ignore_eos) {
    for (const TokenId token : defaults.stop_tokens) {
      generation.sampler.logit_bias.push_back({token, -INFINITY});
    }
  } else {
    generation.stop_tokens = defaults.stop_tokens;
  }
  MF_ASSIGN_OR_RETURN(auto routes, record_routes(options.model, directory, *opened.engine));
  if (!options.quiet) MF_RETURN_IF_ERROR(print_out(prompt));
  Status written;
  MF_ASSIGN_OR_RETURN(const GenerateResult result,
                      generate(*opened.engine, tokenizer, *sequence, tokens, generation,
                               [&](std::string_view text) {
                                 if (written.ok()) written = print_out(text);
                                 return written.ok();
                               }));
  MF_RETURN_IF_ERROR(finish_route_trace(*opened.engine, std::move(routes)));
  MF_RETURN_IF_ERROR(opened.engine->save_expert_profile());
  if (written.ok()) written = print_out("\n");
  if (!written.ok() && written.error().code() != ErrorCode::kCancelled) return written;
  if (options.json) {
    print_err(run_statistics_json(result, peak_resident_bytes()).dump());
  } else if (!options.quiet) {
    print_note(run_statistics_line(result, peak_resident_bytes()));
  }
  return {};
}

}  // namespace

RegisteredCommand add_run_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      program.add_subcommand("run", "Continue a prompt. Ctrl-C ends the text, twice the program");
  add_model_options(*app, options->model);
  add_route_trace_option(*app, options->model);
  const CLI::Option* text = app->add_option("prompt,-p,--prompt", options->prompt, "The prompt");
  app->add_option("-f,--file", options->file, "Read the prompt from a file ('-': standard input)");
  app->add_option("-n,--n-predict", options->tokens_max,
                  "Tokens to generate (-1: until the end of text or context)")
      ->capture_default_str();
  app->add_flag("--ignore-eos", options->ignore_eos, "Do not stop at an end-of-text token");
  app->add_flag("-q,--quiet", options->quiet, "Print only the generated text");
  app->add_flag("--json", options->json,
                "Statistics as a line of JSON on standard error, with --quiet too");
  add_sampling_options(*app, options->sampling);
  return {app, [options, text] { return run(*options, text->count() > 0); }};
}

}  // namespace moeflux
