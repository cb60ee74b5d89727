#include "backend/cpu/row_decoder.h"

#include "quant/format_traits.h"

namespace moeflux::cpu {

const RowDecoder* find_decoder(const QuantFormat& format) {
  for (const RowDecoder* decoder : row_decoders()) {
    if (decoder->format == format.kind->name) return decoder;
  }
  return nullptr;
}

}  // namespace moeflux::cpu
