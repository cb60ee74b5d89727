// Characters to symbols, the merges, and bytes for what is left without a token.
#include "text/bpe/character_bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

// As of the byte-level encoding: a table of 128 MiB.
constexpr size_t kCharacterPairsMax = size_t{1} << 22;

// Calls visit(character) for each character of well-formed text.
template <typename Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t count = next_utf8(text.substr(at)).bytes_count;
    visit(text.substr(at, count));
    at += count;
  }
}

// The place of each symbol's score among all scores, the highest first; equals share one.
std::vector<uint32_t> ranks_of(const std::vector<CharacterBpe::Symbol>& symbols) {
  std::vector<float> scores;
  for (const auto& symbol : symbols) scores.push_back(symbol.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const auto& symbol : symbols) {
    const auto place =
        std::lower_bound(scores.begin(), scores.end(), symbol.score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(place - scores.begin()));
  }
  return ranks;
}

}  // namespace

Status CharacterBpe::add_symbols(const std::vector<Symbol>& symbols) {
  for (const Symbol& symbol : symbols) {
    if (!std::isfinite(symbol.score)) {
      return make_error(ErrorCode::kCorruption, "the score of token {} is {}", symbol.id,
                        symbol.score);
    }
    MF_RETURN_IF_ERROR(symbols_.add(symbol.id, symbol.text, true));
  }
  return {};
}

Status CharacterBpe::add_missing_characters(const std::vector<Symbol>& symbols) {
  Status status;
  TokenId next = ids_end_;
  for (const Symbol& symbol : symbols) {
    for_each_character(symbol.text, [&](std::string_view character) {
      if (status.ok() && !symbols_.find(character)) status = symbols_.add(next++, character, true);
    });
    MF_RETURN_IF_ERROR(status);
  }
  return {};
}

Result<CharacterBpe> CharacterBpe::create_from_scores(const std::vector<Symbol>& symbols,
                                                      const CharacterFallback& fallback,
                                                      TokenId ids_end) {
  CharacterBpe bpe(fallback, ids_end);
  MF_RETURN_IF_ERROR(bpe.add_symbols(symbols));
  MF_RETURN_IF_ERROR(bpe.add_missing_characters(symbols));
  const std::vector<uint32_t> ranks = ranks_of(symbols);
  std::vector<std::pair<BpeMerge, uint32_t>> merges;
  std::vector<bool> is_passing;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const Symbol& symbol = symbols[i];
    if (symbol.is_unused) {
      is_passing.resize(static_cast<size_t>(ids_end));
      is_passing[static_cast<size_t>(symbol.id)] = true;
    }
    size_t cut = 0;
    for_each_character(symbol.text, [&](std::string_view character) {
      const auto left = cut == 0 ? std::nullopt : bpe.symbols_.find(symbol.text.substr(0, cut));
      const auto right = left ? bpe.symbols_.find(symbol.text.substr(cut)) : std::nullopt;
      if (right) merges.push_back({{*left, *right, symbol.id}, ranks[i]});
      cut += character.size();
    });
    if (merges.size() > kCharacterPairsMax) {
      return make_error(ErrorCode::kResourceExhausted, "more than {} pairs of tokens make a token",
                        kCharacterPairsMax);
    }
  }
  bpe.merges_.reserve(merges.size());
  for (const auto& [merge, rank] : merges) bpe.merges_.put(merge, rank);
  bpe.merges_.set_passing(std::move(is_passing));
  return bpe;
}

Result<CharacterBpe> CharacterBpe::create_from_merges(
    const std::vector<Symbol>& symbols, const CharacterFallback& fallback, TokenId ids_end,
    const std::vector<std::pair<std::string_view, std::string_view>>& merges) {
  CharacterBpe bpe(fallback, ids_end);
  MF_RETURN_IF_ERROR(bpe.add_symbols(symbols));
  bpe.merges_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left_text, right_text] = merges[i];
    std::string both(left_text);
    both += right_text;
    const auto left = bpe.symbols_.find(left_text);
    const auto right = bpe.symbols_.find(right_text);
    const auto merged = left && right ? bpe.symbols_.find(both) : std::nullopt;
    if (!merged) {
      return make_error(ErrorCode::kCorruption,
                        "merge {} ({} {}): a part or the whole is not in the vocabulary", i,
                        json_excerpt(left_text), json_excerpt(right_text));
    }
    bpe.merges_.put({*left, *right, *merged}, static_cast<uint32_t>(i));
  }
  return bpe;
}

void CharacterBpe::append_fallback(std::string_view character, std::vector<TokenId>* out) const {
  const bool has_all = fallback_.has_bytes && std::ranges::all_of(character, [&](char c) {
                         return fallback_.by_byte[static_cast<uint8_t>(c)] >= 0;
                       });
  // The `tokenizers` library puts an unknown token behind the bytes of the characters that follow
  // it; here it stays in its place.
  if (has_all) {
    for (const char c : character) out->push_back(fallback_.by_byte[static_cast<uint8_t>(c)]);
  } else if (fallback_.unknown >= 0) {
    out->push_back(fallback_.unknown);
  }
}

void CharacterBpe::append(std::string_view piece, Scratch* scratch,
                          std::vector<TokenId>* out) const {
  scratch->characters.clear();
  scratch->merged.clear();
  for_each_character(piece, [&](std::string_view character) {
    const auto id = symbols_.find(character);
    if (id) {
      scratch->characters.push_back(*id);
    } else {
      append_fallback(character, &scratch->characters);  // which no merge has a part in
    }
  });
  merges_.append(scratch->characters, &scratch->merging, &scratch->merged);
  std::vector<TokenId> bytes;
  bool after_unknown = false;
  for (const TokenId id : scratch->merged) {
    bytes.assign(1, id);
    if (id >= ids_end_) {
      bytes.clear();
      append_fallback(symbols_.bytes(id), &bytes);
    }
    const bool is_unknown = bytes.size() == 1 && bytes[0] == fallback_.unknown;
    const bool is_fused = is_unknown && after_unknown && fallback_.fuses_unknown;
    if (!is_fused) out->insert(out->end(), bytes.begin(), bytes.end());
    after_unknown = is_unknown;
  }
}

}  // namespace moeflux
