// The common part of plans of products on matrix units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/plan.h"
#include "backend/gpu/launch/waiting.h"
#include "quant/weight.h"

namespace moeflux::gpu {

/// True when the kernels for matrix units know the format: affine groups of 4 or 8 bits, with less
/// than 2^32 words of codes where groups fill blocks; some of GGML's types (kernels/coded_list.h)
/// and FP8. All but groups that fill blocks have rows of whole blocks of columns. Depends on
/// nothing else, as the bits of products must not.
bool fits_mma(const Weight& weight);
/// Where the platform has matrix units, too, and shared memory for long rows of wide codes.
bool uses_mma(const Platform& platform, const Weight& weight);
MmaMatrix mma_matrix(const Weight& weight);
/// One of GGML's types, which have kernels of their own, or FP8 or narrow affine groups, which
/// share these.
bool is_ggml(const Weight& weight);
constexpr bool is_ggml(const MmaMatrix& matrix) { return matrix.bits >= kFormatGgml; }
bool has_wide_scales(const Weight& weight);
/// Describes the matrices to a kernel and gives each as many groups as its rows take, each with
/// `rows_of_group`; returns the number of groups.
uint32_t list_matrices(MmaLinearParams& p, const Products& products, uint32_t rows_of_group);

/// Binds data, scales and biases.
void bind_weight(Plan& plan, const Weight& weight);

/// Up to here every token reads the matrix by itself. On an H200 inputs of four tokens took 18.7 us
/// so, norm included, where the way of five takes 11.3.
constexpr uint32_t kFewTokensMax = 3;
/// And up to here, as long as this gives the matrix no more groups than there are multiprocessors:
/// groups of many tokens would leave most of these idle. On an H100 the router of 16 tokens took 29
/// us and takes 9.
constexpr uint32_t kSomeTokensMax = 16;
/// From kFewTokensMax on and up to here all of a matrix is on its way at once, to groups of
/// mma_linear_*_t8 to _t32. Above, matrices are whose groups of many tokens would leave half of the
/// multiprocessors idle: prompts of 32 to 256 tokens are 1.3 to 1.14 times as fast on an H200. With
/// 98 groups for 132 multiprocessors 32 tokens take 23 us for 19, those of a head 287 for 178.
constexpr uint32_t kMmaFewTokensMax = 16;
constexpr uint32_t kMmaFewTokensMost = 256;
/// Slots an expert up to which its slots are 4 tokens of such a group, up to which 8, and up to
/// which 16, of 4 bits and of GGML's types. On an H200 prompts of 128 tokens of 8 of 256 experts
/// are 1.06 and 1.54 times as fast as with groups of many tokens, of 256 tokens 0.95 and 1.25. Gate
/// and up of 32, 64 and 96 sequences take 69, 96 and 118 us in tiles of 4, and 80, 108 and 122 in
/// tiles of 8; down takes 45, 61 and 75, and 45, 60 and 70. Two tiles of 4 are faster than one of 8
/// where kernels know the type: steps of 96 and 128 sequences of the 35B in Q4_K by 13 and 11 %.
constexpr uint32_t kMmaFewSlots4 = 2;
constexpr uint32_t kMmaFewSlots4Known = 4;
constexpr uint32_t kMmaFewSlots8 = 4;
constexpr uint32_t kMmaFewSlots16 = 6;
constexpr uint32_t kMmaFewSlots16Ggml = 12;
/// SIMD groups of such groups of 4 bits and GGML's types: the fewer, the more groups are at
/// different points of their work. On an H200 gate and up of 32 tokens take 80 us with four and 87
/// with eight, of 192 tokens 163 and 179; in Q4_K 106 and 112, in Q6_K 206 and 259. Down takes 43
/// and 46, but 115 and 99 in tiles of 16 slots: a group makes the integers of all of these, unless
/// types are GGML's.
constexpr uint32_t kMmaFewSimds = 4;
/// Networks for every token share launches with experts up to here.
constexpr uint32_t kFewFfnTokensMax = 8;
/// Up to here each slot reads its expert by itself; above, slots of one expert share a read. With
/// 64 instead of 16 on matrix units a step of 8 tokens of 8 experts each takes an H100 a fifth
/// less.
constexpr uint32_t kDirectSlotsMax = 16;
constexpr uint32_t kMmaDirectSlotsMax = 64;

/// Words of shared memory that a split of 16 rows takes, by MmaMatrix::bits.
uint32_t mma_place_words(uint32_t bits);
/// Words of a place of GGML's types; 0 for other types.
uint32_t ggml_place_words(const MmaMatrix& matrix);

/// One of GGML's types for which few tokens have kernels of its own.
struct KnownType {
  uint32_t bits;
  bool wide;          // rows must begin at multiples of 16 bytes
  uint32_t order;     // of activations' bytes
  KernelId gate_up4;  // of tiles of four slots
  KernelId down4;
  std::optional<KernelId> linear8;  // of eight tokens
};
/// Nothing where the matrix has no such type, or rows that are not wide enough.
const KnownType* find_known(const MmaMatrix& matrix);

/// Kernels of single tokens.
struct OneKernels {
  uint32_t bits;
  KernelId linear;
  KernelId normed_linear;
  KernelId gate_up;
  KernelId gate_up_list;
  KernelId down;
  KernelId down_sum;
  bool knows_type;  // one of GGML's
};
/// `bits`: as MmaMatrix has them, kMmaGgml where a launch has several of GGML's types. Products of
/// four and eight bits share one.
const OneKernels& one_kernels(uint32_t bits);

/// The products of a launch of mma_*_t1: `tiles` tiles of 16 rows of matrices of up to `bits` in
/// each of `rows` rows of groups. `more` words of shared memory are for others.
struct MmaOneNeeds {
  uint32_t bits = 4;  // of GGML's types the one whose splits take most
  uint32_t cols = 0;
  uint32_t tiles = 1;
  uint32_t rows = 1;
  uint32_t more = 0;
  uint32_t grid_words = 0;  // of the largest that some of them choose from
  bool makes_row = false;   // of activations, by kMmaThreads at once
  bool may_double = false;  // groups to kMmaThreadsMax whatever the bits
  bool knows_type = false;  // kernels are of one of GGML's types
};
struct MmaOneLaunch {
  MmaWalk walk{};
  MmaExpertList list{};
  uint32_t groups = 0;  // of a row, for all tiles
  uint32_t threads = 0;
  uint32_t bytes = 0;  // of shared memory
};
/// Groups that are all at work at once where so many fit on `cores` multiprocessors; otherwise as
/// many as stay there, each with its share of the tiles. `most`: bytes of a group.
MmaOneLaunch mma_one_launch(const MmaOneNeeds& needs, uint32_t cores, uint32_t most);
/// The launch of mma_gate_up_list, where mma_one_launch() would have persistent groups. `needs` are
/// those of groups of one expert each, `experts` counts those of a token with the shared one.
/// Nothing where groups are all at work at once, or memory is short.
std::optional<MmaOneLaunch> mma_list_launch(const MmaOneNeeds& needs, uint32_t experts,
                                            uint32_t cores, uint32_t most);
/// The least that any of these launches takes.
uint32_t mma_one_bytes_min(uint32_t bits, int64_t cols);
/// A SIMD group for each of `ranks` rows of activations of one split, and 16 rows of a matrix.
MmaOneLaunch mma_ranks_launch(uint32_t bits, uint32_t ranks, uint32_t more);
/// How groups share products of a few tokens, kernels/matmul/mma_few.h.
struct MmaFewLaunch {
  MmaWalk walk{};
  uint32_t tokens = 8;  // of a group: 8, 16 or 32; 4 of slots
  uint32_t rows = 0;    // of a group
  uint32_t threads = 0;
  uint32_t bytes = 0;  // of shared memory
};
/// Groups with as many rows as their SIMD groups have splits for; fewer, and then fewer tokens,
/// while `groups` of a launch are fewer than `cores`. Nothing where memory is short, or groups do
/// not know the type. `bits`: as MmaMatrix, 8 where some matrices have these, of GGML's types the
/// one whose splits take most. `most`: bytes of a group.
std::optional<MmaFewLaunch> mma_few_launch(uint32_t bits, uint32_t cols, uint32_t tokens,
                                           uint32_t cores, uint32_t most,
                                           const std::function<uint32_t(uint32_t)>& groups);
/// The same for tiles of slots of experts: groups of at most `simds` SIMD groups, or of those that
/// a set has.
std::optional<MmaFewLaunch> mma_slots_launch(uint32_t bits, uint32_t cols, uint32_t tile,
                                             uint32_t simds, uint32_t most);
/// True for formats that groups of a few tokens know.
bool knows_few(uint32_t bits);
/// Rows of a group of such a launch.
constexpr uint32_t mma_few_rows(uint32_t bits, uint32_t sets) {
  return sets * kMmaRows * (bits == 8 ? 1 : uint32_t{kMmaFewTiles});
}
/// Shared memory of a group of kernels for many tokens.
constexpr uint32_t mma_many_bytes(uint32_t stages) {
  return (kMmaStagesBegin + stages * kMmaStageWords) * static_cast<uint32_t>(sizeof(u32));
}
/// The same where SIMD groups bring splits of GGML's types, of so many words each.
/// `blocks`: of a stage, of so many tokens.
constexpr uint32_t mma_many_ggml_bytes(uint32_t tile, uint32_t blocks, uint32_t place_words) {
  return (kGgmlStagesBegin + kGgmlStages * blocks * tile * kGgmlTokenWords +
          kMmaSimds * 2 * place_words) *
         static_cast<uint32_t>(sizeof(u32));
}
/// As many blocks as groups have room for.
uint32_t ggml_stage_blocks(const Platform& platform, uint32_t tile, uint32_t place_words);
/// Tokens that groups multiply at once: kGgmlTokens where there is room for them.
uint32_t ggml_tile(const Platform& platform, uint32_t place_words);
/// Words of the grid that the type chooses codes from, for single tokens; or 0.
uint32_t grid_words(uint32_t bits);
/// True when groups have room for many tokens; otherwise the kernels of single tokens take them,
/// with the same bits.
bool takes_many(const Platform& platform, const Weight& weight);
/// A launch of one of them. `place_words`: 0 unless matrices are of GGML's types.
Plan make_mma_many_plan(KernelId kernel, const Extent3& groups, uint32_t tile, uint32_t stages,
                        uint32_t place_words);

Binding part_of(const Binding& whole, size_t begin, size_t bytes, Access access);

}  // namespace moeflux::gpu
