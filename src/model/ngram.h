// N-gram embeddings: which rows of a large table a token has. They follow from its id and from
// those of the few tokens before it, so that a host knows them before a step begins. Knows nothing
// of files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

/// How config.json describes the rows of a layer's n-gram embedding.
struct NgramSpec {
  int64_t ngram_size = 0;       // of the longest; there are those of 2 tokens up to it
  int64_t heads_per_ngram = 0;  // rows that each length has
  int64_t embed_dim = 0;        // of all rows of a token together
  int64_t vocab_base = 0;       // no head has fewer rows
  int64_t vocab_divisor = 1;    // divides the rows of the table
  int64_t parts = 0;            // matrices of as many rows, in which the table is stored
  int64_t seed = 0;
  int64_t number = 0;     // of the layer among those with such an embedding
  TokenId boundary = -1;  // a token does not see past it; stands for what is before the first one
  /// Not 0: tokens are hashed by codes, of which there are so many and several may share one. Then
  /// multipliers are those that numpy draws from `seed`, which is the layer's own.
  int64_t num_codes = 0;
  TokenId pad = -1;  // its code is that of what is before the first token; nothing is a boundary
  int64_t table_rows = 0;  // of the only matrix, which may have more than hashes reach

  bool is_none() const { return ngram_size == 0; }
  int64_t heads() const { return (ngram_size - 1) * heads_per_ngram; }
  int64_t row_dim() const { return embed_dim / heads(); }
};

/// The numbers of which the rows of a token are made.
struct NgramHashes {
  int64_t ngram_size = 0;
  int64_t heads_per_ngram = 0;
  TokenId boundary = -1;
  TokenId before = -1;               // stands for tokens that are not seen; -1: the boundary does
  std::vector<int32_t> codes;        // by token; empty: tokens are their own
  int64_t num_codes = 0;             // that codes must have; 0: tokens have none
  std::vector<int64_t> multipliers;  // of a token and of those before it, latest first
  std::vector<int64_t> sizes;        // rows of each head, those of the shortest n-grams first
  std::vector<int64_t> offsets;      // of its first one

  int64_t heads() const { return static_cast<int64_t>(sizes.size()); }
  int64_t code_of(TokenId token) const {
    return token >= 0 && static_cast<size_t>(token) < codes.size()
               ? codes[static_cast<size_t>(token)]
               : token;
  }
  int64_t rows() const { return sizes.empty() ? 0 : offsets.back() + sizes.back(); }
  /// The row of each head for tokens[at], which follows `past`.
  void find_rows(std::span<const TokenId> past, std::span<const TokenId> tokens, size_t at,
                 std::span<int64_t> rows) const;
};

/// Sizes are primes from spec.vocab_base on, multipliers odd and such that no product of a token
/// of the vocabulary exceeds 63 bits. Codes are left to who knows the vocabulary's text, unless
/// there are as many as tokens.
NgramHashes make_hashes(const NgramSpec& spec, int64_t vocab_size);

/// Rows that each matrix of the table has.
int64_t rows_of_part(const NgramSpec& spec, const NgramHashes& hashes);

}  // namespace moeflux
