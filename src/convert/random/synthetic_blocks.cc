#include "convert/random/synthetic_blocks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "quant/format_traits.h"

namespace moeflux {

/// Where a type's blocks have the factor of all their numbers, and an offset if it has one.
struct ScalePlace {
  enum class Place : uint8_t {
    kHalf,     // an f16
    kPower,    // a byte: 2^(byte - 127), or half of that
    kNibbles,  // the upper four bits of four 16-bit words, lowest bits first, are an f16
  };

  std::string_view type;
  Place kind = Place::kHalf;
  size_t at = 0;
  size_t offset_at = 0;  // an f16; 0: none
  /// The offset for a factor of 1 under which random codes have mean zero.
  double offset = 0.0;
};

namespace {

constexpr size_t kScales = std::tuple_size_v<decltype(SyntheticTensor::table)>;

using Place = ScalePlace::Place;
constexpr ScalePlace kPlaces[] = {
    {"Q4_0", Place::kHalf, 0},
    {"Q4_1", Place::kHalf, 0, 2, -7.5},
    {"Q5_0", Place::kHalf, 0},
    {"Q5_1", Place::kHalf, 0, 2, -15.5},
    {"Q8_0", Place::kHalf, 0},
    // Here scales and what is subtracted have random factors of the same size.
    {"Q2_K", Place::kHalf, 80, 82, 1.5},
    {"Q3_K", Place::kHalf, 108},
    {"Q4_K", Place::kHalf, 0, 2, 7.5},
    {"Q5_K", Place::kHalf, 0, 2, 15.5},
    {"Q6_K", Place::kHalf, 208},
    {"IQ1_S", Place::kHalf, 0},
    {"IQ1_M", Place::kNibbles, 48},
    {"IQ2_XXS", Place::kHalf, 0},
    {"IQ2_XS", Place::kHalf, 0},
    {"IQ2_S", Place::kHalf, 0},
    {"IQ3_XXS", Place::kHalf, 0},
    {"IQ3_S", Place::kHalf, 0},
    {"IQ4_NL", Place::kHalf, 0},
    {"IQ4_XS", Place::kHalf, 0},
    {"MXFP4", Place::kPower, 0},
    {"Q1_0", Place::kHalf, 0},
    {"Q2_0", Place::kHalf, 0},
    {"Q2_0_128", Place::kHalf, 0},
    {"TQ1_0", Place::kHalf, 52},
    {"TQ2_0", Place::kHalf, 64},
};

const ScalePlace* find_place(const GgmlType& type) {
  const auto* found = std::ranges::find(kPlaces, type.name, &ScalePlace::type);
  return found == std::end(kPlaces) ? nullptr : found;
}

void put_half(std::byte* to, uint16_t bits) {
  to[0] = static_cast<std::byte>(bits & 0xFF);
  to[1] = static_cast<std::byte>(bits >> 8);
}

constexpr size_t kNibbleWords = 4;

void put_scale(const ScalePlace& place, uint16_t scale, uint16_t offset, std::byte* block) {
  std::byte* at = block + place.at;
  switch (place.kind) {
    case Place::kHalf:
      put_half(at, scale);
      if (place.offset_at != 0) put_half(block + place.offset_at, offset);
      return;
    case Place::kPower:
      *at = static_cast<std::byte>(scale);
      return;
    case Place::kNibbles:
      for (size_t i = 0; i < kNibbleWords; ++i) {
        std::byte& upper = at[2 * i + 1];
        upper = (upper & std::byte{0x0F}) | static_cast<std::byte>((scale >> (4 * i) & 0xF) << 4);
      }
      return;
  }
  __builtin_unreachable();
}

/// Five of the bits that a scale replaces: they count for nothing else.
size_t choose(const ScalePlace& place, const std::byte* block) {
  const auto first = std::to_integer<size_t>(block[place.at + (place.kind == Place::kNibbles)]);
  if (place.kind != Place::kNibbles) return first % kScales;
  return (first >> 4 | std::to_integer<size_t>(block[place.at + 3]) >> 4 << 4) % kScales;
}

/// The deviation that random blocks have with a factor of 1, measured.
double unit_deviation(const GgmlType& type, const ScalePlace& place) {
  constexpr int kBlocks = 512;
  constexpr uint16_t kPowerOfOne = 127;
  SyntheticTensor tensor{.shape = {kBlocks, type.block_elements},
                         .fill = SyntheticTensor::Fill::kBlocks,
                         .type = &type,
                         .place = &place};
  tensor.table.fill(place.kind == Place::kPower ? kPowerOfOne : to_f16(1.0f).bits);
  tensor.offsets.fill(to_f16(static_cast<float>(place.offset)).bits);
  std::vector<std::byte> bytes(tensor.size_bytes());
  fill_synthetic(tensor, 0, 0, bytes);
  const BlockLayout& layout = type.format->kind->block;
  double squares = 0.0;
  for (int i = 0; i < kBlocks; ++i) {
    const auto* block = reinterpret_cast<const uint8_t*>(bytes.data()) + i * layout.bytes;
    for (int e = 0; e < layout.elements; ++e) {
      const double number = layout.number(block, e);
      squares += number * number;
    }
  }
  return std::sqrt(squares / static_cast<double>(kBlocks * layout.elements));
}

/// By place in kPlaces, measured once.
double unit_deviation_of(const ScalePlace& place) {
  static const std::vector<double> deviations = [] {
    std::vector<double> measured;
    for (const ScalePlace& each : kPlaces) {
      measured.push_back(unit_deviation(*find_ggml_type(each.type), each));
    }
    return measured;
  }();
  return deviations[static_cast<size_t>(&place - kPlaces)];
}

/// Factors between 0.75 and 1.25 of what is wanted, of either sign.
void choose_halves(SyntheticTensor& tensor, const ScalePlace& place, double factor) {
  constexpr size_t kMagnitudes = kScales / 2;
  for (size_t i = 0; i < kScales; ++i) {
    const auto step = static_cast<double>(i % kMagnitudes) / (kMagnitudes - 1);
    const double scale = factor * (0.75 + 0.5 * step) * (i < kMagnitudes ? 1.0 : -1.0);
    tensor.table[i] = to_f16(static_cast<float>(scale)).bits;
    tensor.offsets[i] = to_f16(static_cast<float>(scale * place.offset)).bits;
  }
}

/// Two neighbouring powers of two, as often as their mean square demands.
void choose_powers(SyntheticTensor& tensor, double factor) {
  const double lower = std::floor(std::log2(factor));
  const double ratio = factor / std::exp2(lower);
  const auto upper_count = static_cast<size_t>(std::lround((ratio * ratio - 1.0) / 3.0 * kScales));
  for (size_t i = 0; i < kScales; ++i) {
    tensor.table[i] = static_cast<uint16_t>(127.0 + lower + (i < upper_count ? 1.0 : 0.0));
  }
}

}  // namespace

bool can_fill(const GgmlType& type) {
  return type.format.has_value() && (type.format->is_plain() || find_place(type) != nullptr);
}

void set_block_scales(const SyntheticTensor& tensor, std::byte* block) {
  const size_t chosen = choose(*tensor.place, block);
  put_scale(*tensor.place, tensor.table[chosen], tensor.offsets[chosen], block);
}

void SyntheticCheckpoint::add_ggml(const std::string& name, const Shape& shape,
                                   const GgmlType& type, float deviation) {
  MF_CHECK(can_fill(type) && shape.back() % type.block_elements == 0);
  if (type.format->is_plain()) return add_uniform(name, shape, type.format->dtype, deviation);
  const ScalePlace& place = *find_place(type);
  SyntheticTensor tensor{.name = name,
                         .dtype = DType::kU8,
                         .shape = shape,
                         .fill = SyntheticTensor::Fill::kBlocks,
                         .type = &type,
                         .place = &place,
                         .stream = name};
  const double factor = deviation / unit_deviation_of(place);
  if (place.kind == Place::kPower) {
    choose_powers(tensor, factor);
  } else {
    choose_halves(tensor, place, factor);
  }
  tensors.push_back(std::move(tensor));
}

}  // namespace moeflux
