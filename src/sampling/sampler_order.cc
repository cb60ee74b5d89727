#include "sampling/sampler_order.h"

#include <algorithm>
#include <array>

#include "base/format.h"

namespace moeflux {
namespace {

struct Names {
  SamplerStep step;
  char letter;
  std::string_view name;
  std::array<std::string_view, 4> others;  // beside the name, which may have hyphens too
};

constexpr std::array<Names, kSamplerStepCount> kNames = {{
    {SamplerStep::kPenalties, 'e', "penalties", {}},
    {SamplerStep::kDry, 'd', "dry", {}},
    {SamplerStep::kTopNSigma, 's', "top_n_sigma", {"top-n-sigma"}},
    {SamplerStep::kTopK, 'k', "top_k", {"top-k"}},
    {SamplerStep::kTypicalP, 'y', "typ_p", {"typ-p", "typ", "typical", "typical-p"}},
    {SamplerStep::kTopP, 'p', "top_p", {"top-p", "nucleus"}},
    {SamplerStep::kMinP, 'm', "min_p", {"min-p"}},
    {SamplerStep::kXtc, 'x', "xtc", {}},
    {SamplerStep::kTemperature, 't', "temperature", {"temp"}},
}};

std::string all_names() {
  std::string names;
  for (const Names& entry : kNames) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

}  // namespace

std::vector<SamplerStep> default_sampler_order() {
  std::vector<SamplerStep> order;
  for (const Names& entry : kNames) order.push_back(entry.step);
  return order;
}

Result<std::vector<SamplerStep>> parse_sampler_order(std::string_view names) {
  std::vector<SamplerStep> order;
  if (names.empty()) return order;
  for (bool more = true; more;) {
    const size_t end = names.find(';');
    const std::string_view name = names.substr(0, end);
    const auto found = std::find_if(kNames.begin(), kNames.end(), [&](const Names& entry) {
      const auto& others = entry.others;
      return !name.empty() &&
             (name == entry.name || std::find(others.begin(), others.end(), name) != others.end());
    });
    if (found == kNames.end()) {
      return make_error(ErrorCode::kInvalidArgument, "'{}' is not a sampler, expected one of {}",
                        name, all_names());
    }
    order.push_back(found->step);
    more = end != std::string_view::npos;
    if (more) names.remove_prefix(end + 1);
  }
  return order;
}

Result<std::vector<SamplerStep>> parse_sampler_letters(std::string_view letters) {
  std::vector<SamplerStep> order;
  for (const char letter : letters) {
    const auto found = std::find_if(kNames.begin(), kNames.end(),
                                    [&](const Names& entry) { return entry.letter == letter; });
    if (found == kNames.end()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "'{}' is not a sampler's letter, expected one of edskypmxt",
                        std::string_view(&letter, 1));
    }
    order.push_back(found->step);
  }
  return order;
}

std::string sampler_order_names(const std::vector<SamplerStep>& order) {
  std::string names;
  for (const SamplerStep step : order) {
    if (!names.empty()) names += ';';
    names += kNames[static_cast<size_t>(step)].name;
  }
  return names;
}

}  // namespace moeflux
