#include "backend/operation.h"

#include "base/format.h"

namespace moeflux {

bool have_overlap(const Tensor& a, const Tensor& b) {
  if (a.buffer != b.buffer || a.is_null()) return false;
  // Bytes up to the end of the last element.
  const auto end = [](const Tensor& x) {
    int64_t last = 0;
    for (int i = 0; i < x.shape.rank(); ++i) {
      if (x.dim(i) == 0) return x.offset_bytes;
      last += (x.dim(i) - 1) * x.strides[static_cast<size_t>(i)];
    }
    return x.offset_bytes +
           static_cast<size_t>(last + 1) * static_cast<size_t>(dtype_bits(x.dtype)) / 8;
  };
  return a.offset_bytes < end(b) && b.offset_bytes < end(a);
}

namespace ops {
namespace {

std::string text_of(const Tensor& x) {
  if (x.is_null()) return "null";
  return formatted("{} {}{}", x.shape.to_string(), dtype_name(x.dtype),
                   x.is_contiguous() ? "" : " with gaps");
}

}  // namespace

void Conditions::fail(std::string_view operand, std::string_view found, std::string_view expected) {
  if (!error_.empty()) return;
  error_ = formatted("{}: {}{}{}, expected {}", operation_, operand, found.empty() ? "" : " is ",
                     found, expected);
}

void Conditions::fail(std::string_view operand, const Tensor& x, DType dtype, const Shape& shape) {
  fail(operand, text_of(x), formatted("{} {}", shape.to_string(), dtype_name(dtype)));
}

void Conditions::fail(std::string_view operand, int64_t found, int64_t expected) {
  fail(operand, formatted("{}", found), formatted("{}", expected));
}

Conditions& Conditions::holds(std::string_view operand, const Tensor& x, bool condition,
                              std::string_view expected) {
  if (!condition) [[unlikely]] {
    fail(operand, text_of(x), expected);
  }
  return *this;
}

Conditions& Conditions::is_float(std::string_view operand, const Tensor& x) {
  const int rank = x.shape.rank();
  const bool fits = x.dtype == DType::kF32 && rank >= 1 && rank <= 4 &&
                    (x.strides[static_cast<size_t>(rank - 1)] == 1 || x.shape.back() <= 1);
  return holds(operand, x, fits, "F32 of one to four extents, the innermost without gaps");
}

Conditions& Conditions::has(std::string_view operand, const Tensor& x, int64_t elements,
                            DType dtype) {
  if (x.is_null() || x.dtype != dtype || x.num_elements() != elements || !x.is_contiguous())
      [[unlikely]] {
    fail(operand, text_of(x), formatted("{} elements {}", elements, dtype_name(dtype)));
  }
  return *this;
}

std::string line_of(std::string_view name, const Tensor& x) {
  return formatted("{} {}", name, x.shape.to_string());
}

Status Conditions::status() const {
  if (error_.empty()) return {};
  return Error(ErrorCode::kInvalidArgument, error_);
}

}  // namespace ops
}  // namespace moeflux
