// How a model's files say that texts become embeddings and scores: sentence-transformers' files in
// a folder, keys of a GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "load/model_source.h"

namespace moeflux {

/// The last hidden states of a text that become its embedding.
enum class Pooling : uint8_t { kLast, kMean, kCls };
/// "last", "mean", "cls".
std::string_view pooling_name(Pooling pooling);
std::optional<Pooling> find_pooling(std::string_view name);

/// A model that scores pairs of a query and a document, which its prompt asks it about.
struct RerankSpec {
  /// The tokens whose logits behind the prompt are compared; none: the model has a head of scores
  /// (load/score_head.h).
  struct Answers {
    TokenId yes = 0;
    TokenId no = 0;
  };
  std::optional<Answers> answers = {};
  /// The row of that head that counts.
  size_t label = 0;
  /// The text of a prompt with "{query}" and "{document}" in it; empty: the chat template makes it
  /// of two messages, whose roles are "query" and "document".
  std::string prompt = {};
};

struct EmbeddingSpec {
  Pooling pooling = Pooling::kLast;
  bool normalize = true;
  /// The file or key that says so, for descriptions; empty: nobody, and these are the defaults.
  std::string source = {};
  std::map<std::string, std::string, std::less<>> prompts = {};
  std::string default_prompt = {};  // a name of these; empty: none
  std::optional<RerankSpec> rerank = {};
};

/// modules.json with the files that it names and config_sentence_transformers.json, or
/// `<architecture>.pooling_type` and what goes with it. Fails with kUnsupported for modules and
/// kinds of pooling that are not computed here, with kCorruption for files that contradict
/// themselves, naming file and key.
Result<EmbeddingSpec> read_embedding_spec(const ModelSource& source);

/// The prompt that Qwen3-Reranker was published with, for models whose files have none.
std::string_view published_rerank_prompt();

}  // namespace moeflux
