#include "state/state_spec.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {

uint64_t StateTensor::bytes() const {
  return static_cast<uint64_t>(shape.num_elements()) * static_cast<uint64_t>(dtype_bits(dtype)) / 8;
}

int64_t StateTensor::first_read(int64_t length) const {
  return window > 0 ? std::max<int64_t>(0, length - window + 1) : 0;
}

uint64_t StateTensor::bytes_after(int64_t length) const {
  return is_per_token() ? bytes() * static_cast<uint64_t>(length - first_read(length)) : bytes();
}

uint64_t LayerStateSpec::bytes_per_token() const {
  uint64_t all = 0;
  for (const StateTensor& tensor : tensors) all += tensor.is_per_token() ? tensor.bytes() : 0;
  return all;
}

uint64_t LayerStateSpec::bytes_fixed() const {
  uint64_t all = 0;
  for (const StateTensor& tensor : tensors) all += tensor.is_per_token() ? 0 : tensor.bytes();
  return all;
}

uint64_t LayerStateSpec::bytes_after(int64_t length) const {
  uint64_t all = 0;
  for (const StateTensor& tensor : tensors) all += tensor.bytes_after(length);
  return all;
}

uint64_t LayerStateSpec::bytes_seen(int64_t length) const {
  uint64_t all = 0;
  for (const StateTensor& tensor : tensors) {
    int64_t seen = tensor.window > 0 ? std::min(tensor.window, length) : length;
    if (tensor.tokens_read > 0) seen = std::min(seen, tensor.tokens_read);
    all += tensor.bytes() * static_cast<uint64_t>(tensor.is_per_token() ? seen : 1);
  }
  return all;
}

std::string to_string(const LayerStateSpec& layer) {
  std::string text;
  for (const StateTensor& tensor : layer.tensors) {
    if (!text.empty()) text += "; ";
    text += formatted("{} {}", dtype_name(tensor.dtype), tensor.shape.to_string());
    if (tensor.is_per_token()) text += " a token";
    if (tensor.window > 0) text += formatted(", the last {}", tensor.window);
    if (tensor.tokens_read > 0) text += formatted(", {} of which are read", tensor.tokens_read);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace moeflux
