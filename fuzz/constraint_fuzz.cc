// A byte that names a language, then a schema, expression or grammar: it is refused or compiled
// within its limits, and a text of allowed tokens is taken.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/constraint.h"

namespace {

std::shared_ptr<const moeflux::TokenTree> make_tree() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  std::vector<moeflux::TokenShape> tokens;
  for (size_t i = 0; i < bytes.size(); ++i) {
    tokens.push_back({.bytes = std::string_view(bytes).substr(i, 1)});
  }
  tokens.push_back({.bytes = "<call>", .is_marker = true});
  auto tree = moeflux::TokenTree::make(tokens);
  return tree.ok() ? *tree : nullptr;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const moeflux::TokenTree> kTree = make_tree();
  if (kTree == nullptr || size == 0) return 0;
  const auto kind = static_cast<moeflux::ConstraintKind>(
      static_cast<int>(moeflux::ConstraintKind::kJsonSchema) + data[0] % 4);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto constraint =
      moeflux::Constraint::compile(kTree, {.kind = kind, .text = std::string(text)},
                                   {.text_bytes_max = 2048,
                                    .lexer_states_max = 2000,
                                    .step_lexer_fuel = 20'000,
                                    .step_items_max = 5000});
  if (!constraint.ok()) return 0;
  const auto matcher = (*constraint)->start();
  if (!matcher.ok()) return 0;
  std::mt19937 random(static_cast<uint32_t>(size));
  for (int i = 0; i < 24; ++i) {
    const auto next = (*matcher)->next();
    if (!next.ok() || next->must_end) return 0;
    auto token = static_cast<moeflux::TokenId>(random() % 257);
    for (int tried = 0; tried < 257 && !next->mask.allows(token); ++tried)
      token = (token + 1) % 257;
    const bool is_allowed = next->mask.allows(token);
    const moeflux::Status taken = (*matcher)->consume(token);
    const bool is_misfit =
        !taken.ok() && taken.error().code() == moeflux::ErrorCode::kInvalidArgument;
    if (is_allowed ? !is_misfit : !taken.ok()) continue;
    std::fprintf(stderr, "token %d: allowed %d, taken %d\n", token, is_allowed, taken.ok());
    std::abort();
  }
  return 0;
}
