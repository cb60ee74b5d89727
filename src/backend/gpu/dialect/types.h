// The integer and float types that kernels and their parameters are written in.
#pragma once

#if !defined(__METAL_VERSION__) && !defined(MOEFLUX_METAL_CHECK)
#include <cstdint>

namespace moeflux::gpu {
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using f32 = float;
}  // namespace moeflux::gpu
#else
namespace moeflux {
namespace gpu {
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef int i32;
typedef float f32;
}  // namespace gpu
}  // namespace moeflux
#endif
