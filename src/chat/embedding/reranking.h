// Scores of documents for a query, by models that were trained to answer about both.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/chat_format.h"
#include "chat/embedding/embedding_spec.h"
#include "chat/embedding/text_steps.h"
#include "load/score_head.h"

namespace moeflux {

/// Immutable; threads may share one.
class Reranker {
 public:
  /// `format` makes prompts where the files give no text of one; null: published_rerank_prompt().
  /// `is_asked`: the user says that a model whose files do not is a reranker, which answers that
  /// prompt by "yes" or "no" or has a head of scores. Fails with kUnsupported for other models.
  /// `model` must outlive it.
  static Result<Reranker> create(const OpenModel& model, std::shared_ptr<const ChatFormat> format,
                                 bool is_asked);

  /// Neither text becomes a special token, whatever it spells.
  Result<std::vector<TokenId>> prompt(std::string_view query, std::string_view document) const;
  /// How relevant each document is, 0 to 1: the probability of "yes" against "no", or what the head
  /// says. The bits of a score depend on its prompt alone. Fails as evaluate_texts() does.
  Result<std::vector<double>> score(OpenModel& model, std::span<const std::vector<TokenId>> prompts,
                                    const InTurn& in_turn) const;

 private:
  explicit Reranker(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  double score_of(std::span<const float> row) const;

  const Tokenizer* tokenizer_;
  RerankSpec spec_;
  std::shared_ptr<const ChatFormat> format_;  // null: spec_.prompt
  std::optional<ScoreHead> head_;             // none: spec_.answers
};

}  // namespace moeflux
