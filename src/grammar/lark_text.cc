#include "grammar/lark_text.h"

#include <utility>

#include "base/format.h"
#include "grammar/token_tree.h"

namespace moeflux {

std::string lark_literal(std::string_view text) { return Json(text).dump(); }

std::string regex_escaped(std::string_view text) {
  static constexpr std::string_view kMeaningful = "\\.+*?()|[]{}^$#&-~/";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      escaped += formatted("\\x{:02X}", byte);
      continue;
    }
    if (kMeaningful.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

LarkText::LarkText(const Tokenizer& tokenizer) {
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.content.empty() || !is_marker(token)) continue;
    markers_[static_cast<unsigned char>(token.content.front())].push_back(&token);
  }
}

// The longest marker at the leftmost place, as the tokenizer reads them.
std::vector<LarkText::Piece> LarkText::pieces(std::string_view text) const {
  std::vector<Piece> found;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* longest = nullptr;
    for (const AddedToken* token : markers_[static_cast<unsigned char>(text[at])]) {
      const bool is_longer = longest == nullptr || token->content.size() > longest->content.size();
      if (is_longer && text.substr(at).starts_with(token->content)) longest = token;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    if (at > begin) found.push_back({.text = text.substr(begin, at - begin)});
    found.push_back({.text = text.substr(at, longest->content.size()), .marker = longest->id});
    at += longest->content.size();
    begin = at;
  }
  if (begin < text.size()) found.push_back({.text = text.substr(begin)});
  return found;
}

std::string LarkText::spell(std::string_view text) const {
  std::string spelled;
  for (const Piece& piece : pieces(text)) {
    if (!spelled.empty()) spelled += ' ';
    spelled += piece.marker < 0 ? lark_literal(piece.text) : formatted("<[{}]>", piece.marker);
  }
  return spelled.empty() ? "\"\"" : spelled;
}

bool LarkText::begins_with_marker(std::string_view text) const {
  const std::vector<Piece> found = pieces(text);
  return !found.empty() && found.front().marker >= 0;
}

// A marker is no text.
std::string LarkText::either_of(const std::vector<std::string>& texts) const {
  std::string spelled;
  for (const std::string& text : texts) {
    if (text.empty() || begins_with_marker(text)) continue;
    if (!spelled.empty()) spelled += '|';
    spelled += regex_escaped(pieces(text).front().text);
  }
  return spelled;
}

std::string LarkText::text_without(const std::vector<std::string>& stops,
                                   const std::vector<std::string>& starts) {
  std::string body = "/(?s:.*)/";
  const std::string within = either_of(stops);
  if (!within.empty()) body += formatted(" & ~/(?s:.*)({})(?s:.*)/", within);
  const std::string first = either_of(starts);
  if (!first.empty()) body += formatted(" & ~/[ \\n\\r\\t]*({})(?s:.*)/", first);
  return rule("TEXT", body);
}

std::string LarkText::text_until(const std::string& end, const std::vector<std::string>& stops) {
  std::vector<std::string> all = stops;
  all.push_back(end);
  const std::string text = text_without(all);
  if (begins_with_marker(end)) return rule("until", formatted("{} {}", text, spell(end)));
  const std::vector<Piece> found = pieces(end);
  // One terminal: a text that ended by itself would swallow the end's first characters.
  const std::string spelled =
      rule("UNTIL", formatted("{} {}", text, lark_literal(found.front().text)));
  const std::string_view rest = std::string_view(end).substr(found.front().text.size());
  return rest.empty() ? spelled : rule("until", formatted("{} {}", spelled, spell(rest)));
}

std::string LarkText::rule(std::string_view what, const std::string& body) {
  std::string name = reserve(what);
  define(name, body);
  return name;
}

std::string LarkText::reserve(std::string_view what) { return formatted("{}_{}", what, count_++); }

void LarkText::define(const std::string& name, const std::string& body) {
  definitions_ += formatted("{}: {}\n", name, body);
}

std::string LarkText::part(OutputConstraint constraint) {
  std::string name = formatted("part_{}", parts_.size());
  part_bytes_ += constraint.text.size();
  Json part = {{"name", name}};
  switch (constraint.kind) {
    case ConstraintKind::kJsonObject:
      part["schema"] = {{"type", "object"}};
      break;
    case ConstraintKind::kJsonSchema:
      part["schema"] = Json::parse(constraint.text, nullptr, false);
      break;
    case ConstraintKind::kRegex:
      part["regex"] = std::move(constraint.text);
      break;
    case ConstraintKind::kLark:
      part["lark"] = std::move(constraint.text);
      break;
    case ConstraintKind::kNone:
    case ConstraintKind::kParts:
      MF_CHECK(false);
  }
  parts_.push_back(std::move(part));
  sources_[name] = std::move(constraint.source);
  return formatted("@{}", name);
}

Status LarkText::check_size(std::string_view source) const {
  const uint64_t bytes = part_bytes_ + definitions_.size();
  const uint64_t most = ConstraintLimits().text_bytes_max;
  if (bytes <= most) return {};
  return make_error(ErrorCode::kResourceExhausted,
                    "{}: the grammar of its calls has {} bytes, at most {}", source, bytes, most);
}

OutputConstraint LarkText::finish(const std::string& start, std::string source) {
  Json all = Json::array();
  all.push_back({{"name", "answer"}, {"lark", formatted("start: {}\n{}", start, definitions_)}});
  for (Json& part : parts_) all.push_back(std::move(part));
  return {.kind = ConstraintKind::kParts,
          .text = all.dump(-1, ' ', false, Json::error_handler_t::replace),
          .source = std::move(source),
          .part_sources = std::move(sources_)};
}

}  // namespace moeflux
