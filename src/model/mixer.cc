#include "model/mixer.h"

#include "base/format.h"
#include "quant/q8_rows.h"

namespace moeflux {

StateTensor cached_heads(int64_t heads, int64_t width, DType type) {
  const int64_t extent = type == DType::kI8 ? q8_rows::row_bytes(width) : width;
  return {.extent = StateExtent::kPerToken, .shape = {heads, extent}, .dtype = type};
}

Status check_cached_heads(std::string_view what, int64_t width, DType type) {
  if (type != DType::kI8 || width % q8_rows::kBlock == 0) return {};
  return make_error(ErrorCode::kUnsupported,
                    "{} have {} numbers, expected a multiple of {} for q8_0", what, width,
                    q8_rows::kBlock);
}

}  // namespace moeflux
