// The names of a list that somebody may have meant by another: "did you mean".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

/// Letters to insert, delete, replace or swap with a neighbour until one is the other. Case does
/// not count.
size_t edit_distance(std::string_view a, std::string_view b);

/// The names that `wanted` can mean, nearest first, at most so many: few edits away, its end left
/// out or not, or with it as a part. Views of `names`.
std::vector<std::string_view> nearest_names(std::string_view wanted,
                                            std::span<const std::string_view> names,
                                            size_t count_max = 3);

/// "; did you mean a, b or c?", or nothing.
std::string did_you_mean(std::string_view wanted, std::span<const std::string_view> names,
                         size_t count_max = 3);

}  // namespace moeflux
