// Operations: plain data that a model hands to Encoder::run(). Each is a struct of its own in
// backend/ops/, which says what it computes, and has
//   kName        its name, as errors and plans write it;
//   check()      what has to hold, whatever the device: kInvalidArgument with the name, the
//                operand, what was found and what was expected;
//   text()       a line of a plan, without what the line's operation is not about;
//   operands(v)  v(Use, name, tensor or weight) for each operand that is there, in order.
// One that reads weights or multiplies matrices has cost(): bytes of weights and multiply-adds. One
// along sequences has `sequences`, rows() and part(): the operation of one of them alone. One that
// is made of others where a device has nothing better has compose().
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux {

/// The use that an operation makes of an operand.
enum class Use : uint8_t { kRead, kWrite, kUpdate };

struct Cost {
  uint64_t weight_bytes = 0;
  uint64_t multiply_adds = 0;
};

/// True when a byte between the first and the last of one may be of the other.
bool have_overlap(const Tensor& a, const Tensor& b);

namespace ops {

/// An operation of any kind: Encoder::run() makes it.
struct AnyOp {
  size_t kind = 0;  // its place in op_list.h
  const void* op = nullptr;
};

/// Rows of a tensor: elements over its innermost extent.
inline int64_t row_count(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.shape.rank(); ++i) rows *= x.dim(i);
  return rows;
}

inline uint64_t product(int64_t a, int64_t b, int64_t c) {
  return static_cast<uint64_t>(a) * static_cast<uint64_t>(b) * static_cast<uint64_t>(c);
}

/// Checks conditions in order and remembers the first that does not hold. Nothing is allocated
/// while all hold.
class Conditions {
 public:
  explicit Conditions(std::string_view operation) : operation_(operation) {}

  /// f32 of this shape, with any outer strides.
  Conditions& is(std::string_view operand, const Tensor& x, std::initializer_list<int64_t> shape) {
    return tensor(operand, x, DType::kF32, shape, true);
  }
  Conditions& is(std::string_view operand, const Tensor& x, const Shape& shape) {
    return tensor(operand, x, DType::kF32, shape, true);
  }
  /// Contiguous besides, and of any type.
  Conditions& is_packed(std::string_view operand, const Tensor& x,
                        std::initializer_list<int64_t> shape, DType dtype = DType::kF32) {
    return tensor(operand, x, dtype, shape, x.is_contiguous());
  }
  Conditions& is_packed(std::string_view operand, const Tensor& x, const Shape& shape,
                        DType dtype = DType::kF32) {
    return tensor(operand, x, dtype, shape, x.is_contiguous());
  }
  /// f32 of any shape.
  Conditions& is_float(std::string_view operand, const Tensor& x);
  /// Contiguous, so many elements in any shape.
  Conditions& has(std::string_view operand, const Tensor& x, int64_t elements,
                  DType dtype = DType::kF32);
  /// A number that belongs to an operand.
  Conditions& equal(std::string_view operand, int64_t found, int64_t expected) {
    if (found != expected) [[unlikely]] {
      fail(operand, found, expected);
    }
    return *this;
  }
  /// Anything else; `expected` says what holds.
  Conditions& holds(std::string_view operand, bool condition, std::string_view expected) {
    if (!condition) [[unlikely]] {
      fail(operand, {}, expected);
    }
    return *this;
  }
  /// The same of a tensor, whose type and shape the message gives.
  Conditions& holds(std::string_view operand, const Tensor& x, bool condition,
                    std::string_view expected);

  Status status() const;

 private:
  // To make a Shape of a list takes longer than to compare with the list.
  static bool equals(const Tensor& x, std::initializer_list<int64_t> shape) {
    if (static_cast<size_t>(x.shape.rank()) != shape.size()) return false;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (x.dim(static_cast<int>(i)) != shape.begin()[i]) return false;
    }
    return true;
  }
  static bool equals(const Tensor& x, const Shape& shape) {
    if (x.shape.rank() != shape.rank()) return false;
    for (int i = 0; i < shape.rank(); ++i) {
      if (x.dim(i) != shape[i]) return false;
    }
    return true;
  }
  template <typename Extents>
  Conditions& tensor(std::string_view operand, const Tensor& x, DType dtype, const Extents& shape,
                     bool fits) {
    if (!fits || !equals(x, shape) || x.dtype != dtype || x.is_null()) [[unlikely]] {
      fail(operand, x, dtype, Shape(shape));
    }
    return *this;
  }
  void fail(std::string_view operand, const Tensor& x, DType dtype, const Shape& shape);
  void fail(std::string_view operand, int64_t found, int64_t expected);
  void fail(std::string_view operand, std::string_view found, std::string_view expected);

  std::string_view operation_;
  std::string error_;
};

/// "add [3, 8]": the line of an operation whose result has x's shape.
std::string line_of(std::string_view name, const Tensor& x);

/// Calls visit(use, name, x) unless the tensor is null.
template <typename Visit>
void visit_if(Visit&& visit, Use use, std::string_view name, const Tensor& x) {
  if (!x.is_null()) visit(use, name, x);
}

}  // namespace ops
}  // namespace moeflux
