// A byte that names a language and a vocabulary, then a schema, expression or grammar: it is
// refused or compiled within its limits, and a text of allowed tokens is taken.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/constraint.h"
#include "grammar/token_tree.h"
#include "text/tokenizer.h"

namespace {

struct Vocabulary {
  std::shared_ptr<const moeflux::TokenTree> tree;  // null without Rust
  moeflux::TokenId size = 0;
};

Vocabulary of_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  std::vector<moeflux::TokenShape> tokens;
  for (size_t i = 0; i < bytes.size(); ++i) {
    tokens.push_back({.bytes = std::string_view(bytes).substr(i, 1)});
  }
  tokens.push_back({.bytes = "<call>", .is_marker = true});
  auto tree = moeflux::TokenTree::make(tokens);
  return {.tree = tree.ok() ? *tree : nullptr, .size = 257};
}

// Tokens of the model that the program brings span what grammars tell apart.
Vocabulary of_model() {
  std::ifstream file(MOEFLUX_FUZZ_TOKENIZER, std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  const auto tokenizer = moeflux::Tokenizer::parse(json, MOEFLUX_FUZZ_TOKENIZER);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message().c_str());
    std::abort();
  }
  auto tree = moeflux::make_token_tree(*tokenizer);
  return {.tree = tree.ok() ? *tree : nullptr,
          .size = static_cast<moeflux::TokenId>(tokenizer->vocab_size())};
}

void write_text(moeflux::Matcher& matcher, moeflux::TokenId vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 24; ++i) {
    const auto next = matcher.next();
    if (!next.ok() || next->must_end) return;
    auto token = static_cast<moeflux::TokenId>(random() % static_cast<uint32_t>(vocab_size));
    for (int tried = 0; tried < vocab_size && !next->mask.allows(token); ++tried) {
      token = (token + 1) % vocab_size;
    }
    const bool is_allowed = next->mask.allows(token);
    const moeflux::Status taken = matcher.consume(token);
    const bool is_misfit =
        !taken.ok() && taken.error().code() == moeflux::ErrorCode::kInvalidArgument;
    if (is_allowed ? !is_misfit : !taken.ok()) continue;
    std::fprintf(stderr, "token %d: allowed %d, taken %d\n", token, is_allowed, taken.ok());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Vocabulary kBytes = of_bytes();
  static const Vocabulary kModel = of_model();
  if (kBytes.tree == nullptr || size == 0) return 0;
  const Vocabulary& vocabulary = (data[0] & 4) != 0 ? kModel : kBytes;
  const auto kind = static_cast<moeflux::ConstraintKind>(
      static_cast<int>(moeflux::ConstraintKind::kJsonSchema) + data[0] % 4);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto constraint = moeflux::Constraint::compile(
      vocabulary.tree, {.kind = kind, .text = std::string(text)},
      {.lexer_states_max = 2000, .step_lexer_fuel = 20'000, .step_items_max = 5000});
  if (!constraint.ok()) return 0;
  const auto matcher = (*constraint)->start();
  if (matcher.ok()) write_text(**matcher, vocabulary.size, static_cast<uint32_t>(size));
  return 0;
}
