// GGML's types by unpacking a block's codes and scales; quant/formats/ggml_*_formats.cc are the
// definitions.
#include <cstdint>

#include "backend/cpu/kernels/block_tables.h"
#include "backend/cpu/row_decoder.h"
#include "quant/format_traits.h"
//
#include "backend/cpu/kernels/inline_macros-inl.h"

namespace moeflux::cpu {
namespace {
#include "backend/cpu/kernels/block_codes-inl.h"

template <class Block>
void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const int64_t blocks = weight.cols / Block::kElements;
  const auto* block = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      begin * blocks * Block::kBytes;
  const bool scaled = weight.has(PartRole::kOuterScale);
  const float outer =
      scaled ? load_float(host_ptr<std::byte>(weight.parts.outer_scale), 0, DType::kF32) : 1.0f;
  BlockCodes<Block> codes;
  for (int64_t i = 0; i < count * blocks; ++i, block += Block::kBytes) {
    Block::unpack(block, codes);
    for (int g = 0; g < Block::kElements / Block::kGroup; ++g) {
      const float scale = codes.scales[g];
      const uint8_t* from = codes.codes + g * Block::kGroup;
      for (int e = 0; e < Block::kGroup; ++e) {
        out[e] = scale * static_cast<float>(static_cast<int>(from[e]) - Block::kZero);
        if constexpr (Block::kHasMin) out[e] -= codes.mins[g];
      }
      if (scaled) {
        for (int e = 0; e < Block::kGroup; ++e) out[e] *= outer;
      }
      out += Block::kGroup;
    }
  }
}

}  // namespace

std::span<const RowDecoder> ggml_decoders() {
  static constexpr RowDecoder kDecoders[] = {
      {"q4_0", decode<BlockQ4_0>},        {"q4_1", decode<BlockQ4_1>},
      {"q5_0", decode<BlockQ5_0>},        {"q5_1", decode<BlockQ5_1>},
      {"q8_0", decode<BlockQ8_0>},        {"q2_k", decode<BlockQ2K>},
      {"q3_k", decode<BlockQ3K>},         {"q4_k", decode<BlockQ4K>},
      {"q5_k", decode<BlockQ5K>},         {"q6_k", decode<BlockQ6K>},
      {"iq4_nl", decode<BlockIq4Nl>},     {"iq4_xs", decode<BlockIq4Xs>},
      {"iq2_xxs", decode<BlockIq2Xxs>},   {"iq2_xs", decode<BlockIq2Xs>},
      {"iq2_s", decode<BlockIq2S>},       {"iq3_xxs", decode<BlockIq3Xxs>},
      {"iq3_s", decode<BlockIq3S>},       {"iq1_s", decode<BlockIq1S>},
      {"iq1_m", decode<BlockIq1M>},       {"mxfp4_gguf", decode<BlockMxfp4>},
      {"nvfp4_gguf", decode<BlockNvfp4>}, {"q1_0", decode<BlockQ1_0>},
      {"q2_0", decode<BlockQ2<64>>},      {"q2_0_128", decode<BlockQ2<128>>},
      {"tq1_0", decode<BlockTq1_0>},      {"tq2_0", decode<BlockTq2_0>},
  };
  return kDecoders;
}

}  // namespace moeflux::cpu
