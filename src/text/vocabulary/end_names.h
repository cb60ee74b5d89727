// Names of tokens that end a text, whatever type a file gives them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/vocabulary/added_tokens.h"

namespace moeflux {

struct NamedToken {
  std::string_view name;
  TokenId id = 0;
  bool is_control = false;
};

/// Cheap enough to ask of every token of a vocabulary.
bool is_end_name(std::string_view name);

/// The ids of those that end a text, in the order given. All tokens of a vocabulary that
/// is_end_name() knows must be there: what one name means depends on the others.
std::vector<TokenId> ends_by_name(std::span<const NamedToken> tokens);
/// The same of the added tokens of a vocabulary.
std::vector<TokenId> ends_by_name(const std::vector<AddedToken>& tokens);

}  // namespace moeflux
