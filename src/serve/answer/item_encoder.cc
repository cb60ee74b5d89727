#include "serve/answer/item_encoder.h"

#include <utility>

namespace moeflux::serve {

std::string ItemEncoder::open(AnswerItem item) {
  std::string bytes = close();
  items_.push_back(std::move(item));
  is_open_ = true;
  return bytes + opened(items_.size() - 1, items_.back());
}

std::string ItemEncoder::close() {
  if (!std::exchange(is_open_, false)) return {};
  return closed(items_.size() - 1, items_.back());
}

std::string ItemEncoder::grow(const AnswerDelta& delta) {
  AnswerItem& item = items_.back();
  item.text += delta.text;
  item.scores.insert(item.scores.end(), delta.scores.begin(), delta.scores.end());
  return grown(items_.size() - 1, item, delta);
}

std::string ItemEncoder::delta(const AnswerDelta& delta) {
  const auto text = [&](AnswerItem::Kind kind) {
    if (delta.text.empty()) return std::string();
    const bool goes_on = is_open_ && items_.back().kind == kind;
    std::string bytes = goes_on ? std::string() : open({.kind = kind, .text = {}});
    return bytes + grow(delta);
  };
  switch (delta.kind) {
    case OutputKind::kReasoning:
      return text(AnswerItem::Kind::kReasoning);
    case OutputKind::kContent:
      return text(AnswerItem::Kind::kText);
    case OutputKind::kCallBegin:
      return open({.kind = AnswerItem::Kind::kCall,
                   .text = {},
                   .id = delta.id,
                   .name = delta.text,
                   .complete = false});
    case OutputKind::kCallArguments:
      return delta.text.empty() ? std::string() : grow(delta);
    case OutputKind::kCallEnd:
      items_.back().complete = delta.complete;
      return close();
    case OutputKind::kMarkup:
      return {};
  }
  __builtin_unreachable();
}

}  // namespace moeflux::serve
