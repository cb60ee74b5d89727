#include "backend/trace/trace_encoder.h"

#include <algorithm>
#include <cstring>

#include "backend/host_buffer.h"
#include "backend/sequence_rows.h"
#include "backend/trace/trace_device.h"

namespace moeflux {
namespace {

std::string text_of(const Tensor& tensor) { return tensor.shape.to_string(); }

}  // namespace

// Large enough for the scratch of any model.
TraceEncoder::TraceEncoder(const Device* target)
    : target_(target), scratch_(make_unbacked_buffer(SIZE_MAX / 2)) {}

void TraceEncoder::record(std::string text, uint64_t weight_bytes, uint64_t multiply_adds) {
  ops_.push_back({std::move(text), weight_bytes, multiply_adds});
}

uint64_t TraceEncoder::weight_bytes() const {
  uint64_t sum = 0;
  for (const TraceOp& op : ops_) sum += op.weight_bytes;
  return sum;
}

uint64_t TraceEncoder::multiply_adds() const {
  uint64_t sum = 0;
  for (const TraceOp& op : ops_) sum += op.multiply_adds;
  return sum;
}

std::string TraceEncoder::to_string() const {
  std::string text;
  for (const TraceOp& op : ops_) text += op.text + "\n";
  return text;
}

Tensor TraceEncoder::scratch(const Shape& shape, DType dtype) {
  return scratch_.take(shape, dtype);
}

void TraceEncoder::write(Tensor to, std::span<const std::byte> from) {
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  record("write " + text_of(to));
}

Status TraceEncoder::read(std::span<std::byte> to, Tensor from) {
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  if (!to.empty()) std::memset(to.data(), 0, to.size());
  record("read " + text_of(from));
  return {};
}

template <typename Op>
void TraceEncoder::trace(const Op& op) {
  if constexpr (requires { op.compose(*this); }) {
    op.compose(*this);
  } else {
    const auto one = [&](const Op& part) {
      Cost cost;
      if constexpr (requires { part.cost(); }) cost = part.cost();
      record(part.text(), cost.weight_bytes, cost.multiply_adds);
    };
    if constexpr (requires { op.sequences; }) {
      for_each_part(op, one);
    } else {
      one(op);
    }
  }
}

void TraceEncoder::execute(const ops::AnyOp& any) {
  if (target_ != nullptr && status_.ok()) status_ = target_->supports(any);
  ops::visit(any, [&](const auto& op) { trace(op); });
}

}  // namespace moeflux
