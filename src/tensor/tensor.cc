#include "tensor/tensor.h"

namespace moeflux {
namespace {

void set_contiguous_strides(Tensor& tensor) {
  int64_t stride = 1;
  for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
    tensor.strides[static_cast<size_t>(i)] = stride;
    stride *= tensor.shape[i];
  }
}

std::byte* host_address(const Tensor& tensor) {
  MF_CHECK(tensor.buffer != nullptr);
  std::byte* base = tensor.buffer->host_data();
  MF_CHECK(base != nullptr);
  return base + tensor.offset_bytes;
}

}  // namespace

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string((*this)[i]);
  }
  return text + "]";
}

Tensor Tensor::view(Buffer& buffer, size_t offset_bytes, const Shape& shape, DType dtype) {
  MF_CHECK(shape.rank() <= 4);
  Tensor tensor{&buffer, offset_bytes, shape, {}, dtype};
  set_contiguous_strides(tensor);
  MF_CHECK(offset_bytes + tensor.size_bytes() <= buffer.size_bytes());
  return tensor;
}

bool Tensor::is_contiguous() const {
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[static_cast<size_t>(i)] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

Tensor Tensor::reshape(const Shape& to) const {
  MF_CHECK(is_contiguous() && to.num_elements() == num_elements() && to.rank() <= 4);
  Tensor tensor{buffer, offset_bytes, to, {}, dtype};
  set_contiguous_strides(tensor);
  return tensor;
}

Tensor Tensor::split_last(int64_t inner) const {
  const int rank = shape.rank();
  MF_CHECK(rank >= 1 && rank < 4 && inner > 0 && shape.back() % inner == 0);
  Tensor tensor = *this;
  tensor.shape = Shape();
  std::array<int64_t, 4> dims{};
  for (int i = 0; i + 1 < rank; ++i) dims[static_cast<size_t>(i)] = shape[i];
  dims[static_cast<size_t>(rank - 1)] = shape.back() / inner;
  dims[static_cast<size_t>(rank)] = inner;
  tensor.shape = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank) + 1));
  tensor.strides[static_cast<size_t>(rank - 1)] = inner;
  tensor.strides[static_cast<size_t>(rank)] = 1;
  return tensor;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t count) const {
  MF_CHECK(dim >= 0 && dim < shape.rank() && begin >= 0 && count >= 0 &&
           begin + count <= shape[dim]);
  Tensor tensor = *this;
  tensor.shape.set(dim, count);
  tensor.offset_bytes += static_cast<size_t>(begin * strides[static_cast<size_t>(dim)]) *
                         static_cast<size_t>(dtype_bits(dtype)) / 8;
  return tensor;
}

template <>
float* host_ptr<float>(const Tensor& tensor) {
  MF_CHECK(tensor.dtype == DType::kF32);
  return reinterpret_cast<float*>(host_address(tensor));
}

template <>
int32_t* host_ptr<int32_t>(const Tensor& tensor) {
  MF_CHECK(tensor.dtype == DType::kI32);
  return reinterpret_cast<int32_t*>(host_address(tensor));
}

template <>
std::byte* host_ptr<std::byte>(const Tensor& tensor) {
  return host_address(tensor);
}

RowsView::RowsView(const Tensor& tensor) : data(host_ptr<float>(tensor)) {
  const int rank = tensor.shape.rank();
  MF_CHECK(rank >= 1);
  cols = tensor.shape.back();
  MF_CHECK(tensor.strides[static_cast<size_t>(rank - 1)] == 1 || cols <= 1);
  rows = 1;
  for (int i = 0; i + 1 < rank; ++i) {
    const auto at = static_cast<size_t>(3 - (rank - 1) + i);
    extents[at] = tensor.shape[i];
    strides[at] = tensor.strides[static_cast<size_t>(i)];
    rows *= tensor.shape[i];
  }
}

}  // namespace moeflux
