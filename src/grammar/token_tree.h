// A tokenizer's vocabulary as constraints see it.
#pragma once

#include <memory>

#include "base/result.h"
#include "constraint/constraint.h"
#include "text/tokenizer.h"

namespace moeflux {

/// Whether an added token is none of a text's characters. White space that a vocabulary adds is
/// text, all else that it adds are markers.
bool is_marker(const AddedToken& token);

/// Fails as TokenTree::make() does.
Result<std::shared_ptr<const TokenTree>> make_token_tree(const Tokenizer& tokenizer);

}  // namespace moeflux
