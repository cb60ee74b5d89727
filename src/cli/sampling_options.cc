#include "cli/sampling_options.h"

#include <charconv>
#include <cstdlib>
#include <random>
#include <string_view>

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

/// Adds flags for numbers of SamplerOptions.
class NumberFlags {
 public:
  NumberFlags(CommandOptions& command, SamplingFlags& flags) : command_(command), flags_(flags) {}

  template <typename T>
  Option& add(const char* name, T SamplerOptions::*field, const char* help) {
    const auto set = [&flags = flags_, field](std::span<const std::string> values) -> Status {
      T value{};
      MF_RETURN_IF_ERROR(parse_number(values.back(), value));
      flags.numbers.push_back([field, value](SamplerOptions& options) { options.*field = value; });
      return {};
    };
    return command_.add_call(name, "N", set, help).takes_last();
  }

 private:
  CommandOptions& command_;
  SamplingFlags& flags_;
};

void add_penalty_options(NumberFlags& flags) {
  using O = SamplerOptions;
  flags.add("--repeat-penalty", &O::repeat_penalty, "Penalty for recent tokens; 1: none")
      .in_help_all();
  flags.add("--repeat-last-n", &O::repeat_last_n, "Number of recent tokens; -1: all").in_help_all();
  flags.add("--presence-penalty", &O::presence_penalty, "Penalty for a recent token, once")
      .in_help_all();
  flags.add("--frequency-penalty", &O::frequency_penalty, "Penalty for each use of a recent token")
      .in_help_all();
  flags
      .add("--dry-multiplier", &O::dry_multiplier,
           "Penalty for tokens that continue a repetition (DRY); 0: none")
      .in_help_all();
  flags.add("--dry-base", &O::dry_base, "Growth of DRY's penalty with each repeated token")
      .in_help_all();
  flags.add("--dry-allowed-length", &O::dry_allowed_length, "Longest repetition that DRY allows")
      .in_help_all();
  flags
      .add("--dry-penalty-last-n", &O::dry_penalty_last_n,
           "Number of tokens that DRY searches for repetitions; -1: all")
      .in_help_all();
}

void add_number_options(NumberFlags& flags) {
  using O = SamplerOptions;
  flags.add("--temp,--temperature", &O::temperature, "Temperature; 0: greedy");
  flags.add("--top-k", &O::top_k, "Number of likeliest tokens to choose from; 0: all");
  flags.add("--top-p", &O::top_p, "Probability that the tokens to choose from add up to; 1: all");
  flags.add("--min-p", &O::min_p, "Least probability, as a share of the likeliest token's");
  flags
      .add("--top-nsigma,--top-n-sigma", &O::top_n_sigma,
           "Greatest distance from the highest logit, in standard deviations; 0: any")
      .in_help_all();
  flags
      .add("--typical,--typical-p", &O::typical_p,
           "Probability of the locally typical tokens to choose from; 1: all")
      .in_help_all();
  flags
      .add("--xtc-probability", &O::xtc_probability,
           "Chance that XTC removes the top candidates, all but the least likely of them; 0: off")
      .in_help_all();
  flags.add("--xtc-threshold", &O::xtc_threshold, "Least probability of XTC's top candidates")
      .in_help_all();
  flags
      .add("--dynatemp-range", &O::dynatemp_range,
           "Range of the dynamic temperature, to either side of --temp; 0: off")
      .in_help_all();
  flags
      .add("--dynatemp-exp", &O::dynatemp_exponent, "Exponent of the dynamic temperature's entropy")
      .in_help_all();
  flags
      .add("--mirostat", &O::mirostat,
           "Mirostat 1 or 2 after temperature, in place of all other samplers; 0: off")
      .in_help_all();
  flags.add("--mirostat-lr", &O::mirostat_eta, "Learning rate of Mirostat (eta)").in_help_all();
  flags.add("--mirostat-ent", &O::mirostat_tau, "Target entropy of Mirostat in bits (tau)")
      .in_help_all();
  add_penalty_options(flags);
}

std::string seed_problem(const std::string& text) {
  const bool valid = text == "-1" || parse_seed(text).has_value();
  return valid ? std::string() : "is " + text + ", expected -1, 0 or more";
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

void add_sampling_options(CommandOptions& command, SamplingFlags& flags) {
  command.group("Sampling (defaults: the model's generation_config.json)");
  NumberFlags numbers(command, flags);
  add_number_options(numbers);
  command
      .add("--dry-sequence-breaker", flags.dry_sequence_breakers,
           "Text that ends DRY's repetitions, in place of \\n : \" *; may be repeated; none: none")
      .in_help_all();
  Option& names = command
                      .add("--samplers", flags.samplers,
                           "Order of the samplers, with semicolons between (default: "
                           "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)")
                      .value("NAMES")
                      .in_help_all();
  command
      .add("--sampler-seq,--sampling-seq", flags.sampler_seq,
           "Order of the samplers in letters: edskypmxt")
      .value("LETTERS")
      .excludes(names)
      .in_help_all();
  command
      .add("-l,--logit-bias", flags.logit_bias,
           "Bias of a token's logit: TOKEN_ID+BIAS or TOKEN_ID-BIAS; may be repeated")
      .value("BIAS")
      .in_help_all();
  command.add("-s,--seed", flags.seed, "Seed of the random numbers; -1: drawn, and printed")
      .value("N")
      .check(seed_problem);
}

}  // namespace moeflux
