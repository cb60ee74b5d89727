// Where turning rows of f16 numbers into columns is no faster than turning f32 ones.
// Included inside the namespace of one ISA, before select-inl.h.

struct HalfColumns {
  static constexpr bool kAreFast = false;
};
