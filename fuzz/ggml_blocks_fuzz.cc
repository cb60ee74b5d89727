// Blocks of every type of GGML: any bits are a block. The input's first byte chooses the type, the
// rest is a row of whole blocks in memory of its size, which a sanitizer watches.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "quant/format_traits.h"
#include "quant/ggml_types.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto types = moeflux::ggml_types();
  const moeflux::GgmlType& type = types[data[0] % types.size()];
  if (!type.is_readable() || type.block_elements == 1) return 0;
  const moeflux::BlockLayout& layout = type.format->kind->block;
  const auto block = static_cast<size_t>(layout.bytes);
  for (size_t begin = 1; begin + block <= size; begin += block) {
    const std::unique_ptr<uint8_t[]> bytes(new uint8_t[block]);
    std::memcpy(bytes.get(), data + begin, block);
    uint32_t all = 0;
    for (int e = 0; e < layout.elements; ++e) {
      const float number = layout.number(bytes.get(), e);
      uint32_t bits;
      std::memcpy(&bits, &number, sizeof(bits));
      all ^= bits;
    }
    [[maybe_unused]] const volatile uint32_t used = all;  // no compiler leaves the decoding out
  }
  return 0;
}
