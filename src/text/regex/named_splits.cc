// Sources: the tokenizer.json files of the models, the code that ships with those that have a
// tiktoken.model, and llama.cpp for what neither says.
#include "text/regex/named_splits.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/format.h"
#include "base/json.h"
#include "text/regex/pretokenizer.h"

namespace moeflux {
namespace {

using Patterns = std::string_view;

constexpr Patterns kGpt2[] = {kGpt2Pattern};

constexpr Patterns kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Lines, and each of them as Qwen2 does.
constexpr Patterns kLaguna[] = {R"([^\n]+|[\n]+)", kQwen2[0]};

// Words with single spaces between them are one piece.
constexpr Patterns kExaone[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};

// With marks among the letters.
constexpr Patterns kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// With numbers of up to three digits.
constexpr Patterns kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kO200k[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Without contractions, and digits one by one.
constexpr Patterns kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr Patterns kDeepseekV3[] = {
    R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// The letters are the cased ones of an older Unicode, with gaps: a list, not a property.
constexpr Patterns kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[)"
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"
    R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a})"
    R"(\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556})"
    R"(\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf})"
    R"(\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d})"
    R"(\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d})"
    R"(\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4})"
    R"(\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4})"
    R"(\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124})"
    R"(\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f})"
    R"(\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f})"
    R"(\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17})"
    R"(\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3})"
    R"(\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})"
    R"(\x{1e900}-\x{1e943})"
    R"(]+)",
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)",
    R"(\p{N})"};

// Digits in groups of three from the last, runs of scripts without spaces, the rest as DeepSeek-V3
// has it. Runs of more than 510 digits are first cut into parts of 510.
constexpr Patterns kAfmoe[] = {
    R"(\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510})",
    R"(\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z))", R"(\A\p{Nd}{3}|\G\p{Nd}{3})",
    R"([\x{4e00}-\x{9fff}\x{3040}-\x{30ff}\x{3400}-\x{4dbf}\x{f900}-\x{faff}\x{ff65}-\x{ff9f})"
    R"(\x{2f00}-\x{2fdf}]+|[\x{e00}-\x{e7f}]+|[\x{e80}-\x{eff}]+|[\x{1780}-\x{17ff}]+)"
    R"(|[\x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}]+)"
    R"(|[\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+)",
    kDeepseekV3[2]};

// Digits in groups of three from the last where a word ends behind them.
constexpr Patterns kCohere2[] = {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k[0]};

// Digits one by one, and GPT-2's.
constexpr Patterns kDigitSplits[] = {R"(\p{N})", kGpt2Pattern};

// Han runs; words, which begin with or without a capital; numbers of three digits; the rest.
constexpr Patterns kKimi[] = {
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Lines, words and punctuation, each with a space before them; CJK; digits one by one.
constexpr Patterns kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                       R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)",
                                       R"(\p{N})"};

// Runs of punctuation and GPT-2's; then, in the byte alphabet, numbers of three digits from the
// first.
constexpr Patterns kFalcon[] = {R"([\p{P}$+<=>^`|~]+)", kGpt2Pattern, R"(\p{N}+)",
                                R"([0-9][0-9][0-9])"};

// The splits of llama.cpp for a file that names none: nearly Falcon's, and nobody's own.
constexpr Patterns kUnstated[] = {R"([\p{P}$+<=>^|~]+)", kGpt2Pattern, R"(\p{N}+)",
                                  R"([0-9][0-9][0-9])"};

// Words are all that is neither space nor one of some marks.
constexpr Patterns kBloom[] = {
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)"};
constexpr Patterns kViking[] = {kBloom[0], R"(\p{N})"};

// The marks of images, indents, digits and punctuation one by one, and GPT-2's.
constexpr Patterns kChameleon[] = {
    R"(<sentinel:[0-9]+>)",    R"((?:IMGIMG)(?:A|B|C|D|E|F|G|H|I){1,4}Z)",
    R"([\t\n]|    |  )",       R"(\p{N})",
    R"([\p{P}!-/:-@\[-`{-~])", kGpt2Pattern};

