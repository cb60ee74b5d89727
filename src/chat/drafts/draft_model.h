// A small model that drafts for the texts of another one with the same vocabulary. Each text has a
// session of its own here, which follows the tokens that were accepted.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/drafts/draft_source.h"
#include "engine/sequence.h"
#include "text/tokenizer.h"

namespace moeflux {

struct OpenModel;
struct OpenModelOptions;
class Session;

/// A model's files as errors name them, and its vocabulary.
struct NamedVocabulary {
  const std::string& name;
  const Tokenizer& tokenizer;
};

/// Fails with kInvalidArgument, naming both and the first token that differs, unless every token
/// that is not special is the same under the same id. Special tokens may differ: drafts of them are
/// wrong, and nothing else.
Status check_same_vocabulary(const NamedVocabulary& model, const NamedVocabulary& drafting);

class DraftModel : public std::enable_shared_from_this<DraftModel> {
 public:
  /// Opens DraftOptions::model of `of` on its device, for texts of the model in `directory` with
  /// this tokenizer. Fails as open_model() and check_same_vocabulary() do.
  static Result<std::shared_ptr<DraftModel>> open(const OpenModelOptions& of,
                                                  const std::string& directory,
                                                  const Tokenizer& tokenizer);
  /// Drafts end before a token that is less likely than `confidence_min`, and before one whose id
  /// is not below `vocab_size`.
  DraftModel(std::shared_ptr<OpenModel> model, float confidence_min, int64_t vocab_size);
  ~DraftModel();

  const OpenModel& model() const { return *model_; }
  /// Bytes of the host's memory that it will take and has not taken after opening.
  uint64_t bytes_to_come() const;
  /// For one text. Keeps this alive. Its calls take turns at the model.
  std::unique_ptr<DraftSource> make_source();

 private:
  class Source;
  /// A session and the end of the text that it last followed, where its layers cannot forget.
  struct Follower {
    std::shared_ptr<Session> session;
    std::optional<CheckpointId> followed;
  };
  Result<Follower> take_follower(std::span<const TokenId> text);
  void give_back(Follower follower);
  bool forget_idle();
  Result<bool> has_room(int64_t length, int64_t more, uint64_t& promised_bytes);

  const std::shared_ptr<OpenModel> model_;
  const float confidence_min_;
  const int64_t vocab_size_;
  std::mutex mutex_;            // guards what follows
  std::vector<Follower> idle_;  // of texts that have ended, for those that go on from them
};

}  // namespace moeflux
