// An answer as a row of items, each reasoning, a text or a call, that begin and end one behind the
// other: Anthropic's blocks and the output items of OpenAI's responses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "serve/answer/answer_encoder.h"

namespace moeflux::serve {

struct AnswerItem {
  enum class Kind : uint8_t { kReasoning, kText, kCall };

  Kind kind = Kind::kText;
  std::string text;  // of a call its arguments
  std::string id;    // of a call, with
  std::string name;
  bool complete = true;                  // false: a call whose arguments are cut off
  std::vector<ScoredToken> scores = {};  // of a text
};

class ItemEncoder : public AnswerEncoder {
 public:
  std::string delta(const AnswerDelta& delta) final;

 protected:
  /// Events when the item at `index` begins, goes on and ends. `item` has all that is known by
  /// then.
  virtual std::string opened(size_t index, const AnswerItem& item) = 0;
  virtual std::string grown(size_t index, const AnswerItem& item, const AnswerDelta& delta) = 0;
  virtual std::string closed(size_t index, const AnswerItem& item) = 0;

  /// Ends the last item, if it has not ended.
  std::string close();
  const std::vector<AnswerItem>& items() const { return items_; }

 private:
  std::string open(AnswerItem item);
  std::string grow(const AnswerDelta& delta);

  std::vector<AnswerItem> items_;
  bool is_open_ = false;  // the last one
};

}  // namespace moeflux::serve
