// Claims of n-gram tables: nothing of them is placed or read, but for the numbers that name rows.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/format.h"
#include "model/weights/weight_store.h"
#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux {
namespace {

// Far more than a file can hold: sums of a few do not overflow.
constexpr int64_t kRowsMax = int64_t{1} << 48;

}  // namespace

// False where there is none, or where its numbers are not read here.
bool WeightStore::take_integers(const std::string& name, std::vector<int64_t>& values) {
  if (!has(name)) return false;
  const std::string full = claims_.full_name(name);
  const TensorEntry* entry = claims_.claim(full);
  const Shape expected{static_cast<int64_t>(values.size())};
  if (entry->dtype != DType::kI64 || !(entry->shape == expected)) {
    claims_.fail(make_error(ErrorCode::kCorruption, "tensor {} is {} {}, expected I64 {}", full,
                            entry->type_name(), entry->shape.to_string(), expected.to_string()));
    return false;
  }
  if (loading_ == WeightLoading::kAssume) return false;
  const Status read =
      read_tensor(claims_.index(), *entry, std::as_writable_bytes(std::span(values)));
  if (!read.ok()) claims_.fail(read.error().with_context("tensor " + full));
  return read.ok();
}

void WeightStore::ngram_table(LayerId layer, std::string_view name, std::string_view hashes,
                              const NgramSpec& spec, int64_t vocab_size) {
  NgramTable table{.layer = layer,
                   .hashes = make_hashes(spec, vocab_size),
                   .row_dim = spec.row_dim(),
                   .part_rows = 0,
                   .parts = {}};
  NgramHashes& own = table.hashes;
  const std::string below(hashes);
  (void)take_integers(below + "layer_multipliers", own.multipliers);
  (void)take_integers(below + "ngram_heads_vocab_sizes", own.sizes);
  (void)take_integers(below + "ngram_heads_offsets", own.offsets);
  const auto is_row = [](int64_t row) { return row >= 0 && row <= kRowsMax; };
  const int64_t hashed = spec.num_codes > 0 ? spec.num_codes : vocab_size;
  const bool is_sound =
      std::ranges::all_of(own.sizes, [&](int64_t size) { return size > 0 && is_row(size); }) &&
      std::ranges::all_of(own.offsets, is_row) &&
      std::ranges::all_of(own.multipliers, [&](int64_t m) {
        return m > 0 && m <= std::numeric_limits<int64_t>::max() / hashed;
      });
  const bool is_whole = spec.table_rows > 0;
  const int64_t parts = is_whole ? 1 : spec.parts;
  if (is_sound) table.part_rows = is_whole ? spec.table_rows : rows_of_part(spec, own);
  bool fits = is_sound;
  for (size_t i = 0; fits && i < own.sizes.size(); ++i) {
    fits = own.offsets[i] <= table.part_rows * parts - own.sizes[i];
  }
  if (!fits) {
    claims_.fail(make_error(ErrorCode::kCorruption,
                            "{}: rows of its heads do not lie in a table of {} times {}, or its "
                            "multipliers are too large",
                            claims_.full_name(below + "ngram_heads_offsets"), parts,
                            table.part_rows));
    return;
  }
  for (int64_t i = 0; i < parts; ++i) {
    const std::string part = is_whole ? std::string(name) : formatted("{}.shard_{}", name, i);
    const Shape shape{table.part_rows, table.row_dim};
    std::optional<StoredModule> module = origin_->module(part, shape, false);
    if (!module) return;
    // Rows are the same bytes in any order of a matrix only where they share nothing.
    const QuantFormat& format = module->format;
    const bool is_blocks = format.kind->block.elements > 0 && !format.outer_scale;
    const bool is_by_row = format.kind == &fp8_format && format.group_rows == 1;
    if (!format.is_plain() && !format.is_affine() && !is_blocks && !is_by_row) {
      claims_.fail(make_error(ErrorCode::kUnsupported,
                              "module {} is {}; tables of n-grams are read as plain floats, in "
                              "affine groups, in FP8 with scales of single rows or in blocks "
                              "without a factor beside them",
                              module->name, format.to_string()));
      return;
    }
    if (i > 0 && !(module->format == table.format())) {
      claims_.fail(make_error(ErrorCode::kUnsupported, "module {} is stored as {}, shard 0 as {}",
                              module->name, module->format.to_string(),
                              table.format().to_string()));
      return;
    }
    modules_.push_back({.name = module->name,
                        .shape = shape,
                        .format = module->format,
                        .is_table = true,
                        .canonical = part,
                        .stored = *module});
    sizes_.table_parameters += static_cast<uint64_t>(shape.num_elements());
    sizes_.table_bytes += weight_bytes(module->format, shape[0], shape[1]);
    table.parts.push_back(*std::move(module));
  }
  ngram_tables_.push_back(std::move(table));
}

}  // namespace moeflux
