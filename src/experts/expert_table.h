// Where every routed expert lies in the checkpoint and how it is laid out in a cache slot. Built by
// the model from the tensor index at load; immutable afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/ops/expert_ffn.h"
#include "base/ids.h"
#include "checkpoint/expert_pack.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux {

/// A contiguous piece of a checkpoint file and where it goes in the slot.
struct ExpertExtent {
  int32_t file = 0;  // into TensorIndex::files
  uint64_t offset = 0;
  uint64_t bytes = 0;
  size_t slot_offset = 0;
};
/// Whether it goes on in the file where `last` ends; null: nothing came before.
bool adjoins(const ExpertExtent& extent, const ExpertExtent* last);

/// A bias vector of an expert inside a slot; size 0 when there is none.
struct ExpertBias {
  DType dtype = DType::kF32;
  int64_t size = 0;
  size_t offset = 0;

  Tensor view(Buffer& buffer, size_t slot_offset) const;
};

/// From the bytes of a file to those of a slot. Extents say where each byte would come in a slot;
/// kAsStored reads there. kInPlace reads where LandedExpert says, and computes with it there. The
/// others read so elsewhere and write the slot from it.
enum class ExpertArrangement : uint8_t {
  kAsStored,  // bytes arrive in this layout, tiles included
  kInPlace,   // parts begin anywhere; expert by expert elsewhere
  /// Matrices in tiled order arrive as codes, scales and biases one after another at data_offset,
  /// where the tiles will be; the other matrices as they stay.
  kRowMajorParts,
  /// The file holds gate_up as [hidden, 2 * intermediate] with gate and up in alternate columns,
  /// down as [intermediate, hidden], then both biases; extents put these one after another at the
  /// slot's begin.
  kInputMajorInterleaved,
  /// The same with the columns of gate before those of up, and no biases.
  kInputMajorHalves,
  /// The file holds gate_up as rows of gate and of up in turn, down, then biases in turn as well;
  /// extents put them one after another at the slot's begin, each part by part.
  kAlternateRows,
  /// Matrices and biases arrive as `stored`; the device wants other orders, or other formats of the
  /// same numbers.
  kReordered,
};

/// The experts of one layer: all alike in shape and format. gate, up, down in order of consumption.
struct ExpertLayer {
  int32_t num_experts = 0;
  // As they are once arranged; offsets of parts are relative to the slot and 64-byte aligned.
  /// Without rows where experts have none: then up is its own gate.
  Weight gate;
  Weight up;
  Weight down;
  ExpertBias gate_bias;
  ExpertBias up_bias;
  ExpertBias down_bias;
  ExpertArrangement arrangement = ExpertArrangement::kAsStored;
  std::array<Weight, 3> stored;  // of kReordered and kAlternateRows: gate, up, down as they arrive
  std::array<ExpertBias, 3> stored_biases;
  size_t slot_bytes = 0;
  int32_t extents_per_expert = 0;
  std::vector<ExpertExtent> extents;  // [num_experts][extents_per_expert]
  /// One an expert, over the first checked_bytes of its slot as it arrives; empty where nobody took
  /// them.
  std::vector<uint64_t> checksums;
  size_t checked_bytes = 0;
  /// Names of tensors of the layer's experts that no extent reads: what a loader has looked at.
  std::vector<std::string> tensors_beside;

  bool has_gate() const { return gate.rows > 0; }
  /// The matrices that an expert has, from this one on: 0 is gate, 1 is up.
  size_t first_matrix() const { return has_gate() ? 0 : 1; }
  std::span<const ExpertExtent> extents_of(ExpertId expert) const {
    const auto per_expert = static_cast<size_t>(extents_per_expert);
    return std::span(extents).subspan(static_cast<size_t>(index(expert)) * per_expert, per_expert);
  }
  /// Whether an expert is read elsewhere and its slot written from there.
  bool lands_apart() const {
    return arrangement != ExpertArrangement::kAsStored &&
           arrangement != ExpertArrangement::kInPlace;
  }
  /// Bytes read from storage for one expert.
  uint64_t bytes_per_expert() const;
  uint64_t parameters_per_expert() const {
    return static_cast<uint64_t>(gate.rows * gate.cols + up.rows * up.cols + down.rows * down.cols +
                                 gate_bias.size + up_bias.size + down_bias.size);
  }
  /// Its matrices and biases in a slot that begins at `slot_offset` of `buffer`.
  ExpertWeights weights(ExpertId expert, Buffer& buffer, size_t slot_offset) const;
  /// Matrix 0 (gate), 1 (up) or 2 (down) with the places of its parts in a slot of this expert.
  Weight matrix_of(ExpertId expert, size_t matrix) const;
  ExpertBias bias_of(ExpertId expert, size_t matrix) const;
};

/// Indexed by layer; layers without routed experts have num_experts 0.
struct ExpertTable {
  std::vector<ExpertLayer> layers;

  const ExpertLayer& layer(LayerId id) const { return layers[static_cast<size_t>(index(id))]; }
  /// The largest slot any layer needs; whole pages where one is read in place.
  size_t slot_bytes_max() const;
  uint64_t num_experts_total() const;
  uint64_t bytes_total() const;
};

/// Places matrices and biases one after another: fills their offsets and slot_bytes.
void lay_out_slot(ExpertLayer& layer);

/// Where the bytes of an expert with these extents land that would come at `slot_offset` of a slot:
/// bytes behind a page's begin. Each extent begins at the same place in a page as in its file and
/// has its pages to itself, so that a direct read of whole pages brings it; extents that adjoin in
/// the file adjoin here.
size_t landing_offset(std::span<const ExpertExtent> extents, size_t slot_offset);
/// Whole pages that any expert of this layer lands in.
size_t landing_bytes(const ExpertLayer& layer);
/// Makes a layer that is kAsStored kInPlace. Leaves it as it is where reads come to whole pages
/// already, and where a part would not lie at a multiple of its elements. Also where slots would
/// grow by more than `growth_max`: many small parts, each with pages to itself.
void compute_in_place(ExpertLayer& layer, double growth_max = 1.0 / 16);

/// Gives up the tiles of kRowMajorParts where the device makes the same bits of rows as they are
/// stored: an expert that is used once or twice before it goes is not worth arranging. Layers that
/// would not be kInPlace then stay as they are. True when anything changed.
bool compute_as_stored(ExpertTable& table, const Device& device);

}  // namespace moeflux
