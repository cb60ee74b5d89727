#include "model/weights/expert_extents.h"

#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace moeflux {
namespace {

struct Part {
  PartRole role;
  uint64_t bytes;
  size_t slot_offset;
};

/// As checkpoints hold them: row-major. Parts of tiles arrive one after another where the tiles
/// will be.
std::vector<Part> arriving_parts(const Weight& matrix) {
  const bool is_tiled = matrix.format.order == WeightOrder::kTiled;
  const Parts<uint64_t> bytes =
      part_bytes(matrix.format.with_order(WeightOrder::kRowMajor), matrix.rows, matrix.cols);
  std::vector<Part> parts;
  size_t tiles_end = matrix.parts.codes.offset_bytes;
  for (const PartRole role : kPartRoles) {
    if (bytes[role] == 0) continue;
    parts.push_back({role, bytes[role], is_tiled ? tiles_end : matrix.parts[role].offset_bytes});
    tiles_end += bytes[role];
  }
  return parts;
}

std::vector<Part> parts_of(const Weight& stored) {
  std::vector<Part> parts;
  for (const PartRole role : kPartRoles) {
    if (!stored.has(role)) continue;
    parts.push_back({role, stored.parts[role].size_bytes(), stored.parts[role].offset_bytes});
  }
  return parts;
}

/// Places what arrives for a layer whose matrices and biases are made of it.
void lay_out_stored(ExpertLayer& layer) {
  constexpr uint64_t kAlignment = 64;
  uint64_t end = 0;
  for (Weight& matrix : layer.stored) {
    if (matrix.rows == 0) continue;
    matrix = lay_out(matrix.format, matrix.rows, matrix.cols);
    end = place_parts(matrix, end, kAlignment);
  }
  for (size_t i = 0; i < layer.stored_biases.size(); ++i) {
    ExpertBias& bias = layer.stored_biases[i];
    bias = *biases_of(layer)[i];
    bias.offset = end;
    end += round_up(static_cast<uint64_t>(bias.size * dtype_bits(bias.dtype) / 8), kAlignment);
  }
}

void count_extents(ExpertLayer& layer) {
  layer.extents_per_expert =
      static_cast<int32_t>(layer.extents.size() / static_cast<size_t>(layer.num_experts));
}

}  // namespace

uint64_t bytes_of_expert(const ExpertLayer& layer, const TensorEntry& stacked) {
  return stacked.size_bytes / static_cast<uint64_t>(layer.num_experts);
}

void fill_extents(ExpertLayer& layer, const SourceOf& source_of,
                  std::span<const TensorEntry* const> stacked_biases) {
  lay_out_slot(layer);
  const bool is_converted = layer.arrangement == ExpertArrangement::kReordered;
  if (is_converted) lay_out_stored(layer);
  std::array<std::vector<Part>, 3> parts;
  for (size_t i = layer.first_matrix(); i < parts.size(); ++i) {
    parts[i] = is_converted ? parts_of(layer.stored[i]) : arriving_parts(*matrices_of(layer)[i]);
  }
  const auto bias_at = [&](size_t b) {
    return is_converted ? layer.stored_biases[b].offset : biases_of(layer)[b]->offset;
  };
  for (int64_t expert = 0; expert < layer.num_experts; ++expert) {
    for (size_t matrix = 0; matrix < parts.size(); ++matrix) {
      for (const Part& part : parts[matrix]) {
        const PartSource source = source_of(expert, matrix, part.role);
        layer.extents.push_back({source.entry->file, source.entry->offset_bytes + source.offset,
                                 part.bytes, part.slot_offset});
      }
    }
    for (size_t b = 0; b < stacked_biases.size(); ++b) {
      const TensorEntry& entry = *stacked_biases[b];
      const uint64_t bytes = bytes_of_expert(layer, entry);
      layer.extents.push_back({entry.file,
                               entry.offset_bytes + static_cast<uint64_t>(expert) * bytes, bytes,
                               bias_at(b)});
    }
  }
  count_extents(layer);
}

void fill_extents_in_turn(ExpertLayer& layer, std::span<const TensorEntry* const> stacked) {
  lay_out_slot(layer);
  for (int64_t expert = 0; expert < layer.num_experts; ++expert) {
    size_t slot_offset = 0;
    for (const TensorEntry* piece : stacked) {
      const uint64_t bytes = bytes_of_expert(layer, *piece);
      layer.extents.push_back({piece->file,
                               piece->offset_bytes + static_cast<uint64_t>(expert) * bytes, bytes,
                               slot_offset});
      slot_offset += bytes;
    }
  }
  count_extents(layer);
}

}  // namespace moeflux
