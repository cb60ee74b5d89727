// AWQ and GPTQ, transposed in files: M.qweight I32, M.qzeros I32, M.scales [groups, rows], and
// GPTQ's M.g_idx I32 [cols], the group of each column. config.json tells which of the two it is,
// and GPTQ's version.
//   AWQ   qweight [cols, rows / 8], qzeros [groups, rows / 8]
//   GPTQ  qweight [cols * bits / 32, rows], qzeros [groups, rows * bits / 32]
#include <algorithm>
#include <iterator>
#include <set>

#include "base/format.h"
#include "model/weights/stored_formats.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::stored_gptq {
namespace {

bool is_spelled(const ModuleTensors& tensors) { return tensors.find("qweight") != nullptr; }

bool is(const StoredPart& part, DType dtype, const Shape& shape) {
  return part.entry != nullptr && part.entry->dtype == dtype && part.entry->shape == shape;
}

/// Bits by the packed extents, unless config.json says them.
int bits_of(const ModuleTensors& tensors, const QuantRule& rule, int64_t cols) {
  if (!rule.varies) return rule.bits;
  const Shape& words = tensors.find("qweight")->shape;
  return words.rank() == 2 && words[0] * 4 == cols ? 8 : 4;
}

/// -1 where scales and config.json disagree. Where config.json says several sizes, only one of them
/// may make so many groups, unless a map says which columns they have.
int group_size_of(const QuantRule& rule, int64_t cols, int64_t groups, bool has_map) {
  const auto fits = [&](int64_t width) {
    return width > 0 && width <= 65536 && groups == (cols + width - 1) / width;
  };
  if (groups < 1) return -1;
  if (groups == 1 && (rule.varies || rule.group_size == 0 || rule.group_size >= cols)) return 0;
  if (!rule.varies) return fits(rule.group_size) ? rule.group_size : -1;
  std::set<int> widths;
  std::ranges::copy_if(rule.group_sizes, std::inserter(widths, widths.end()), fits);
  if (widths.size() == 1) return *widths.begin();
  const int64_t width = (cols + groups - 1) / groups;
  return has_map && fits(width) ? static_cast<int>(width) : -1;
}

Result<StoredModule> read(const ModuleTensors& tensors, const QuantConfig& quant,
                          const Shape& shape) {
  StoredModule found{.name = tensors.module()};
  const QuantRule& rule = quant.rule();
  MF_RETURN_IF_ERROR(rule.expect_method(found.name, "AWQ or GPTQ", {"awq", "gptq"}));
  if (rule.method.empty() || shape.rank() != 2) {
    return tensors.mismatch(
        ErrorCode::kUnsupported, {"qweight"},
        shape.rank() != 2 ? "one matrix a module" : "quantization_config to say AWQ or GPTQ");
  }
  const bool is_awq = rule.method == "awq";
  const int64_t rows = shape[0];
  const int64_t cols = shape[1];
  found.parts.codes = tensors.part("qweight");
  found.parts.scales = tensors.part("scales");
  found.parts.offsets = tensors.part("qzeros");
  const TensorEntry* scales = found.parts.scales.entry;
  const int64_t groups = scales != nullptr && scales->shape.rank() == 2 ? scales->shape[0] : 0;
  const int bits = bits_of(tensors, rule, cols);
  const bool has_map = tensors.find("g_idx") != nullptr;
  const int width = group_size_of(rule, cols, groups, has_map);
  const int64_t row_words = (rows * bits + 31) / 32;
  const Shape codes = is_awq ? Shape{cols, row_words} : Shape{(cols * bits + 31) / 32, rows};
  const auto fails = [&] {
    return tensors.mismatch(ErrorCode::kCorruption, {"qweight", "scales", "qzeros"},
                            formatted("{} bits of a matrix {} in groups of {}, as config.json says",
                                      bits, shape.to_string(), rule.group_size));
  };
  if (width < 0) return fails();
  found.format = integers_of(is_awq ? awq_format : gptq_format, bits, width, scales->dtype);
  if (!is_awq && rule.adds_one_to_zeros) found.format.variant |= kZerosLessOne;
  if (!is_valid(found.format, cols) || !is(found.parts.codes, DType::kI32, codes) ||
      !is(found.parts.scales, scales->dtype, Shape{groups, rows}) ||
      !is(found.parts.offsets, DType::kI32, Shape{groups, row_words})) {
    return fails();
  }
  if (is_awq || !has_map) return found;
  MF_ASSIGN_OR_RETURN(const bool is_mapped, maps_columns(tensors, "g_idx", found.format, cols));
  if (is_mapped) {
    found.parts.column_map = tensors.part("g_idx");
    found.format.variant |= kColumnMap;
  } else {
    found.others.push_back(tensors.name_of("g_idx"));
  }
  return found;
}

}  // namespace

extern const StoredFormat spelling = {.codes = "qweight", .is_spelled = is_spelled, .read = read};

}  // namespace moeflux::stored_gptq
