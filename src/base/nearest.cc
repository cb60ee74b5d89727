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

// As many parts of a name with dashes as `wanted` has.
std::string_view first_parts(std::string_view name, std::string_view wanted) {
  auto dashes = std::ranges::count(wanted, '-');
  size_t end = name.find('-');
  for (; end != std::string_view::npos && dashes > 0; --dashes) end = name.find('-', end + 1);
  return name.substr(0, end);
}

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
  struct Found {
    size_t distance = 0;
    size_t whole = 0;  // with the name's end
    std::string_view name;
  };
  std::vector<Found> found;
  const std::string part = lower_case(wanted);
  size_t least = std::string_view::npos;
  for (const std::string_view name : names) least = std::min(least, edit_distance(wanted, name));
  for (const std::string_view name : names) {
    const bool has_part = part.size() >= 4 && lower_case(name).find(part) != std::string::npos;
    const size_t whole = edit_distance(wanted, name);
    // A name's end may be left out, unless another name is as near with its end.
    const size_t begin = edit_distance(wanted, first_parts(name, wanted));
    const size_t distance = has_part ? 0 : begin < least ? begin : whole;
    if (distance <= distance_max(wanted)) found.push_back({distance, whole, name});
  }
  std::ranges::stable_sort(found, {},
                           [](const Found& f) { return std::pair(f.distance, f.whole); });
  std::vector<std::string_view> result;
  for (const Found& one : found) {
    // Nobody who wrote a part, or all but the case, means another one.
    const bool is_far = found.front().distance == 0 && one.distance > 0;
    if (result.size() < count_max && !is_far) result.push_back(one.name);
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
