#include "checkpoint/shard_choice.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "checkpoint/foreign_file.h"

namespace moeflux {
namespace {

constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kSingleName = "model.safetensors";
// Mistral's own copy of weights that stand beside it in Hugging Face's names.
constexpr std::string_view kOwnCopy = "consolidated";

struct ShardName {
  std::string stem;
  int64_t number = 0;
  int64_t count = 0;
};

/// "model-00002-of-00003.safetensors", with any number of digits.
std::optional<ShardName> parse_shard_name(std::string_view name) {
  name.remove_suffix(kEnding.size());
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || of == 0) return std::nullopt;
  const size_t dash = name.rfind('-', of - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view text) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  };
  const auto own = number(name.substr(dash + 1, of - dash - 1));
  const auto count = number(name.substr(of + 4));
  if (!own || !count || *own < 0 || *count < 1 || *own > *count) return std::nullopt;
  return ShardName{std::string(name.substr(0, dash)), *own, *count};
}

/// Files that are one model by their names.
struct Set {
  std::set<int64_t> numbers;  // of parts
  std::vector<std::string> names;
};
/// By stem and number of parts; a file that is no part has its own name and 0.
using Sets = std::map<std::pair<std::string, int64_t>, Set>;

Sets group(const std::vector<std::string>& names) {
  Sets sets;
  for (const std::string& name : names) {
    if (!name.ends_with(kEnding) || is_beside_model(name)) continue;
    const std::optional<ShardName> part = parse_shard_name(name);
    Set& set = sets[part ? std::pair(part->stem, part->count) : std::pair(name, int64_t{0})];
    set.names.push_back(name);
    if (part) set.numbers.insert(part->number);
  }
  return sets;
}

/// A part that is not there; parts count from 1, or from 0 where there is such a one.
std::optional<int64_t> missing_part(const Set& set, int64_t count) {
  const int64_t first = set.numbers.contains(0) ? 0 : 1;
  for (int64_t i = first; i < first + count && i - first <= int64_t{100000}; ++i) {
    if (!set.numbers.contains(i)) return i;
  }
  return std::nullopt;
}

void erase_own_copies(Sets& sets) {
  const auto is_copy = [](const auto& item) { return item.first.first.starts_with(kOwnCopy); };
  const auto copies = std::count_if(sets.begin(), sets.end(), is_copy);
  if (copies < static_cast<std::ptrdiff_t>(sets.size())) std::erase_if(sets, is_copy);
}

}  // namespace

std::string list_some(const std::vector<std::string>& names, size_t shown_max) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), shown_max); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > shown_max) text += formatted(" and {} more", names.size() - shown_max);
  return text;
}

Result<std::vector<std::string>> choose_shards(const std::vector<std::string>& names) {
  Sets sets = group(names);
  erase_own_copies(sets);
  if (const auto single = sets.find({std::string(kSingleName), 0}); single != sets.end()) {
    return single->second.names;
  }
  // A whole set is the model, and files that are no part of one stand beside it.
  std::vector<const Set*> whole;
  std::optional<std::string> missing;
  for (const auto& [key, set] : sets) {
    if (key.second == 0) continue;
    const std::optional<int64_t> part = missing_part(set, key.second);
    if (!part) {
      if (key.first == "model") return set.names;
      whole.push_back(&set);
    } else if (!missing) {
      missing = formatted("part {} of {} is missing beside {}: a download that has not finished?",
                          *part, key.second, list_some(set.names));
    }
  }
  if (whole.size() == 1) return whole.front()->names;
  if (whole.empty() && missing) return Error(ErrorCode::kNotFound, *missing);
  if (sets.size() == 1) return sets.begin()->second.names;
  std::vector<std::string> all;
  for (const auto& [key, set] : sets) all.push_back(set.names.front());
  if (all.empty()) return make_error(ErrorCode::kNotFound, "there is no .safetensors file");
  return make_error(
      ErrorCode::kInvalidArgument,
      "there are {} .safetensors files whose names are not those of one model's parts, "
      "and no index says which belong together: {}",
      all.size(), list_some(all));
}

}  // namespace moeflux
