#include "grammar/token_tree.h"

#include <vector>

namespace moeflux {

bool is_marker(const AddedToken& token) {
  return token.special || token.content.find_first_not_of(" \t\r\n") != std::string::npos;
}

Result<std::shared_ptr<const TokenTree>> make_token_tree(const Tokenizer& tokenizer) {
  std::vector<TokenShape> tokens(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t id = 0; id < tokens.size(); ++id) {
    tokens[id].bytes = tokenizer.token_bytes(static_cast<TokenId>(id));
  }
  for (const AddedToken& added : tokenizer.added_tokens()) {
    tokens[static_cast<size_t>(added.id)].is_marker = is_marker(added);
  }
  return TokenTree::make(tokens);
}

}  // namespace moeflux
