#include "load/ngram_codes.h"

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "text/token_codes.h"

namespace moeflux {

Status set_token_codes(std::span<NgramTable> tables, const ModelSource& source) {
  const auto needs = [](const NgramTable& table) { return table.hashes.num_codes > 0; };
  if (std::ranges::none_of(tables, needs)) return {};
  Result<TokenizerText> stored = source.tokenizer();
  if (!stored.ok())
    return stored.error().with_context("n-grams of this model follow from its text");
  if (stored->kind != TokenizerText::Kind::kJson) {
    return make_error(ErrorCode::kUnsupported,
                      "{}: n-grams of this model follow from the text of a tokenizer.json",
                      stored->name);
  }
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::parse(stored->text, stored->name));
  const std::vector<int32_t> codes = token_codes(tokenizer);
  const int64_t found = codes.empty() ? 0 : *std::ranges::max_element(codes) + 1;
  for (NgramTable& table : tables) {
    if (!needs(table)) continue;
    if (found != table.hashes.num_codes) {
      return make_error(ErrorCode::kCorruption,
                        "{}: without case, accents and white space its tokens have {} texts, "
                        "config.json's engram_compressed_vocab_size is {}",
                        stored->name, found, table.hashes.num_codes);
    }
    table.hashes.codes = codes;
  }
  return {};
}

}  // namespace moeflux
