// Each piece is searched as a text of its own by the next split, so look-around stops at its ends.
#include "text/regex/pretokenizer.h"

#include <algorithm>

#include "base/format.h"
#include "base/json.h"
#include "text/encoding/byte_alphabet.h"
#include "text/encoding/spec_fields.h"
#include "text/encoding/utf8.h"
#include "text/regex/regex_syntax.h"

namespace moeflux {
namespace {

constexpr size_t kSplitsMax = 32;

// The union of char::is_ascii_punctuation and the category in the `tokenizers` library.
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~])";

// Published patterns that group digits from the last one look from each digit to the end of its
// run, in quadratic time. These do the same: runs of more than 510 digits, a multiple of 3, are cut
// into parts of 510 from the last first, and where a run does not match its other digits do not
// try.
constexpr std::string_view kGroupsAtWordEnd = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kGroupsAtWordEndFast[] = {
    R"((?<!\d)\d{1,510}(?=(?:\d{510})+\b)|(?<=\d)\G\d{510})",
    R"((?:(?<!\d)|(?<=\d)\G)\d{1,3}(?=(?:\d{3})*\b))"};
constexpr std::string_view kGroups = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view kGroupsFast[] = {
    R"((?<!\d)\d{1,510}(?=(?:\d{510})+(?!\d))|(?<=\d)\G\d{510})", kGroups};

struct Stretch {
  size_t begin;
  size_t end;
  bool is_match;
};

// The matches in one text and what lies between them. An empty match cuts where it stands, but not
// right behind the match before it.
Status find_stretches(Regex::Matcher& matcher, std::string_view text, std::vector<Stretch>* out) {
  size_t done = 0;
  size_t from = 0;
  size_t last_end = Regex::npos;
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    if (begin < end) out->push_back({begin, end, is_match});
  };
  while (from <= text.size()) {
    MF_ASSIGN_OR_RETURN(const Match match, matcher.find(text, from));
    if (match.begin == Regex::npos) break;
    if (match.begin == match.end && match.end == last_end) {
      if (match.end == text.size()) break;
      from = match.end + next_utf8(text.substr(match.end)).bytes_count;
      continue;
    }
    add(done, match.begin, false);
    add(match.begin, match.end, true);
    done = from = last_end = match.end;
  }
  add(done, text.size(), false);
  return {};
}

void grow(Stretch& into, const Stretch& by) {
  into.begin = std::min(into.begin, by.begin);
  into.end = std::max(into.end, by.end);
}

// A match joins the piece before it unless that is a match as well; read backwards, the one behind.
void merge_matches(std::vector<Stretch>* stretches) {
  std::vector<Stretch> merged;
  bool after_match = false;
  for (const Stretch& stretch : *stretches) {
    if (stretch.is_match && !after_match && !merged.empty()) {
      grow(merged.back(), stretch);
    } else {
      merged.push_back(stretch);
    }
    after_match = stretch.is_match;
  }
  stretches->swap(merged);
}

void apply_behavior(SplitBehavior behavior, std::vector<Stretch>* stretches) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(*stretches, [](const Stretch& stretch) { return stretch.is_match; });
      return;
    case SplitBehavior::kContiguous: {
      std::vector<Stretch> merged;
      for (const Stretch& stretch : *stretches) {
        const bool is_same = !merged.empty() && merged.back().is_match == stretch.is_match;
        if (is_same) {
          grow(merged.back(), stretch);
        } else {
          merged.push_back(stretch);
        }
      }
      stretches->swap(merged);
      return;
    }
    case SplitBehavior::kMergedWithPrevious:
      merge_matches(stretches);
      return;
    case SplitBehavior::kMergedWithNext:
      std::ranges::reverse(*stretches);
      merge_matches(stretches);
      std::ranges::reverse(*stretches);
      return;
  }
  __builtin_unreachable();
}

Result<SplitBehavior> read_behavior(const Json& spec, std::string_view what) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext}};
  const Json& behavior = spec_field(spec, "behavior");
  for (const auto& [name, value] : kNames) {
    if (behavior.is_string() && behavior.get_ref<const std::string&>() == name) return value;
  }
  return make_error(ErrorCode::kUnsupported,
                    "{} behavior {}, expected Isolated, Removed, Contiguous, MergedWithPrevious or "
                    "MergedWithNext",
                    what, behavior.is_null() ? "missing" : json_excerpt(behavior));
}

