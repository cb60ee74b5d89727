#include "quant/ggml_file_types.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

const GgmlType& named(std::string_view name) {
  const GgmlType* type = find_ggml_type(name);
  MF_CHECK(type != nullptr);
  return *type;
}

bool is_one_of(const GgmlType& type, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (type.name == name) return true;
  }
  return false;
}

/// A type of shorter blocks for one whose blocks are longer than rows.
const GgmlType& fitting(const GgmlType& type, int64_t cols) {
  if (type.fits(cols)) return type;
  constexpr std::pair<std::string_view, std::string_view> kShorter[] = {
      {"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"},  {"Q4_K", "Q5_0"},  {"Q5_K", "Q5_1"},    {"Q6_K", "Q8_0"},
      {"Q1_0", "Q2_0"}, {"TQ1_0", "Q4_0"}, {"TQ2_0", "Q4_0"}, {"Q2_0_128", "Q2_0"}};
  for (const auto& [from, to] : kShorter) {
    if (type.name == from && named(to).fits(cols)) return named(to);
  }
  const GgmlType& other = named("IQ4_NL");
  if (type.name.starts_with("IQ") && other.fits(cols)) return other;
  return named("F16");
}

const GgmlType& wanted_type(const GgmlType& wanted, const GgufMatrix& matrix) {
  if (wanted.format->is_plain()) return wanted;
  if (wanted.name == "MXFP4") return matrix.is_expert ? wanted : named("Q8_0");
  if (matrix.is_head) {
    if (wanted.name == "Q8_0") return wanted;
    const bool is_low =
        is_one_of(wanted, {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"});
    return named(is_low ? "Q5_K" : "Q6_K");
  }
  if (!matrix.is_embedding) return wanted;
  if (is_one_of(wanted, {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"})) return named("Q2_K");
  if (is_one_of(wanted, {"IQ2_S", "IQ3_XXS"})) return named("IQ3_S");
  if (wanted.name.starts_with("TQ")) return named("Q4_K");
  return wanted;
}

}  // namespace

const GgmlType& type_of_matrix(const GgmlType& wanted, const GgufMatrix& matrix) {
  return fitting(wanted_type(wanted, matrix), matrix.cols);
}

}  // namespace moeflux
