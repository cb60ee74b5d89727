// A short list in place: what waits comes and goes with every launch, and a warm step allocates
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace moeflux::gpu {

/// Up to N values in place. Only values that are there are copied.
template <typename T, size_t N>
class InlineVector {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  InlineVector() = default;
  InlineVector(const InlineVector& other) { *this = other; }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    size_ = other.size_;
    std::memcpy(bytes_.data(), other.bytes_.data(), size_ * sizeof(T));
    return *this;
  }

  void push_back(const T& value) {
    MF_CHECK(size_ < N);
    std::memcpy(bytes_.data() + size_++ * sizeof(T), &value, sizeof(T));
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  const T& front() const { return *begin(); }
  T* begin() { return reinterpret_cast<T*>(bytes_.data()); }
  T* end() { return begin() + size_; }
  const T* begin() const { return reinterpret_cast<const T*>(bytes_.data()); }
  const T* end() const { return begin() + size_; }

 private:
  alignas(T) std::array<std::byte, N * sizeof(T)> bytes_;  // no values until they are put there
  size_t size_ = 0;
};

}  // namespace moeflux::gpu
