// Tensor, a view of device memory, and Buffer, the memory itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux {

/// Memory of one device, at least 64-byte aligned. The owner keeps it alive for as long as any
/// Tensor views it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  virtual size_t size_bytes() const = 0;
  /// Null when the host cannot address the memory.
  virtual std::byte* host_data() const = 0;

  static constexpr int kAnyPart = -1;   // all of them reach it
  static constexpr int kEachPart = -2;  // each has a copy
  /// The number of the device whose memory it is, where one is made of several. Its maker sets it.
  int part = kAnyPart;
};

/// A trivially copyable view; never owns. Rank at most 4, innermost extent contiguous, outer
/// strides free.
struct Tensor {
  Buffer* buffer = nullptr;
  size_t offset_bytes = 0;
  Shape shape;
  std::array<int64_t, 4> strides{};  // in elements
  DType dtype = DType::kF32;

  /// A contiguous view of `buffer` starting at `offset_bytes`. Aborts when it does not fit.
  static Tensor view(Buffer& buffer, size_t offset_bytes, const Shape& shape, DType dtype);

  bool is_null() const { return buffer == nullptr; }
  bool is_contiguous() const;
  int64_t dim(int i) const { return shape[i]; }
  int64_t num_elements() const { return shape.num_elements(); }
  /// Bytes of the elements, gaps between rows not counted.
  size_t size_bytes() const {
    return static_cast<size_t>(num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
  }

  /// The same memory with other extents; contiguous tensors only.
  Tensor reshape(const Shape& to) const;
  /// Splits the innermost extent d into [d / inner, inner]; outer strides may be anything.
  Tensor split_last(int64_t inner) const;
  Tensor slice(int dim, int64_t begin, int64_t count) const;
};

/// The first element as a host pointer. Aborts unless the dtype matches and the host can address
/// it.
template <typename T>
T* host_ptr(const Tensor& tensor);

template <>
float* host_ptr<float>(const Tensor& tensor);
template <>
int32_t* host_ptr<int32_t>(const Tensor& tensor);
/// Any dtype.
template <>
std::byte* host_ptr<std::byte>(const Tensor& tensor);

/// f32 tensors as rows of `cols` elements with a stride: how element-wise and row-wise kernels see
/// any rank. Rows are numbered in row-major order over the outer dimensions.
struct RowsView {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  std::array<int64_t, 3> extents{1, 1, 1};  // outer dimensions, right-aligned
  std::array<int64_t, 3> strides{0, 0, 0};

  explicit RowsView(const Tensor& tensor);
  float* row(int64_t i) const {
    const int64_t inner = i % extents[2];
    const int64_t rest = i / extents[2];
    return data + inner * strides[2] + (rest % extents[1]) * strides[1] +
           (rest / extents[1]) * strides[0];
  }
};

}  // namespace moeflux
