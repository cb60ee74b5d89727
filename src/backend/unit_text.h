// Products of quantised matrices with activations as integers of 16 bits, "units" for short: what
// GPU kernels on matrix units and the CPU's precision q16 compute, with the same bits. A number of
// a row is scale * code + bias, codes are unsigned bytes, and columns come in blocks of 64. The
// activations x of a block are integers n with a factor:
//   e    = exponent bits of the largest |x|, 67 at least
//   n    = x * 2^(141 - e) * 127 / 128, rounded to nearest once: 256 h + l with signed bytes
//   out  = 2^(e - 141) * 128 / 127, the second factor as an f32; NaN where e is 255
// The sums over the columns of one scale, 16, 32 or 64 of them, are exact:
//   S    = sum of code * n,  N = sum of n,  both in 32 bits
// and f32 rounds once each of
//   p    = fma(scale, S, fma(bias, N, p)) over the scales of a block in order, from 0
//   t    = fma(out, p, t) over the eight blocks of a split in order, from 0
//   y    = y + t over splits in order, from 0
// then a bias of the row. FP8, which GPUs alone multiply so, has codes of e4m3: 512 times a number
// is an integer of three signed bytes, 65536 a + 256 b + c. In place of S and N, 64 columns have
// for each scale, or each half that has one,
//   U    = sum of a * n + b * h,  L  = sum of c * n + 256 b * l,  both exact in 32 bits
//   p    = fma(scale / 512, L, fma(128 scale, U, p)), NaN where a code of the 64 columns is
// The scalar part is text for every compiler; kernels write sums and floats
// in their own terms. Rows that are not finite are NaN, of any bits.
//
// Included inside a namespace that has MF_FN, u32, f32, as_bits(), as_float() and mf_fma(), and
// that may need it more than once in a program: so it has no other guard than its includer's.

enum : u32 {
  kExponentMin = 67u,  // 2^-60; smaller numbers count as that
  kNotFinite = 255u,
};

MF_FN u32 size_bits(f32 value) { return as_bits(value) & 0x7fffffffu; }

/// The exponent of a block from the bits of its largest number.
MF_FN u32 block_exponent(u32 bits) {
  const u32 exponent = bits >> 23u;
  return exponent < kExponentMin ? static_cast<u32>(kExponentMin) : exponent;
}
/// 2^14 over the power of two: what is multiplied by this stays below 2^15.
MF_FN f32 into_halves(u32 exponent) { return as_float((268u - exponent) << 23u); }
MF_FN f32 out_of_halves(u32 exponent) {
  return as_float(exponent == kNotFinite ? 0x7fc00000u : (exponent - 14u) << 23u);
}

/// How a block's activations become integers, from the bits of the largest.
struct UnitFactor {
  f32 into;
  f32 out_of;
};
MF_FN UnitFactor unit_factor(u32 bits) {
  const u32 exponent = block_exponent(bits);
  // Nearly 2^15, such that the 256s stay below 128. Numbers that are not finite make the product
  // NaN.
  const UnitFactor factor = {into_halves(exponent) * 0.9921875f,
                             out_of_halves(exponent) * 1.00787401574803149606f};
  return factor;
}

/// The integer n of an activation, kUnitZero more than it. The upper byte of the lower half is h,
/// and the lower one l + 128: 1.5 * 2^23 + n is an f32 whose bits end in n, and 128 more makes the
/// upper byte round to nearest.
enum : u32 { kUnitZero = 0x4b400080u };
MF_FN u32 unit_bits(f32 value, f32 into) { return as_bits(mf_fma(value, into, 12583040.0f)); }