// From places in a spelling to places in what it spells: in the byte alphabet a byte is a
// character.
void leave_spelling(std::string_view spelling, std::vector<Stretch>* stretches) {
  size_t at = 0;
  size_t bytes = 0;
  const auto move = [&](size_t* place) {
    for (; at < *place; ++at) {
      if ((static_cast<uint8_t>(spelling[at]) & 0xC0u) != 0x80) ++bytes;
    }
    *place = bytes;
  };
  for (Stretch& stretch : *stretches) {
    move(&stretch.begin);
    move(&stretch.end);
  }
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(std::span<const std::string_view> patterns,
                                          size_t spelled_count) {
  PreTokenizer pre;
  for (const std::string_view pattern : patterns) {
    MF_RETURN_IF_ERROR(pre.add_split(pattern, {}));
  }
  pre.splits_of_text_ = pre.splits_.size() - spelled_count;
  return pre;
}

Result<PreTokenizer> PreTokenizer::parse(const Json& spec) {
  PreTokenizer pre;
  MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, "pre_tokenizer"));
  if (type != "Sequence") {
    MF_RETURN_IF_ERROR(pre.add_spec(spec));
  } else {
    MF_ASSIGN_OR_RETURN(const Json* list, spec_list(spec, "pretokenizers", "pre_tokenizer"));
    for (const Json& item : *list) MF_RETURN_IF_ERROR(pre.add_spec(item));
  }
  if (!pre.has_byte_level_) {
    return make_error(ErrorCode::kUnsupported,
                      "pre_tokenizer has no ByteLevel; only byte-level tokenizers are supported");
  }
  return pre;
}

Status PreTokenizer::add_spec(const Json& spec) {
  MF_ASSIGN_OR_RETURN(const std::string type, spec_type(spec, "pre_tokenizer"));
  if (splits_.size() >= kSplitsMax) {
    return make_error(ErrorCode::kUnsupported, "pre_tokenizer has more than {} splits", kSplitsMax);
  }
  if (type == "Split") return add_split(spec);
  if (type == "Digits") {
    MF_ASSIGN_OR_RETURN(const bool one_by_one,
                        spec_bool(spec, "individual_digits", false, "pre_tokenizer Digits"));
    return add_split(one_by_one ? "\\p{N}" : "\\p{N}+", {});
  }
  if (type == "Punctuation") {
    Split how;
    if (!spec_field(spec, "behavior").is_null()) {
      MF_ASSIGN_OR_RETURN(how.behavior, read_behavior(spec, "pre_tokenizer Punctuation"));
    }
    return add_split(kPunctuation, how);
  }
  if (type == "ByteLevel") {
    if (!has_byte_level_) return add_byte_level(spec);
    return make_error(ErrorCode::kUnsupported, "pre_tokenizer with two ByteLevel");
  }
  return make_error(
      ErrorCode::kUnsupported,
      "pre_tokenizer type {}, expected Sequence, Split, Digits, Punctuation or ByteLevel", type);
}

Status PreTokenizer::add_split(const Json& spec) {
  constexpr std::string_view kWhat = "pre_tokenizer Split";
  Split how;
  MF_ASSIGN_OR_RETURN(how.behavior, read_behavior(spec, kWhat));
  MF_ASSIGN_OR_RETURN(how.inverts, spec_bool(spec, "invert", false, kWhat));
  const auto pattern = spec.find("pattern");
  if (pattern != spec.end() && pattern->is_object() && pattern->size() == 1) {
    const Json& text = pattern->front();
    if (text.is_string() && pattern->contains("Regex")) {
      return add_split(text.get_ref<const std::string&>(), how);
    }
    if (text.is_string() && pattern->contains("String")) {
      return add_split(quote_regex(text.get_ref<const std::string&>()), how);
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
  splits_before_byte_level_ = splits_.size();
  if (use_regex) MF_RETURN_IF_ERROR(add_split(kGpt2Pattern, {}));
  splits_of_text_ = splits_.size();
  return {};
}

Status PreTokenizer::add_split(std::string_view pattern, Split how) {
  const bool is_plain = how.behavior == SplitBehavior::kIsolated && !how.inverts;
  if (is_plain && pattern == kGroupsAtWordEnd) return add_splits(kGroupsAtWordEndFast);
  if (is_plain && pattern == kGroups) return add_splits(kGroupsFast);
  return add_pattern(pattern, how);
}

Status PreTokenizer::add_splits(std::span<const std::string_view> patterns) {
  for (const std::string_view pattern : patterns) MF_RETURN_IF_ERROR(add_pattern(pattern, {}));
  return {};
}

Status PreTokenizer::add_pattern(std::string_view pattern, Split how) {
  Result<Regex> regex = Regex::compile(pattern);
  if (!regex.ok()) return regex.error().with_context("pre_tokenizer");
  splits_.push_back(how);
  patterns_.push_back(std::move(regex).value());
  if (!has_byte_level_) splits_of_text_ = splits_.size();
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
  std::vector<Stretch> stretches;
  for (size_t i = 0; i <= matchers.size(); ++i) {
    if (i == splits_before_byte_level_ && add_prefix_space_) {
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
      stretches.clear();
      if (i < splits_of_text_) {
        MF_RETURN_IF_ERROR(find_stretches(matchers[i], piece, &stretches));
      } else {
        const std::string spelling = spelling_of_bytes(piece);
        MF_RETURN_IF_ERROR(find_stretches(matchers[i], spelling, &stretches));
        leave_spelling(spelling, &stretches);
      }
      for (Stretch& stretch : stretches) {
        if (splits_[i].inverts) stretch.is_match = !stretch.is_match;
      }
      apply_behavior(splits_[i].behavior, &stretches);
      for (const Stretch& stretch : stretches) {
        next.push_back(piece.substr(stretch.begin, stretch.end - stretch.begin));
      }
    }
    pieces->swap(next);
  }
  return {};
}

}  // namespace moeflux
