// Activations to int8, in plain loops that compilers vectorise.
// Included inside the namespace of one ISA; see tile_table.h.

MF_INLINE uint32_t int8_float_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}

static void int8_quantize_group(const float* x, int64_t count, int8_t* codes, float* scale,
                                float* scaled_sum) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr float kSmallest = 1e-35f;           // below, 127 / largest could overflow
  constexpr float kRoundToInteger = 0x1.8p23f;  // adding it leaves the integer in the low bits
  int32_t largest_bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    // The bits of magnitudes order like integers, NaN above infinity.
    const auto bits = static_cast<int32_t>(int8_float_bits(x[i]) & 0x7fffffffu);
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  float largest;
  __builtin_memcpy(&largest, &largest_bits, 4);
  const bool finite = static_cast<uint32_t>(largest_bits) < kInfinity;
  if (!finite || largest < kSmallest) {
    for (int64_t i = 0; i < count; ++i) codes[i] = 0;
    *scale = finite ? 0.0f : __builtin_nanf("");
    *scaled_sum = *scale;
    return;
  }
  const float inverse = 127.0f / largest;
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float product = x[i] * inverse;
    const float rounded = product + kRoundToInteger;
    const auto code = static_cast<int8_t>(static_cast<uint8_t>(int8_float_bits(rounded)));
    codes[i] = code;
    sum += code;
  }
  *scale = largest / 127.0f;
  *scaled_sum = *scale * static_cast<float>(sum);
}

static void int8_prepare(const float* x, int64_t cols, int64_t group_size, void* values,
                         float* scales, float* sums) {
  int8_t* codes = static_cast<int8_t*>(values);
  for (int64_t k = 0, g = 0; k < cols; k += group_size, ++g) {
    int8_quantize_group(x + k, group_size, codes + k, scales + g, sums + g);
  }
}
