// Stored lines of 4-bit codes to lines of bytes. Included after int8_lanes_*-inl.h.

constexpr int kVecLanes = kIntLanes;
constexpr int kLineCols = 4;
constexpr bool kTakesBlocks = true;

template <int kBits>
MF_INLINE void unpack_line(const uint8_t* line, uint8_t* to) {
  for (int i = 0; i < 64; i += kIntLanes * 4) {
    const IVec codes = iload(line + i);
    istore(to + i, ilow_nibbles(codes));
    istore(to + 64 + i, ihigh_nibbles(codes));
  }
}
