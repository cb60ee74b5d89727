#include "convert/random/synthetic.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "convert/random/synthetic_blocks.h"

namespace moeflux {
namespace {

constexpr uint64_t kBlockBytes = 64;
constexpr uint64_t kBlockBytesMax = 512;
constexpr int kJitters = 16;  // magnitudes of scales; the table's other half is negative

// The finaliser of SplitMix64 over a counter: a few cycles for eight bytes, no state, and far more
// than random enough for weights that mean nothing.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr uint64_t word_at(uint64_t key, uint64_t i) {
  return mix(key + (i + 1) * 0x9E3779B97F4A7C15u);
}

uint64_t key_of(uint64_t seed, std::string_view stream) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : stream) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return mix(hash + mix(seed));
}

// Little-endian whatever the host: the file is.
template <typename T>
void put(std::byte* to, T value) {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, &value, sizeof value);
  } else {
    for (size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
  }
}

/// Tensors are made in blocks of that many bytes, which know nothing of each other.
uint64_t block_bytes_of(const SyntheticTensor& tensor) {
  if (tensor.fill != SyntheticTensor::Fill::kBlocks) return kBlockBytes;
  return static_cast<uint64_t>(tensor.type->block_bytes);
}

void bits_block(uint64_t key, uint64_t block, std::byte* out) {
  for (uint64_t i = 0; i < 8; ++i) put(out + 8 * i, word_at(key, 8 * block + i));
}

void table_block(const SyntheticTensor& tensor, uint64_t key, uint64_t block, std::byte* out) {
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t word = word_at(key, 4 * block + i);
    for (uint64_t j = 0; j < 8; ++j) put(out + 16 * i + 2 * j, tensor.table[word >> 8 * j & 31]);
  }
}

void uniform_block(const SyntheticTensor& tensor, uint64_t key, uint64_t block, std::byte* out) {
  const bool are_ids = tensor.dtype == DType::kI32;
  const uint64_t element_bytes = are_ids || tensor.dtype == DType::kF32 ? 4 : 2;
  const uint64_t count = kBlockBytes / element_bytes;
  for (uint64_t i = 0; i < count; ++i) {
    const float unit = static_cast<float>(word_at(key, count * block + i) >> 40) * 0x1p-24f;
    const float value = tensor.low + (tensor.high - tensor.low) * unit;
    if (are_ids) {  // below `high`, whatever is rounded
      put(out + 4 * i, static_cast<uint32_t>(std::min(value, tensor.high - 1.0f)));
    } else if (tensor.dtype == DType::kF32) {
      put(out + 4 * i, std::bit_cast<uint32_t>(value));
    } else {
      put(out + 2 * i, tensor.dtype == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits);
    }
  }
}

void ggml_block(const SyntheticTensor& tensor, uint64_t key, uint64_t block, std::byte* out) {
  const uint64_t bytes = block_bytes_of(tensor);
  const uint64_t words = (bytes + 7) / 8;
  std::array<std::byte, kBlockBytesMax> bits;
  for (uint64_t i = 0; i < words; ++i) put(bits.data() + 8 * i, word_at(key, words * block + i));
  std::memcpy(out, bits.data(), bytes);
  set_block_scales(tensor, out);
}

void fill_block(const SyntheticTensor& tensor, uint64_t key, uint64_t block, std::byte* out) {
  switch (tensor.fill) {
    case SyntheticTensor::Fill::kBits:
      return bits_block(key, block, out);
    case SyntheticTensor::Fill::kTable:
      return table_block(tensor, key, block, out);
    case SyntheticTensor::Fill::kUniform:
      return uniform_block(tensor, key, block, out);
    case SyntheticTensor::Fill::kBlocks:
      return ggml_block(tensor, key, block, out);
  }
  __builtin_unreachable();
}

// The nearest number of at most `digits` binary digits.
double round_to_digits(double value, int digits) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, digits)), exponent - digits);
}

}  // namespace

