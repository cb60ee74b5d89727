// Random programs of ops over one memory in which tensors overlap: as models chain ops, and as no
// model does. For running them in different ways that must give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/support.h"

namespace moeflux::conformance {

/// The memory that a program's ops work on: the same numbers in every session.
struct World {
  static constexpr int64_t kCols = 64;
  static constexpr int64_t kHeadDim = 32;  // of two heads
  static constexpr int64_t kExperts = 4;
  static constexpr int64_t kTopK = 2;
  static constexpr int64_t kTaps = 4;
  static constexpr int64_t kDeltaDim = 128;
  static constexpr int64_t kPageTokens = 32;
  static constexpr int64_t kLayers = 2;
  static constexpr int64_t kSlots = 24;  // of kCols numbers a token
  static constexpr int64_t kRoom = 32;   // numbers behind the last slot

  struct Layer {
    std::vector<Tensor> k_pages, v_pages;
    Tensor conv_state;   // [kTaps - 1, kCols]
    Tensor delta_state;  // [1, kDeltaDim, kDeltaDim]
    Tensor ids;          // i32 [n, kTopK]
  };

  World(Session& s, uint64_t seed, int64_t tokens);
  /// Contiguous, from the arena's number `at` on.
  Tensor at(int64_t at, const Shape& shape) const {
    return Tensor::view(*arena.buffer, arena.offset_bytes + static_cast<size_t>(at) * sizeof(float),
                        shape, DType::kF32);
  }
  Tensor rows(int64_t from) const { return at(from, {n, kCols}); }
  Tensor heads(int64_t from) const { return at(from, {n, kCols / kHeadDim, kHeadDim}); }

  Encoder& encoder;
  int64_t n;  // tokens of every op
  Tensor arena;
  std::vector<Layer> layers;
  std::vector<Weight> squares;  // [kCols, kCols] in several formats
  std::vector<Weight> routers;  // [kExperts, kCols]
  std::vector<GluWeights> networks;
  /// Sets of experts, as long as the world lives.
  std::vector<std::shared_ptr<const std::vector<ExpertWeights>>> experts;
  Tensor norm, head_norm, delta_norm, conv_weight, bias;
  Tensor positions, frequencies, other_frequencies;
  Tensor delta_rates;  // [1]
};

struct Step {
  std::string text;  // "add 64 = 0 + 128"
  std::function<void(World&)> run;
};

struct Program {
  uint64_t seed = 0;
  int64_t n = 1;
  std::vector<Step> steps;
};
Program make_program(uint64_t seed);

/// All memory a program may have written, after these of its steps. `apart`: a submission after
/// every op keeps what could share a launch from it.
std::vector<std::vector<float>> run_program(Device& device, const Program& program, bool apart);

}  // namespace moeflux::conformance
