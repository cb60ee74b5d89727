// The rounding of a number to a grid of few bits, one text for the CPU and for GPU kernels.
//
// Included inside a namespace that has
//   MF_FN                         what functions begin with
//   f32, u32                      types
//   as_bits(f32), as_float(u32)   the same bits
//   real_round(x)                 to the nearest integer, ties to even, below 2^22
// and that may need it more than once in a program: so it has no other guard than its includer's.

/// The least power of two that is not below a normal number above 0.
MF_FN f32 power_of_two_above(f32 x) {
  const u32 bits = as_bits(x);
  return as_float((bits & 0x7f800000u) + ((bits & 0x7fffffu) != 0u ? 0x800000u : 0u));
}

/// x at or above 0 on the grid of numbers with that many bits behind the leading one, whose least
/// exponent is `least` (with the bias of f32): those below it have its step.
MF_FN f32 round_to_grid(f32 x, u32 bits, u32 least) {
  const u32 own = as_bits(x) >> 23u;
  const u32 exponent = own > least ? own : least;
  const f32 step = as_float((exponent - bits) << 23u);
  const f32 inverse = as_float((254u + bits - exponent) << 23u);
  return real_round(x * inverse) * step;
}

MF_FN f32 round_e4m3(f32 x) { return round_to_grid(x, 3u, 121u); }
MF_FN f32 round_e2m1(f32 x) { return round_to_grid(x, 1u, 127u); }

/// The scale of a block whose largest number is `most`: formats as BlockRounding counts them.
MF_FN f32 rounded_scale(f32 most, u32 format) {
  if (format == 0u) return power_of_two_above((most > 1e-4f ? most : 1e-4f) * (1.0f / 448.0f));
  if (format == 1u) {
    const f32 least = 6.0f * 1.17549435e-38f;
    return power_of_two_above((most > least ? most : least) * (1.0f / 6.0f));
  }
  const f32 scale = most * (1.0f / 6.0f);
  return round_e4m3(scale < 0.001953125f ? 0.001953125f : scale > 448.0f ? 448.0f : scale);
}

/// A number of a block with that scale.
MF_FN f32 rounded_number(f32 x, f32 scale, u32 format) {
  const f32 limit = format == 0u ? 448.0f : 6.0f;
  const f32 quotient = (x < 0.0f ? -x : x) / scale;
  const f32 held = quotient > limit ? limit : quotient;
  const f32 rounded = (format == 0u ? round_e4m3(held) : round_e2m1(held)) * scale;
  return x < 0.0f ? -rounded : rounded;
}