uint64_t SyntheticTensor::size_bytes() const {
  if (fill == Fill::kBlocks) {
    return static_cast<uint64_t>(shape.num_elements() / type->block_elements * type->block_bytes);
  }
  return static_cast<uint64_t>(shape.num_elements()) * static_cast<uint64_t>(dtype_bits(dtype)) / 8;
}

uint64_t SyntheticCheckpoint::size_bytes() const {
  uint64_t bytes = 0;
  for (const SyntheticTensor& tensor : tensors) bytes += tensor.size_bytes();
  return bytes;
}

void SyntheticCheckpoint::add_linear(const std::string& name, const Shape& shape,
                                     LinearFormat format, float deviation) {
  MF_CHECK((format.bits == 4 || format.bits == 8) && shape.back() % format.group_size == 0);
  Shape codes = shape;
  codes.set(shape.rank() - 1, shape.back() * format.bits / 32);
  Shape groups = shape;
  groups.set(shape.rank() - 1, shape.back() / format.group_size);
  const double levels = std::ldexp(1.0, format.bits);
  const double center = (levels - 1.0) / 2.0;
  const double base = deviation / std::sqrt((levels * levels - 1.0) / 12.0);
  // BF16 holds 8 digits and the center takes `bits` of them: a scale of what is left gives a bias
  // that is exact, hence weights whose mean is exactly zero.
  const int digits = std::max(1, 8 - format.bits);
  SyntheticTensor scales{.name = name + ".scales",
                         .shape = groups,
                         .fill = SyntheticTensor::Fill::kTable,
                         .stream = name + ".groups"};
  SyntheticTensor biases = scales;
  biases.name = name + ".biases";
  for (size_t i = 0; i < kJitters; ++i) {
    const double jitter = 0.75 + 0.5 * static_cast<double>(i) / (kJitters - 1);
    const double scale = round_to_digits(digits == 1 ? base : base * jitter, digits);
    scales.table[i] = to_bf16(static_cast<float>(scale)).bits;
    biases.table[i] = to_bf16(static_cast<float>(-scale * center)).bits;
    scales.table[i + kJitters] = to_bf16(static_cast<float>(-scale)).bits;
    biases.table[i + kJitters] = to_bf16(static_cast<float>(scale * center)).bits;
  }
  tensors.push_back({.name = name + ".weight",
                     .dtype = DType::kU32,
                     .shape = codes,
                     .fill = SyntheticTensor::Fill::kBits,
                     .stream = name + ".weight"});
  tensors.push_back(std::move(scales));
  tensors.push_back(std::move(biases));
}

void SyntheticCheckpoint::add_vector(const std::string& name, const Shape& shape, DType dtype,
                                     float low, float high) {
  MF_CHECK(dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16 ||
           (dtype == DType::kI32 && low >= 0.0f));
  tensors.push_back(
      {.name = name, .dtype = dtype, .shape = shape, .low = low, .high = high, .stream = name});
}

void SyntheticCheckpoint::add_uniform(const std::string& name, const Shape& shape, DType dtype,
                                      float deviation) {
  const float bound = std::sqrt(3.0f) * deviation;
  add_vector(name, shape, dtype, -bound, bound);
}

void fill_synthetic(const SyntheticTensor& tensor, uint64_t seed, uint64_t offset,
                    std::span<std::byte> out) {
  MF_CHECK(offset + out.size() <= tensor.size_bytes());
  const uint64_t key = key_of(seed, tensor.stream);
  const uint64_t block_bytes = block_bytes_of(tensor);
  while (!out.empty()) {
    const uint64_t block = offset / block_bytes;
    const uint64_t skip = offset % block_bytes;
    uint64_t count = block_bytes;
    if (skip == 0 && out.size() >= block_bytes) {
      fill_block(tensor, key, block, out.data());
    } else {
      std::array<std::byte, kBlockBytesMax> bytes;
      fill_block(tensor, key, block, bytes.data());
      count = std::min<uint64_t>(block_bytes - skip, out.size());
      std::memcpy(out.data(), bytes.data() + skip, count);
    }
    offset += count;
    out = out.subspan(count);
  }
}

}  // namespace moeflux
