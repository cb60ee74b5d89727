// Every split is "Isolated": a match is a piece, and so is the text between two matches. Each piece
// is searched as a text of its own by the next split, so look-around stops at its ends.
#include "text/pretokenizer.h"

#include "base/format.h"
#include "base/json.h"
#include "text/regex_syntax.h"
#include "text/spec_fields.h"
#include "text/utf8.h"

namespace moeflux {
namespace {

constexpr size_t kSplitsMax = 32;

// Appends the pieces of one text. An empty match cuts where it stands, but not right behind the
// match before it.
Status split_one(Regex::Matcher& matcher, std::string_view text,
                 std::vector<std::string_view>* out) {
  size_t done = 0;
  size_t from = 0;
  size_t last_end = Regex::npos;
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) out->push_back(text.substr(begin, end - begin));
  };
  while (from <= text.size()) {
    MF_ASSIGN_OR_RETURN(const Match match, matcher.find(text, from));
    if (match.begin == Regex::npos) break;
    if (match.begin == match.end && match.end == last_end) {
      if (match.end == text.size()) break;
      from = match.end + next_utf8(text.substr(match.end)).bytes_count;
      continue;
    }
    add(done, match.begin);
    add(match.begin, match.end);
    done = from = last_end = match.end;
  }
  add(done, text.size());
  return {};
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(std::span<const std::string_view> patterns) {
  PreTokenizer pre;
  for (const std::string_view pattern : patterns) MF_RETURN_IF_ERROR(pre.add_pattern(pattern));
  return pre;
}

Result<PreTokenizer> PreTokenizer::parse(const Json& spec) {
  PreTokenizer pre;
  MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, "pre_tokenizer"));
  if (type != "Sequence") {
    MF_RETURN_IF_ERROR(pre.add_spec(spec, true));
  } else {
    MF_ASSIGN_OR_RETURN(const Json* list, spec_list(spec, "pretokenizers", "pre_tokenizer"));
    for (size_t i = 0; i < list->size(); ++i) {
      MF_RETURN_IF_ERROR(pre.add_spec((*list)[i], i + 1 == list->size()));
    }
  }
  if (!pre.has_byte_level_) {
    return make_error(ErrorCode::kUnsupported,
                      "pre_tokenizer has no ByteLevel; only byte-level tokenizers are supported");
  }
  return pre;
}

Status PreTokenizer::add_spec(const Json& spec, bool is_last) {
  MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, "pre_tokenizer"));
  if (patterns_.size() >= kSplitsMax) {
    return make_error(ErrorCode::kUnsupported, "pre_tokenizer has more than {} splits", kSplitsMax);
  }
  if (type == "Split") return add_split(spec);
  if (type == "Digits") {
    MF_ASSIGN_OR_RETURN(const bool one_by_one,
                        spec_bool(spec, "individual_digits", false, "pre_tokenizer Digits"));
    return add_pattern(one_by_one ? "\\p{N}" : "\\p{N}+");
  }
  if (type == "ByteLevel") {
    if (is_last) return add_byte_level(spec);
    return make_error(ErrorCode::kUnsupported, "pre_tokenizer ByteLevel is not the last one");
  }
  return make_error(ErrorCode::kUnsupported,
                    "pre_tokenizer type {}, expected Sequence, Split, Digits or ByteLevel", type);
}

Status PreTokenizer::add_split(const Json& spec) {
  constexpr std::string_view kWhat = "pre_tokenizer Split";
  const auto behavior = spec.find("behavior");
  if (behavior == spec.end() || *behavior != "Isolated") {
    return make_error(ErrorCode::kUnsupported, "{} behavior {}, expected Isolated", kWhat,
                      behavior == spec.end() ? "missing" : json_excerpt(*behavior));
  }
  // "invert" swaps matches and gaps, which an Isolated split treats alike.
  MF_RETURN_IF_ERROR(spec_bool(spec, "invert", false, kWhat));
  const auto pattern = spec.find("pattern");
  if (pattern != spec.end() && pattern->is_object() && pattern->size() == 1) {
    const Json& text = pattern->front();
    if (text.is_string() && pattern->contains("Regex")) {
      return add_pattern(text.get_ref<const std::string&>());
    }
    if (text.is_string() && pattern->contains("String")) {
      return add_pattern(quote_regex(text.get_ref<const std::string&>()));
    }
  }
  return make_error(ErrorCode::kUnsupported, "{} pattern {}, expected Regex or String", kWhat,
                    pattern == spec.end() ? "missing" : json_excerpt(*pattern));
}

Status PreTokenizer::add_byte_level(const Json& spec) {
  constexpr std::string_view kWhat = "pre_tokenizer ByteLevel";
  MF_ASSIGN_OR_RETURN(add_prefix_space_, spec_bool(spec, "add_prefix_space", true, kWhat));
  MF_ASSIGN_OR_RETURN(const bool use_regex, spec_bool(spec, "use_regex", true, kWhat));
  has_byte_level_ = true;
  patterns_before_byte_level_ = patterns_.size();
  if (use_regex) return add_pattern(kGpt2Pattern);
  return {};
}

Status PreTokenizer::add_pattern(std::string_view pattern) {
  Result<Regex> regex = Regex::compile(pattern);
  if (!regex.ok()) return regex.error().with_context("pre_tokenizer");
  patterns_.push_back(std::move(regex).value());
  return {};
}

std::vector<Regex::Matcher> PreTokenizer::make_matchers() const {
  std::vector<Regex::Matcher> matchers;
  matchers.reserve(patterns_.size());
  for (const Regex& regex : patterns_) matchers.emplace_back(regex);
  return matchers;
}

Status PreTokenizer::split(std::vector<Regex::Matcher>& matchers,
                           std::vector<std::string_view>* pieces,
                           std::vector<std::string>* prefixed) const {
  std::vector<std::string_view> next;
  for (size_t i = 0; i <= matchers.size(); ++i) {
    if (i == patterns_before_byte_level_ && add_prefix_space_) {
      prefixed->reserve(prefixed->size() + pieces->size());  // pieces point into the strings
      for (std::string_view& piece : *pieces) {
        if (piece.starts_with(' ')) continue;
        std::string& text = prefixed->emplace_back(1, ' ');
        text.append(piece);
        piece = text;
      }
    }
    if (i == matchers.size()) break;
    next.clear();
    for (const std::string_view piece : *pieces) {
      MF_RETURN_IF_ERROR(split_one(matchers[i], piece, &next));
    }
    pieces->swap(next);
  }
  return {};
}

}  // namespace moeflux
