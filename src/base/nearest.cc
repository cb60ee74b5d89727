#include "base/nearest.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"

namespace moeflux {
namespace {

// Beyond it nothing that anybody types is near, and the table would be large.
constexpr size_t kLengthMax = 64;

// A third of the letters may be wrong, one at least.
size_t distance_max(std::string_view wanted) { return std::max<size_t>(1, wanted.size() / 3); }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kLengthMax || b.size() > kLengthMax) return std::max(a.size(), b.size());
  std::array<std::array<size_t, kLengthMax + 1>, kLengthMax + 1> table{};
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      const bool same = lower_case(a[i - 1]) == lower_case(b[j - 1]);
      table[i][j] = std::min(
          {table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower_case(a[i - 1]) == lower_case(b[j - 2]) &&
                           lower_case(a[i - 2]) == lower_case(b[j - 1]);
      if (swapped) table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

std::vector<std::string_view> nearest_names(std::string_view wanted,
                                            std::span<const std::string_view> names,
                                            size_t count_max) {
  std::vector<std::pair<size_t, std::string_view>> found;
  const std::string part = lower_case(wanted);
  for (const std::string_view name : names) {
    const size_t distance = edit_distance(wanted, name);
    const bool has_part = part.size() >= 4 && lower_case(name).find(part) != std::string::npos;
    if (has_part || distance <= distance_max(wanted)) found.emplace_back(distance, name);
  }
  std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first; });
  std::vector<std::string_view> result;
  for (const auto& [distance, name] : found) {
    // Nobody who wrote all but the case means another one.
    const bool is_far = found.front().first == 0 && distance > 0;
    if (result.size() < count_max && !is_far) result.push_back(name);
  }
  return result;
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string_view> names,
                         size_t count_max) {
  const std::vector<std::string_view> near = nearest_names(wanted, names, count_max);
  std::string text;
  for (size_t i = 0; i < near.size(); ++i) {
    text += i == 0 ? "; did you mean " : i + 1 == near.size() ? " or " : ", ";
    text += near[i];
  }
  return near.empty() ? text : text + "?";
}

}  // namespace moeflux
