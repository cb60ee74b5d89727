#include "backend/split/split_encoder.h"

#include <string_view>
#include <utility>

#include "backend/host_buffer.h"

namespace moeflux {
namespace {

/// visit(tensor) for the tensors of an operand.
template <typename Visit>
void for_each_tensor(const Tensor& tensor, const Visit& visit) {
  visit(tensor);
}
template <typename Visit>
void for_each_tensor(const Weight& weight, const Visit& visit) {
  for (const PartRole role : kPartRoles) visit(weight.parts[role]);
}

}  // namespace

SplitEncoder::SplitEncoder(std::vector<std::unique_ptr<Encoder>> encoders,
                           std::unique_ptr<SplitBuffer> scratch)
    : encoders_(std::move(encoders)),
      submitted_(encoders_.size()),
      is_recorded_(encoders_.size()),
      scratch_(std::move(scratch)) {}

Encoder& SplitEncoder::current() {
  is_recorded_[at_] = true;
  return *encoders_[at_];
}

Tensor SplitEncoder::scratch(const Shape& shape, DType dtype) {
  const auto bytes =
      static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
  const ScratchExtent extent = next_scratch_extent(used_, bytes);
  used_ = extent.end;
  return Tensor::view(*scratch_, extent.begin, shape, dtype);
}

void SplitEncoder::keep_alive(std::unique_ptr<Retained> resource) {
  current().keep_alive(std::move(resource));
}

void SplitEncoder::write(Tensor to, std::span<const std::byte> from) {
  const int part = to.buffer->part;
  if (part >= 0) {
    is_recorded_[static_cast<size_t>(part)] = true;
    encoders_[static_cast<size_t>(part)]->write(to, from);
  } else if (part == Buffer::kAnyPart || to.buffer == scratch_.get()) {
    current().write(copy_on(at_, to), from);
  } else {
    // A step begins with it.
    if (used_ == 0) at_ = 0;
    for (size_t i = 0; i < encoders_.size(); ++i) {
      is_recorded_[i] = true;
      encoders_[i]->write(copy_on(i, to), from);
    }
  }
}

Status SplitEncoder::read(std::span<std::byte> to, Tensor from) {
  if (!status_.ok()) return status_;
  const int part = from.buffer->part;
  const size_t device = part >= 0 ? static_cast<size_t>(part) : at_;
  return encoders_[device]->read(to, copy_on(device, from));
}

void SplitEncoder::run_on_host(int64_t count, const std::function<void(int64_t)>& fn) {
  encoders_.front()->run_on_host(count, fn);
}

void SplitEncoder::experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                                const ExpertMemory& memory) {
  current().experts_stay(experts, memory);
}

void SplitEncoder::experts_moved(const std::vector<ExpertWeights>& experts,
                                 std::span<const size_t> which) {
  current().experts_moved(experts, which);
}

EventId SplitEncoder::submit() {
  for (size_t i = 0; i < encoders_.size(); ++i) {
    if (!is_recorded_[i]) continue;
    submitted_[i] = encoders_[i]->submit();
    is_recorded_[i] = false;
  }
  return EventId{++events_};
}

Status SplitEncoder::wait(EventId /*event*/) {
  Status result = status_;
  for (size_t i = 0; i < encoders_.size(); ++i) {
    if (submitted_[i] == EventId{}) continue;
    const Status done = encoders_[i]->wait(submitted_[i]);
    if (result.ok()) result = done;
  }
  return result;
}

void SplitEncoder::execute(const ops::AnyOp& any) {
  ops::visit(any, [&](const auto& op) { run_where_it_lies(op); });
}

template <typename Op>
void SplitEncoder::run_where_it_lies(const Op& op) {
  int part = Buffer::kAnyPart;
  op.operands([&](Use /*use*/, std::string_view name, const auto& operand) {
    for_each_tensor(operand, [&](const Tensor& tensor) {
      const int own = tensor.buffer == nullptr ? Buffer::kAnyPart : tensor.buffer->part;
      if (own < 0 || own == part) return;
      if (part >= 0 && status_.ok()) {
        status_ = make_error(ErrorCode::kUnsupported,
                             "{}: {} lies on device {} of several, another operand on device {}",
                             Op::kName, name, own, part);
      }
      part = own;
    });
  });
  if (part >= 0 && static_cast<size_t>(part) != at_) move_to(static_cast<size_t>(part));
  if (!status_.ok()) return;
  Op own = op;
  own.operands([&](Use /*use*/, std::string_view /*name*/, const auto& operand) {
    for_each_tensor(operand, [&](const Tensor& tensor) {
      // A part of `own`: what lists of it lead to lies on one device.
      if (tensor.buffer != nullptr && tensor.buffer->part == Buffer::kEachPart) {
        const_cast<Tensor&>(tensor) = copy_on(at_, tensor);
      }
    });
  });
  current().run(own);
}

// Through the host: any two devices can do that.
void SplitEncoder::move_to(size_t part) {
  if (used_ > 0 && status_.ok()) {
    const Tensor bytes = Tensor::view(*scratch_, 0, Shape{static_cast<int64_t>(used_)}, DType::kU8);
    moved_.resize(used_);
    status_ = encoders_[at_]->read(moved_, copy_on(at_, bytes));
    if (status_.ok()) {
      is_recorded_[part] = true;
      encoders_[part]->write(copy_on(part, bytes), moved_);
    }
  }
  at_ = part;
}

}  // namespace moeflux
