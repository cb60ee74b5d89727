#include "cli/sampling_options.h"

#include <charconv>
#include <cstdlib>
#include <random>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

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

std::optional<uint64_t> parse_seed(const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, seed);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return seed;
}

// 32 bits: enough to differ, short enough to be typed again.
uint64_t seed_of(const SamplingFlags& flags) {
  if (flags.draws_seed()) return std::random_device{}();
  const std::optional<uint64_t> seed = parse_seed(flags.seed);
  MF_CHECK(seed.has_value());  // the command line took no other
  return *seed;
}

// A shell's word rarely has a newline: \n and \t stand for what they do in C.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      plain += text[i];
      continue;
    }
    const char escaped = text[++i];
    plain += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
  }
  return plain;
}

// "none" clears the default and adds nothing, as in llama.cpp.
void set_breakers(const std::vector<std::string>& flags, std::vector<std::string>& breakers) {
  if (flags.empty()) return;
  breakers.clear();
  for (const std::string& text : flags) {
    if (text == "none") {
      breakers.clear();
    } else {
      breakers.push_back(without_escapes(text));
    }
  }
}

// An option of a command, kept from taking the prompt: one value a flag.
template <typename Option>
Option* in_group(Option* option) {
  return option->group("Sampling (defaults: generation_config.json)")->allow_extra_args(false);
}

/// A flag for a number of SamplerOptions.
class NumberFlags {
 public:
  NumberFlags(CLI::App& app, SamplingFlags& flags) : app_(app), flags_(flags) {}

  template <typename T>
  void add(const char* name, T SamplerOptions::*field, const char* help) {
    const auto set = [&flags = flags_, field](const T& value) {
      flags.numbers.push_back([field, value](SamplerOptions& options) { options.*field = value; });
    };
    in_group(app_.add_option_function<T>(name, set, help));
  }

 private:
  CLI::App& app_;
  SamplingFlags& flags_;
};

void add_number_options(NumberFlags flags) {
  using O = SamplerOptions;
  flags.add("--temp", &O::temperature, "Temperature; 0 is greedy");
  flags.add("--top-k", &O::top_k, "Keep the k likeliest tokens; 0 keeps all");
  flags.add("--top-p", &O::top_p, "Keep the likeliest tokens up to this probability");
  flags.add("--min-p", &O::min_p, "Drop tokens less likely than this share of the likeliest");
  flags.add("--top-nsigma,--top-n-sigma", &O::top_n_sigma,
            "Keep logits within so many deviations of the highest; 0 keeps all");
  flags.add("--typical,--typical-p", &O::typical_p,
            "Keep the tokens of most typical surprise up to this probability; 1 keeps all");
  flags.add("--xtc-probability", &O::xtc_probability,
            "How often top choices but the last are left out (XTC); 0 is never");
  flags.add("--xtc-threshold", &O::xtc_threshold, "From which probability on XTC leaves out");
  flags.add("--dynatemp-range", &O::dynatemp_range,
            "How far entropy moves the temperature to either side; 0: not");
  flags.add("--dynatemp-exp", &O::dynatemp_exponent, "Exponent of the entropy in that");
  flags.add("--mirostat", &O::mirostat,
            "1 or 2: Mirostat of that version after temperature, in place of all other samplers");
  flags.add("--mirostat-lr", &O::mirostat_eta, "How fast Mirostat learns (eta)");
  flags.add("--mirostat-ent", &O::mirostat_tau, "The surprise Mirostat aims at, in bits (tau)");
  flags.add("--repeat-penalty", &O::repeat_penalty, "Penalty for recent tokens; 1 is none");
  flags.add("--repeat-last-n", &O::repeat_last_n, "How many tokens count as recent; -1: all");
  flags.add("--presence-penalty", &O::presence_penalty, "Subtracted once from recent tokens");
  flags.add("--frequency-penalty", &O::frequency_penalty, "Subtracted per use from recent tokens");
  flags.add("--dry-multiplier", &O::dry_multiplier,
            "Penalty for tokens that would continue a repetition (DRY); 0 is none");
  flags.add("--dry-base", &O::dry_base, "Its growth with every token repeated");
  flags.add("--dry-allowed-length", &O::dry_allowed_length, "Shorter repetitions cost nothing");
  flags.add("--dry-penalty-last-n", &O::dry_penalty_last_n,
            "How many tokens are searched for repetitions; -1: all");
}

}  // namespace

Result<SamplerOptions> sampler_options(const SamplingFlags& flags, SamplerOptions options) {
  for (const auto& set : flags.numbers) set(options);
  for (const std::string& text : flags.logit_bias) {
    MF_ASSIGN_OR_RETURN(const LogitBias bias, parse_logit_bias(text));
    options.logit_bias.push_back(bias);
  }
  set_breakers(flags.dry_sequence_breakers, options.dry_sequence_breakers);
  if (flags.samplers) {
    MF_ASSIGN_OR_RETURN(options.samplers, parse_sampler_order(*flags.samplers));
  }
  if (flags.sampler_seq) {
    MF_ASSIGN_OR_RETURN(options.samplers, parse_sampler_letters(*flags.sampler_seq));
  }
  options.seed = seed_of(flags);
  MF_RETURN_IF_ERROR(validate(options));
  return options;
}

void add_sampling_options(CLI::App& app, SamplingFlags& flags) {
  add_number_options({app, flags});
  const auto add = [&](const char* name, auto& value, const char* help) {
    return in_group(app.add_option(name, value, help));
  };
  add("--dry-sequence-breaker", flags.dry_sequence_breakers,
      "What DRY's repetitions do not reach across, in place of \\n : \" *; may be repeated, none "
      "is none");
  CLI::Option* names = add("--samplers", flags.samplers,
                           "The steps in order, with semicolons between (default: penalties;dry;"
                           "top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)");
  add("--sampler-seq,--sampling-seq", flags.sampler_seq, "The same in letters: edskypmxt")
      ->excludes(names);
  add("-l,--logit-bias", flags.logit_bias, "TOKEN_ID+BIAS or TOKEN_ID-BIAS; may be repeated");
  add("-s,--seed", flags.seed, "Same seed, same text; -1 draws one and prints it")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool valid = text == "-1" || parse_seed(text).has_value();
            return valid ? std::string() : "is " + text + ", expected -1, 0 or more";
          },
          ""))
      ->capture_default_str();
}

}  // namespace moeflux
