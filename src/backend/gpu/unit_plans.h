// What plans of products on matrix units have in common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gpu/kernels/unit_params.h"
#include "backend/gpu/plan.h"
#include "backend/gpu/waiting.h"
#include "quant/weight.h"

namespace moeflux::gpu {

/// True when the kernels for matrix units know the format: 4 or 8 bits with scales in 16 bits for
/// groups that fill blocks, and less than 2^32 words of codes. Depends on nothing else, as the bits
/// of products must not.
bool fits_units(const Weight& weight);
UnitMatrix unit_matrix(const Weight& weight);
bool has_wide_scales(const Weight& weight);
/// Describes the matrices to a kernel and gives each as many groups as its rows take; returns the
/// number of groups.
uint32_t list_matrices(UnitLinearParams& p, const Products& products, uint32_t rows_of_group);

/// Binds data, scales and biases.
void bind_weight(Plan& plan, const Weight& weight);

/// Up to here every token reads the matrix by itself.
constexpr uint32_t kSingleTokensMax = 4;

/// Splits of `cols` columns that a group takes at once: 1, 2, 4 or 8.
uint32_t unit_splits(int64_t cols, uint32_t most);
/// Shared memory of a group of unit_*_one.
struct UnitOneMemory {
  UnitShared parts;
  uint32_t bytes = 0;
};
/// For matrices of up to `bits`, `splits` of whose `cols` columns are taken in a turn by `simds`
/// SIMD groups; `more` words lie before the parts of matrices. There are places for two turns if
/// need be and `most` bytes allow.
UnitOneMemory unit_one_memory(uint32_t bits, int64_t cols, uint32_t splits, uint32_t simds,
                              uint32_t more, uint32_t most);
/// Shared memory of a group of kernels for many tokens.
uint32_t unit_many_bytes(uint32_t stages);
/// A launch of one of them.
Plan make_unit_many_plan(KernelId kernel, const Extent3& groups, uint32_t stages);

/// Bytes for rows of activations as integers and for their sums; where the sums begin.
size_t split_rows_bytes(uint64_t rows, uint64_t cols);
size_t split_sums_begin(uint64_t rows, uint64_t cols);
/// Bytes [begin, begin + bytes) of a range.
Binding part_of(const Binding& whole, size_t begin, size_t bytes, Access access);

}  // namespace moeflux::gpu
