// A source of drafts that is a function, for tests.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "chat/drafts/draft_options.h"

namespace moeflux {

/// Gives tokens that may follow those so far, at most so many.
using DraftFunction =
    std::function<std::vector<TokenId>(std::span<const TokenId> text, int64_t tokens_max)>;

/// For DraftOptions::make_source: each text asks a copy of the function.
inline std::function<std::unique_ptr<DraftSource>()> source_of(DraftFunction function) {
  class Source final : public DraftSource {
   public:
    explicit Source(DraftFunction function) : function_(std::move(function)) {}
    Result<Draft> draft(const DraftQuery& query) override {
      return Draft{.tokens = function_(query.text, query.tokens_max)};
    }

   private:
    DraftFunction function_;
  };
  return [function = std::move(function)] { return std::make_unique<Source>(function); };
}

}  // namespace moeflux
