// Arbitrary bytes as text, through the pattern of each known family over a small built-in
// vocabulary: decoding gives back the text, repaired where it was no UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/detokenizer.h"
#include "text/encoding/byte_alphabet.h"
#include "text/encoding/utf8.h"
#include "text/tokenizer.h"

namespace {

using moeflux::Json;
using moeflux::Tokenizer;

#define MF_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define MF_TAIL R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define MF_LEAD R"([^\r\n\p{L}\p{N}]?)"
#define MF_UPPER R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})"
#define MF_LOWER R"(\p{Ll}\p{Lm}\p{Lo}\p{M})"

// Splits in sequence; an empty list means ByteLevel's own pattern.
const std::vector<std::vector<std::string>>& families() {
  static const std::vector<std::vector<std::string>> kFamilies = {
      {},
      {MF_CONTRACTIONS "|" MF_LEAD R"(\p{L}+|\p{N}{1,3}|)" MF_TAIL},
      {MF_CONTRACTIONS "|" MF_LEAD R"(\p{L}+|\p{N}|)" MF_TAIL},
      {MF_CONTRACTIONS
       "|" MF_LEAD
       R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {R"(\p{N}{1,3})",
       "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
       R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {MF_LEAD "[" MF_UPPER "]*[" MF_LOWER "]+" MF_CONTRACTIONS "?|" MF_LEAD "[" MF_UPPER
               "]+[" MF_LOWER "]*" MF_CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
               R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {R"([\p{Han}]+|)" MF_LEAD "[" MF_UPPER R"(&&[^\p{Han}]]*[)" MF_LOWER R"(&&[^\p{Han}]]+)"
       R"(|\p{N}{1,3}|)" MF_TAIL},
      {R"(\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510})",
       R"(\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z))", R"(\A\p{Nd}{3}|\G\p{Nd}{3})"},
      {R"(\d{1,3}(?=(?:\d{3})*\b))"},
  };
  return kFamilies;
}

Tokenizer make_tokenizer(const std::vector<std::string>& patterns) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab[moeflux::spelling_of_bytes(std::string_view(&c, 1))] = byte;
  }
  Json merges = Json::array();
  for (const auto& [left, right] : {std::pair<std::string, std::string>{" ", " "},
                                    {"a", "a"},
                                    {"aa", "a"},
                                    {" ", "a"},
                                    {"\xE2", "\x82"},
                                    {"\n", "\n"}}) {
    const std::string a = moeflux::spelling_of_bytes(left);
    const std::string b = moeflux::spelling_of_bytes(right);
    vocab[a + b] = vocab.size();
    merges.push_back({a, b});
  }
  Json splits = Json::array();
  for (const std::string& pattern : patterns) {
    splits.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}});
  }
  splits.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", patterns.empty()}});
  const Json spec = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}},
                     {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", splits}}},
                     {"decoder", {{"type", "ByteLevel"}}}};
  auto tokenizer = Tokenizer::parse(spec.dump(), "built-in");
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().to_string().c_str());
    std::abort();
  }
  return std::move(tokenizer).value();
}

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> kTokenizers = [] {
    std::vector<Tokenizer> all;
    for (const auto& patterns : families()) all.push_back(make_tokenizer(patterns));
    return all;
  }();
  return kTokenizers;
}

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string repaired = moeflux::replace_invalid_utf8(text);
  for (const Tokenizer& tokenizer : tokenizers()) {
    const auto ids = tokenizer.encode(text);
    require(ids.ok());
    require(tokenizer.decode(*ids) == repaired);
    moeflux::Detokenizer stream(tokenizer);
    std::string streamed;
    for (const moeflux::TokenId id : *ids) {
      const std::string piece = stream.push(id);
      require(moeflux::is_valid_utf8(piece));
      streamed += piece;
    }
    require(streamed + stream.finish() == repaired);
  }
  return 0;
}
