// The memory of random programs, and how they run.
#include "tests/conformance/differential.h"

namespace moeflux::conformance {
namespace {

/// Encoded once: programs share them.
struct Matrices {
  std::vector<EncodedWeight> squares, routers;
  std::vector<std::vector<EncodedWeight>> networks;              // gate, up, down
  std::vector<std::vector<std::vector<EncodedWeight>>> experts;  // of a set, of an expert
};

const Matrices& matrices() {
  static const Matrices all = [] {
    constexpr int64_t kCols = World::kCols;
    Matrices m;
    Random random(130);
    const QuantFormat four = QuantFormat::affine(4, 64, DType::kBf16);
    const QuantFormat eight = QuantFormat::affine(8, 64, DType::kF16);
    const auto network = [&](const QuantFormat& format) {
      std::vector<EncodedWeight> parts;
      for (int i = 0; i < 3; ++i) parts.push_back(random_weight(random, format, kCols, kCols));
      return parts;
    };
    for (const QuantFormat& format : {four, four, eight, QuantFormat::plain(DType::kBf16),
                                      QuantFormat::affine(3, 32, DType::kF32)}) {
      m.squares.push_back(random_weight(random, format, kCols, kCols));
    }
    for (const QuantFormat& format : {eight, QuantFormat::plain(DType::kF32)}) {
      m.routers.push_back(random_weight(random, format, World::kExperts, kCols));
    }
    for (const QuantFormat& format : {four, eight}) {
      m.networks.push_back(network(format));
      std::vector<std::vector<EncodedWeight>> set;
      for (int64_t e = 0; e < World::kExperts; ++e) set.push_back(network(format));
      m.experts.push_back(std::move(set));
    }
    return m;
  }();
  return all;
}

}  // namespace

World::World(Session& s, uint64_t seed, int64_t tokens) : encoder(s.encoder()), n(tokens) {
  Random random(seed + 1000);
  const auto floats = [&](const Shape& shape, float low = -1.0f, float high = 1.0f) {
    return s.floats(shape, random.floats(shape.num_elements(), low, high));
  };
  arena = floats({kSlots * n * kCols + kRoom});
  const Shape page{kPageTokens, kCols / kHeadDim, kHeadDim};
  for (int64_t i = 0; i < kLayers; ++i) {
    Layer layer{{floats(page), floats(page)},
                {floats(page), floats(page)},
                floats({kTaps - 1, kCols}),
                floats({1, kDeltaDim, kDeltaDim}),
                s.zeros({n, kTopK}, DType::kI32)};
    layers.push_back(std::move(layer));
  }
  const Matrices& all = matrices();
  for (const EncodedWeight& w : all.squares) squares.push_back(s.weight(w));
  for (const EncodedWeight& w : all.routers) routers.push_back(s.weight(w));
  for (const std::vector<EncodedWeight>& w : all.networks) {
    networks.push_back({s.weight(w[0]), s.weight(w[1]), s.weight(w[2])});
  }
  for (const auto& set : all.experts) {
    auto list = std::make_shared<std::vector<ExpertWeights>>();
    for (const std::vector<EncodedWeight>& w : set) {
      const ExpertId id{static_cast<int32_t>(list->size())};
      list->push_back({id, s.weight(w[0]), s.weight(w[1]), s.weight(w[2])});
    }
    experts.push_back(std::move(list));
  }
  norm = floats({kCols}, 0.5f, 1.5f);
  head_norm = floats({kHeadDim}, 0.5f, 1.5f);
  delta_norm = floats({kDeltaDim}, 0.5f, 1.5f);
  conv_weight = floats({kCols, kTaps});
  bias = floats({kCols});
  std::vector<int32_t> numbers;
  for (int64_t t = 0; t < n; ++t) numbers.push_back(static_cast<int32_t>(3 + t));
  positions = s.ints({n}, numbers);
  frequencies = floats({kHeadDim / 2});
  other_frequencies = floats({kHeadDim / 2});
  delta_rates = floats({1});
}

std::vector<std::vector<float>> run_program(Device& device, const Program& program, bool apart) {
  Session s(device, size_t{1} << 17);
  World world(s, program.seed, program.n);
  for (const Step& step : program.steps) {
    step.run(world);
    if (apart) s.encoder().submit();
  }
  std::vector<std::vector<float>> memory = {s.read(world.arena)};
  for (const World::Layer& layer : world.layers) {
    for (const Tensor& page : layer.k_pages) memory.push_back(s.read(page));
    for (const Tensor& page : layer.v_pages) memory.push_back(s.read(page));
    memory.push_back(s.read(layer.conv_state));
    memory.push_back(s.read(layer.delta_state));
    const std::vector<int32_t> ids = s.read_ints(layer.ids);
    memory.emplace_back(ids.begin(), ids.end());
  }
  return memory;
}

}  // namespace moeflux::conformance
