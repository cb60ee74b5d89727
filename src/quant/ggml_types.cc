#include "quant/ggml_types.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/check.h"
#include "quant/format_traits.h"

namespace moeflux {
namespace {

struct Name {
  uint32_t id;
  std::string_view name;
  std::string_view format = {};  // FormatTraits::name of those that are read
};

// Numbers and names of llama.cpp's ggml.h, among them those of types that it removed, and from 97
// on of ik_llama.cpp's.
constexpr Name kBlockNames[] = {
    {2, "Q4_0", "q4_0"},
    {3, "Q4_1", "q4_1"},
    {4, "Q4_2"},
    {5, "Q4_3"},
    {6, "Q5_0", "q5_0"},
    {7, "Q5_1", "q5_1"},
    {8, "Q8_0", "q8_0"},
    {9, "Q8_1"},
    {10, "Q2_K", "q2_k"},
    {11, "Q3_K", "q3_k"},
    {12, "Q4_K", "q4_k"},
    {13, "Q5_K", "q5_k"},
    {14, "Q6_K", "q6_k"},
    {15, "Q8_K"},
    {16, "IQ2_XXS", "iq2_xxs"},
    {17, "IQ2_XS", "iq2_xs"},
    {18, "IQ3_XXS", "iq3_xxs"},
    {19, "IQ1_S", "iq1_s"},
    {20, "IQ4_NL", "iq4_nl"},
    {21, "IQ3_S", "iq3_s"},
    {22, "IQ2_S", "iq2_s"},
    {23, "IQ4_XS", "iq4_xs"},
    {24, "I8"},
    {25, "I16"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M", "iq1_m"},
    {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},
    {34, "TQ1_0", "tq1_0"},
    {35, "TQ2_0", "tq2_0"},
    {36, "IQ4_NL_4_4"},
    {37, "IQ4_NL_4_8"},
    {38, "IQ4_NL_8_8"},
    {39, "MXFP4", "mxfp4_gguf"},
    {40, "NVFP4", "nvfp4_gguf"},
    {41, "Q1_0", "q1_0"},
    {42, "Q2_0", "q2_0"},
    {42, "Q2_0_128", "q2_0_128"},  // of a fork, whose files have no other number
    {97, "Q8_0_X4"},
    {98, "Q8_1_X4"},
    {99, "Q8_2_X4"},
    {133, "Q6_0"},
    {134, "IQ1_BN"},
    {135, "IQ2_BN"},
    {136, "Q8_K64"},
    {137, "IQ2_K"},
    {138, "IQ3_K"},
    {139, "IQ4_K"},
    {140, "IQ5_K"},
    {141, "IQ6_K"},
    {142, "IQ2_TN"},
    {143, "IQ1_TN"},
    {144, "IQ4_KS"},
    {145, "IQ2_KS"},
    {146, "IQ4_KSS"},
    {147, "Q8_K16"},
    {148, "Q8_K32"},
    {149, "Q8_KR8"},
    {150, "Q8_K128"},
    {151, "Q8_KV"},
    {152, "IQ5_KS"},
    {153, "IQ2_KT"},
    {154, "IQ3_KT"},
    {155, "IQ4_KT"},
    {156, "IQ3_KS"},
    {157, "IQ2_KL"},
    {158, "IQ1_KT"},
    {202, "Q4_0_R8"},
    {206, "Q5_0_R4"},
    {208, "Q8_0_R8"},
    {210, "Q2_K_R4"},
    {211, "Q3_K_R4"},
    {212, "Q4_K_R4"},
    {213, "Q5_K_R4"},
    {214, "Q6_K_R4"},
    {216, "IQ2_XXS_R4"},
    {217, "IQ2_XS_R4"},
    {218, "IQ3_XXS_R4"},
    {219, "IQ1_S_R4"},
    {220, "IQ4_NL_R4"},
    {221, "IQ3_S_R4"},
    {222, "IQ2_S_R4"},
    {223, "IQ4_XS_R8"},
    {229, "IQ1_M_R4"},
    {230, "BF16_R16"},
    {233, "Q6_0_R4"},
    {335, "IQ2_BN_R4"},
    {337, "IQ2_K_R4"},
    {338, "IQ3_K_R4"},
    {339, "IQ4_K_R4"},
    {340, "IQ5_K_R4"},
    {344, "IQ4_KS_R4"},
    {352, "IQ5_KS_R4"},
    {353, "MXFP4_R8"},
    {397, "Q8_K_R16"},
    {398, "Q8_KV_R8"},
    {399, "Q8_K_R8"},
};

std::vector<GgmlType> make_types() {
  std::vector<GgmlType> types = {{0, "F32", 1, 4, QuantFormat::plain(DType::kF32)},
                                 {1, "F16", 1, 2, QuantFormat::plain(DType::kF16)},
                                 {30, "BF16", 1, 2, QuantFormat::plain(DType::kBf16)},
                                 {26, "I32", 1, 4, {}, true}};
  for (const Name& known : kBlockNames) {
    GgmlType type{.id = known.id, .name = known.name};
    if (!known.format.empty()) {
      const FormatTraits* traits = find_format(known.format);
      MF_CHECK(traits != nullptr && traits->block.elements > 0);
      type.block_elements = traits->block.elements;
      type.block_bytes = traits->block.bytes;
      type.format = QuantFormat::of(*traits);
    }
    types.push_back(type);
  }
  std::ranges::stable_sort(types, {}, &GgmlType::id);
  return types;
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

}  // namespace

std::span<const GgmlType> ggml_types() {
  static const std::vector<GgmlType> types = make_types();
  return types;
}

const GgmlType* find_ggml_type(uint32_t id) {
  const std::span<const GgmlType> types = ggml_types();
  const auto found = std::ranges::lower_bound(types, id, {}, &GgmlType::id);
  return found != types.end() && found->id == id ? &*found : nullptr;
}

const GgmlType* find_ggml_type(std::string_view name) {
  for (const GgmlType& type : ggml_types()) {
    if (same_letters(type.name, name)) return &type;
  }
  return nullptr;
}

}  // namespace moeflux