// Numbers in groups of three from the last, and all between them is one piece.
constexpr Patterns kSuperbpe[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};

// Line ends do not join the punctuation before them.
constexpr Patterns kSeedCoder[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Llama-3's, but numbers are cut before words are.
constexpr Patterns kMinicpm5[] = {
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Runs of Korean, of full-width marks, of Bopomofo and of CJK; then o200k's with single digits.
constexpr Patterns kYoutu[] = {
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+)"
    R"(|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c})"
    R"(\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+)"
    R"(|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// DeepSeek-V3's, with each line end and each digit a piece.
constexpr Patterns kSpark[] = {
    kDeepseekV3[0], kDeepseekV3[1],
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
    R"(\p{N})"};

// Llama-3's, but spaces in parts of powers of two.
constexpr Patterns kJais2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};

// Qwen2's without contractions: in Turkish an apostrophe begins a suffix.
constexpr Patterns kUfakzeka[] = {
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

struct Row {
  std::string_view name;
  NamedSplits splits;
};

constexpr NamedSplits kWithNfc = {.patterns = kQwen2, .normalize_nfc = true};
constexpr NamedSplits kGpt2WithNfc = {.patterns = kGpt2, .normalize_nfc = true};
constexpr NamedSplits kThreeDigits = {.patterns = kLlama3};
constexpr NamedSplits kThreeDigitsWhole = {.patterns = kLlama3, .ignore_merges = true};
constexpr NamedSplits kThreeDigitsWholeBos = {
    .patterns = kLlama3, .ignore_merges = true, .add_bos = true};
constexpr NamedSplits kSpaceSymbols = {.spells_spaces = true};

constexpr Row kRows[] = {
    {"a.x-4.0", {.patterns = kGpt2}},
    {"afmoe", {.patterns = kAfmoe}},
    {"bailingmoe", {.patterns = kQwen2}},
    {"bailingmoe2", {.patterns = kQwen2}},
    {"bloom", {.patterns = kBloom}},
    {"chameleon", {.patterns = kChameleon, .add_bos = true}},
    {"chatglm-bpe", kThreeDigits},
    {"codeshell", {.patterns = kDigitSplits}},
    {"cohere2moe", {.patterns = kCohere2}},
    {"command-r", {.patterns = kDigitSplits, .normalize_nfc = true}},
    {"dbrx", kThreeDigits},
    {"deepseek-coder", {.patterns = kDeepseekCoder}},
    {"deepseek-llm", {.patterns = kDeepseekLlm}},
    {"deepseek-r1-qwen", kWithNfc},
    {"deepseek-v3", {.patterns = kDeepseekV3}},
    {"default", {.patterns = kUnstated, .is_guess = true}},
    {"exaone", {.patterns = kDigitSplits}},
    {"exaone-moe", {.patterns = kExaone}},
    {"exaone4", {.patterns = kGpt2}},
    {"f2llmv2", kWithNfc},
    {"falcon", {.patterns = kFalcon, .spelled_patterns = 2}},
    {"falcon-h1", kThreeDigitsWholeBos},
    {"falcon3", kThreeDigitsWholeBos},
    {"gemma4", kSpaceSymbols},
    {"gigachat", {.patterns = kGpt2}},
    {"glm4", kThreeDigitsWhole},
    {"glm5", kThreeDigitsWhole},
    {"gpt-2", {.patterns = kGpt2}},
    {"gpt-4o", {.patterns = kO200k}},
    {"gpt3-finnish", {.patterns = kBloom}},
    {"granite-docling", {.patterns = kGpt2}},
    {"granite-embed-multi-311m", kSpaceSymbols},
    {"granite-embed-multi-97m", {.patterns = kO200k, .ignore_merges = true}},
    {"grok-2", {.patterns = kQwen2}},
    {"hunyuan", {.patterns = kQwen2}},
    {"hunyuan-dense", {.patterns = kDeepseekV3}},
    {"hy_v4", {.patterns = kDeepseekV3}},
    {"jais", {.patterns = kGpt2}},
    {"jais-2", {.patterns = kJais2}},
    {"jina-de", {.patterns = kGpt2}},
    {"jina-es", {.patterns = kGpt2}},
    {"jina-v1-en", {.patterns = kGpt2}},
    {"jina-v2-code", {.patterns = kGpt2}},
    {"jina-v2-de", {.patterns = kGpt2}},
    {"jina-v2-es", {.patterns = kGpt2}},
    {"jina-v5-nano", kThreeDigitsWholeBos},
    {"joyai-llm", {.patterns = kDeepseekV3}},
    {"kanana2", {.patterns = kO200k}},
    {"kimi-k2", {.patterns = kKimi, .ignore_merges = true, .merges_by_rank = true}},
    {"kormo", kWithNfc},
    {"laguna", {.patterns = kLaguna}},
    {"lfm2", kThreeDigitsWholeBos},
    {"llada-moe", {.patterns = kQwen2}},
    {"llama-bpe", kThreeDigitsWholeBos},
    {"llama-v3", kThreeDigitsWholeBos},
    {"llama3", kThreeDigitsWholeBos},
    {"llama4", {.patterns = kO200k}},
    {"megrez", kWithNfc},
    {"mellum", {.patterns = kGpt2}},
    {"mellum2", {.patterns = kDigitSplits}},
    {"midm-2.0", kThreeDigitsWholeBos},
    {"minerva-7b", {.patterns = kDigitSplits}},
    {"minicpm5", {.patterns = kMinicpm5, .ignore_merges = true}},
    {"minimax-m2", {.patterns = kO200k}},
    {"modern-bert", kGpt2WithNfc},
    {"mpt", kGpt2WithNfc},
    {"olmo", kGpt2WithNfc},
    {"phi-2", {.patterns = kGpt2}},
    {"pixtral", kThreeDigitsWholeBos},
    {"poro-chat", {.patterns = kBloom}},
    {"qwen2", kWithNfc},
    {"qwen35", {.patterns = kQwen35, .normalize_nfc = true}},
    {"refact", {.patterns = kDigitSplits}},
    {"roberta-bpe", {.patterns = kGpt2}},
    {"sarvam-moe", kSpaceSymbols},
    {"seed-coder", {.patterns = kSeedCoder}},
    {"smaug-bpe", kThreeDigits},
    {"smollm", {.patterns = kDigitSplits}},
    {"solar-open", {.patterns = kQwen2}},
    {"spark2_5", {.patterns = kSpark}},
    {"stablelm2", {.patterns = kQwen2}},
    {"starcoder", {.patterns = kDigitSplits}},
    {"superbpe", {.patterns = kSuperbpe}},
    {"talkie", {.patterns = kO200k}},
    {"tekken", {.patterns = kTekken, .ignore_merges = true, .add_bos = true}},
    {"tiny_aya", {.patterns = kCohere2}},
    {"trillion", {.patterns = kGpt2}},
    {"ufakzeka", {.patterns = kUfakzeka}},
    {"viking", {.patterns = kViking}},
    {"youtu", {.patterns = kYoutu, .ignore_merges = true}},
};
static_assert(std::ranges::adjacent_find(kRows, std::greater_equal(), &Row::name) ==
                  std::end(kRows),
              "rows are sorted by name, and no name has two");

}  // namespace

Result<NamedSplits> find_named_splits(std::string_view name) {
  if (name.empty()) name = "default";  // as llama.cpp reads an absent key
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& candidate) { return candidate.name == name; });
  if (row != std::end(kRows)) return row->splits;
  return make_error(ErrorCode::kUnsupported,
                    "tokenizer.ggml.pre is {}, expected a name that llama.cpp's converter writes, "
                    "as gpt-2, llama-bpe or qwen2",
                    json_excerpt(name));
}

std::span<const std::string_view> tiktoken_splits() { return kKimi; }

}  // namespace moeflux
