#include "hub/choice.h"

#include <vector>

#include "base/format.h"
#include "base/units.h"

namespace moeflux::hub {
namespace {

constexpr double kTokensPerSecond = 10.0;  // a reader's pace
constexpr int kBitsMin = 4;                // fewer are heard in the text
constexpr int kBitsMax = 8;                // more are not

}  // namespace

Result<SetChoice> choose_set(std::span<const FileSet> sets,
                             const std::function<Result<SetForecast>(const FileSet&)>& forecast) {
  MF_CHECK(!sets.empty());
  std::vector<FileSet> good;
  std::vector<FileSet> small;
  for (const FileSet& set : sets) {
    if (set.bits >= kBitsMin && set.bits <= kBitsMax) good.push_back(set);
    if (set.bits > 0 && set.bits < kBitsMin) small.push_back(set);
  }
  if (good.empty()) good.assign(sets.begin(), sets.end());
  // The first `fast` of them are fast; those from `slow` on are not.
  size_t fast = 0;
  size_t slow = good.size();
  SetForecast next;  // of good[slow]
  while (fast < slow) {
    const size_t middle = (fast + slow) / 2;
    MF_ASSIGN_OR_RETURN(const SetForecast found, forecast(good[middle]));
    if (found.fits && found.tokens_per_second >= kTokensPerSecond) {
      fast = middle + 1;
    } else {
      slow = middle;
      next = found;
    }
  }
  if (fast > 0) {
    std::string reason = fast == good.size() ? formatted("the best of {}", sets.size())
                                             : formatted(
                                                   "the largest of {} that makes {} tokens/s "
                                                   "here",
                                                   sets.size(), kTokensPerSecond);
    return SetChoice{good[fast - 1], std::move(reason)};
  }
  if (next.fits) {
    return SetChoice{good.front(),
                     formatted("the smallest of {} bits and more: none makes {} tokens/s here",
                               kBitsMin, kTokensPerSecond)};
  }
  for (size_t i = small.size(); i-- > 0;) {
    MF_ASSIGN_OR_RETURN(const SetForecast found, forecast(small[i]));
    if (found.fits) {
      return SetChoice{small[i], formatted("the largest that fits: {} of {} bits does not",
                                           format_bytes(good.front().bytes), good.front().bits)};
    }
  }
  return make_error(ErrorCode::kResourceExhausted,
                    "none of {} models fits into this machine's memory, of which the smallest has "
                    "{}; name one behind a colon to get it nevertheless",
                    sets.size(), format_bytes(sets.front().bytes));
}

}  // namespace moeflux::hub
