// Macros of the kernel files; included at the top of each file of isa/.

#define MF_INLINE inline __attribute__((always_inline))
// For lambdas, between parameters and body.
#define MF_INLINE_BODY __attribute__((always_inline))

// Unrolls the loop that follows completely: arrays of vectors indexed by its counter stay in
// registers.
#if defined(__clang__)
#define MF_UNROLL _Pragma("unroll")
#else
#define MF_UNROLL _Pragma("GCC unroll 64")
#endif
