#include "backend/split/split_encoder.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backend/host_buffer.h"

namespace moeflux {
namespace {

/// Calls visit(tensor) for the tensors of an operand.
template <typename Visit>
void for_each_tensor(const Tensor& tensor, const Visit& visit) {
  visit(tensor);
}
template <typename Visit>
void for_each_tensor(const Weight& weight, const Visit& visit) {
  for (const PartRole role : kPartRoles) visit(weight.parts[role]);
}

/// Calls visit(tensor) for each tensor of the operands of `op`, which may be replaced. One expert
/// stands for all of its layer: there are hundreds, and they lie together.
template <typename Op, typename Visit>
void for_each_operand(Op& op, const Visit& visit) {
  const auto each = [&](Use /*use*/, std::string_view name, const auto& operand) {
    for_each_tensor(operand, [&](const Tensor& tensor) {
      if (tensor.buffer != nullptr) visit(name, tensor);
    });
  };
  if constexpr (std::is_same_v<Op, ops::ExpertFfn>) {
    const std::span<const ExpertWeights> all = op.ready;
    op.ready = all.first(std::min<size_t>(all.size(), 1));
    op.operands(each);
    // They are only to be known again: a GPU chooses routes and adds slots in launches of experts.
    each(Use::kRead, "weights", op.routes.weights);
    op.ready = all;
  } else {
    op.operands(each);
  }
}

/// Calls visit(offset in `all`, offset in the device's part, bytes) for the rows of a device's
/// heads in a tensor [rows, heads, width].
template <typename Visit>
void for_each_row(const HeadsBuffer& memory, size_t device, const Tensor& all, const Visit& visit) {
  const HeadsBuffer::Piece& own = memory.piece(device);
  const auto rows = static_cast<size_t>(all.dim(0));
  const size_t head_bytes = all.size_bytes() / rows / static_cast<size_t>(memory.heads());
  const auto count = static_cast<size_t>(own.count);
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = row * static_cast<size_t>(memory.heads()) + static_cast<size_t>(own.begin);
    visit(first * head_bytes, row * count * head_bytes, count * head_bytes);
  }
}

/// The memory that devices divide between them and an operation keeps heads in, else null.
template <typename Op>
const HeadsBuffer* divided_memory(const Op& op) {
  if constexpr (std::is_same_v<Op, ops::Attention>) {
    for (const KvRows& s : op.sequences) {
      if (!s.kv.k_pages.empty()) return divided(s.kv.k_pages.front());
    }
  } else if constexpr (std::is_same_v<Op, ops::Copy>) {
    return divided(op.out);
  }
  return nullptr;
}

}  // namespace

/// One device of several, for those who record between layers: see Encoder::on_part().
class SplitEncoder::PartView : public Encoder {
 public:
  PartView(SplitEncoder& all, size_t part) : all_(all), part_(part) {}

  Tensor scratch(const Shape& shape, DType dtype) override { return all_.scratch(shape, dtype); }
  size_t scratch_mark() const override { return all_.scratch_mark(); }
  void scratch_release(size_t mark) override { all_.scratch_release(mark); }
  void keep_alive(std::unique_ptr<Retained> resource) override {
    own().keep_alive(std::move(resource));
  }
  void write(Tensor to, std::span<const std::byte> from) override {
    own().write(copy_on(part_, to), from);
  }
  Status read(std::span<std::byte> to, Tensor from) override {
    if (!all_.status_.ok()) return all_.status_;
    return all_.encoders_[part_]->read(to, copy_on(part_, from));
  }
  void run_on_host(int64_t count, const std::function<void(int64_t)>& fn) override {
    all_.run_on_host(count, fn);
  }
  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) override {
    return all_.encoders_[part_]->copy_beside(copies, after);
  }
  void await_copies(CopyId last) override { own().await_copies(last); }
  bool has_copied(CopyId last) override { return own().has_copied(last); }
  void experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                    const ExpertMemory& memory) override {
    own().experts_stay(experts, memory);
  }
  void experts_moved(const std::vector<ExpertWeights>& experts,
                     std::span<const size_t> which) override {
    own().experts_moved(experts, which);
  }
  EventId submit() override { return all_.submit_part(part_); }
  Status wait(EventId event) override {
    if (!all_.status_.ok()) return all_.status_;
    return all_.encoders_[part_]->wait(event);
  }

 protected:
  void execute(const ops::AnyOp& any) override {
    ops::visit(any, [&](const auto& op) {
      auto copy = op;
      if (all_.status_.ok()) all_.run_there(part_, copy);
    });
  }

 private:
  Encoder& own() { return all_.on(part_); }

  SplitEncoder& all_;
  size_t part_;
};

SplitEncoder::SplitEncoder(std::vector<std::unique_ptr<Encoder>> encoders,
                           std::unique_ptr<SplitBuffer> scratch)
    : encoders_(std::move(encoders)),
      submitted_(encoders_.size()),
      is_recorded_(encoders_.size()),
      scratch_(std::move(scratch)),
      head_pages_(encoders_.size()) {
  for (size_t i = 0; i < encoders_.size(); ++i) {
    views_.push_back(std::make_unique<PartView>(*this, i));
  }
}

Encoder& SplitEncoder::on(size_t part) {
  is_recorded_[part] = true;
  return *encoders_[part];
}

Tensor SplitEncoder::scratch(const Shape& shape, DType dtype) {
  return scratch_.take(shape, dtype);
}

void SplitEncoder::keep_alive(std::unique_ptr<Retained> resource) {
  on(at_).keep_alive(std::move(resource));
}

void SplitEncoder::write(Tensor to, std::span<const std::byte> from) {
  const int part = to.buffer->part;
  if (const HeadsBuffer* memory = divided(to)) {
    for (size_t i = 0; i < encoders_.size(); ++i) {
      if (memory->piece(i).count == 0) continue;
      std::vector<std::byte> own(memory->on(i, to).size_bytes());
      for_each_row(*memory, i, to, [&](size_t whole, size_t piece, size_t bytes) {
        std::memcpy(&own[piece], &from[whole], bytes);
      });
      on(i).write(memory->on(i, to), own);
    }
  } else if (part >= 0) {
    on(static_cast<size_t>(part)).write(to, from);
  } else if (part == Buffer::kAnyPart || to.buffer == &scratch_.buffer()) {
    on(at_).write(copy_on(at_, to), from);
  } else {
    // A step begins with it.
    if (scratch_.mark() == 0) {
      join();
      at_ = 0;
    }
    for (size_t i = 0; i < encoders_.size(); ++i) on(i).write(copy_on(i, to), from);
  }
}

Status SplitEncoder::read(std::span<std::byte> to, Tensor from) {
  if (!status_.ok()) return status_;
  join();
  if (const HeadsBuffer* memory = divided(from)) {
    for (size_t i = 0; i < encoders_.size(); ++i) {
      if (memory->piece(i).count == 0) continue;
      std::vector<std::byte> own(memory->on(i, from).size_bytes());
      MF_RETURN_IF_ERROR(encoders_[i]->read(own, memory->on(i, from)));
      for_each_row(*memory, i, from, [&](size_t whole, size_t piece, size_t bytes) {
        std::memcpy(&to[whole], &own[piece], bytes);
      });
    }
    return {};
  }
  const int part = from.buffer->part;
  const size_t device = part >= 0 ? static_cast<size_t>(part) : at_;
  return encoders_[device]->read(to, copy_on(device, from));
}

void SplitEncoder::run_on_host(int64_t count, const std::function<void(int64_t)>& fn) {
  encoders_.front()->run_on_host(count, fn);
}

void SplitEncoder::experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                                const ExpertMemory& memory) {
  on(at_).experts_stay(experts, memory);
}

void SplitEncoder::experts_moved(const std::vector<ExpertWeights>& experts,
                                 std::span<const size_t> which) {
  on(at_).experts_moved(experts, which);
}

EventId SplitEncoder::submit_part(size_t part) {
  submitted_[part] = encoders_[part]->submit();
  is_recorded_[part] = false;
  return submitted_[part];
}

EventId SplitEncoder::submit() {
  join();
  for (size_t i = 0; i < encoders_.size(); ++i) {
    if (is_recorded_[i]) submit_part(i);
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
  Op own = op;
  int part = Buffer::kAnyPart;
  for_each_operand(own, [&](std::string_view name, const Tensor& tensor) {
    const int its = tensor.buffer->part;
    if (its < 0 || its == part) return;
    if (part >= 0 && status_.ok()) {
      status_ = make_error(ErrorCode::kUnsupported,
                           "{}: {} lies on device {} of several, another operand on device {}",
                           Op::kName, name, its, part);
    }
    part = its;
  });
  const bool is_here = part < 0 || static_cast<size_t>(part) == at_;
  if constexpr (std::is_same_v<Op, ops::ExpertFfn>) {
    if (!is_here) return run_beside(static_cast<size_t>(part), own);
  } else if (touches_beside(own)) {
    join();
  }
  if (!is_here) move_to(static_cast<size_t>(part));
  if (!status_.ok()) return;
  if constexpr (std::is_same_v<Op, ops::Attention> || std::is_same_v<Op, ops::Copy>) {
    if (const HeadsBuffer* memory = divided_memory(own)) return run_by_heads(own, *memory);
  }
  run_there(at_, own);
}

// Devices have different heads, of which nobody reads those of another: what they write lies apart.
void SplitEncoder::run_by_heads(ops::Attention op, const HeadsBuffer& memory) {
  const int64_t queries = op.q.dim(1) / memory.heads();  // of a head of keys
  for_each_operand(op, [&](std::string_view /*name*/, const Tensor& tensor) {
    if (divided(tensor) == nullptr) const_cast<Tensor&>(tensor) = copy_on(at_, tensor);
  });
  const auto record = [&](size_t part) {
    const HeadsBuffer::Piece& piece = memory.piece(part);
    if (piece.count == 0) return;
    ops::Attention own = op;
    own.out = op.out.slice(1, piece.begin * queries, piece.count * queries);
    own.q = op.q.slice(1, piece.begin * queries, piece.count * queries);
    own.k = op.k.slice(1, piece.begin, piece.count);
    own.v = op.v.slice(1, piece.begin, piece.count);
    if (!op.options.sinks.is_null()) {
      own.options.sinks = op.options.sinks.slice(0, piece.begin * queries, piece.count * queries);
    }
    own.sequences = head_pages_[part].take(part, op.sequences);
    if (part != at_) on(part).await(on(at_));
    run_there(part, own);
  };
  for (size_t i = 0; i < encoders_.size(); ++i) {
    if (i != at_) record(i);
  }
  record(at_);
  for (size_t i = 0; i < encoders_.size(); ++i) {
    if (i != at_ && memory.piece(i).count > 0) on(at_).await(on(i));
  }
}

// The device at hand awaits the others: what is kept alive there is kept for all.
void SplitEncoder::run_by_heads(const ops::Copy& op, const HeadsBuffer& memory) {
  for (size_t i = 0; i < encoders_.size(); ++i) {
    if (memory.piece(i).count == 0) continue;
    on(i).run(ops::Copy{memory.on(i, op.out), divided(op.x)->on(i, op.x)});
    if (i != at_) on(at_).await(on(i));
  }
}

std::span<const KvRows> SplitEncoder::HeadPages::take(size_t part, std::span<const KvRows> all) {
  size_t count = 0;
  for (const KvRows& s : all) count += s.kv.k_pages.size() + s.kv.v_pages.size();
  pages.clear();
  pages.reserve(count);
  sequences.assign(all.begin(), all.end());
  const auto own = [&](std::span<const Tensor> from) {
    for (const Tensor& page : from) pages.push_back(divided(page)->on(part, page));
    return std::span<const Tensor>(pages).last(from.size());
  };
  for (KvRows& s : sequences) {
    s.kv.k_pages = own(s.kv.k_pages);
    s.kv.v_pages = own(s.kv.v_pages);
  }
  return sequences;
}

// Rows of slots are of one expert each: nobody writes those of another.
void SplitEncoder::run_beside(size_t part, ops::ExpertFfn op) {
  if (!status_.ok()) return;
  Encoder& there = on(part);
  there.await(on(at_));
  for (const Tensor& input : {op.x, op.routes.ids}) {
    if (input.buffer->part != Buffer::kEachPart) continue;
    Tensor from = copy_on(at_, input);
    Tensor to = copy_on(part, input);
    from.dtype = to.dtype = DType::kF32;  // ids are words, too
    there.run(ops::Copy{to, from});
  }
  beside_.push_back(part);
  beside_slots_ = op.slots;
  op.slots = copy_on(at_, op.slots);
  run_there(part, op);
}

template <typename Op>
bool SplitEncoder::touches_beside(Op& op) const {
  bool touches = false;
  if (beside_.empty()) return touches;
  const size_t begin = beside_slots_.offset_bytes;
  for_each_operand(op, [&](std::string_view /*name*/, const Tensor& tensor) {
    touches = touches || (tensor.buffer == beside_slots_.buffer && tensor.offset_bytes >= begin &&
                          tensor.offset_bytes < begin + beside_slots_.size_bytes());
  });
  return touches;
}

void SplitEncoder::join() {
  for (const size_t part : std::exchange(beside_, {})) on(at_).await(on(part));
}

template <typename Op>
void SplitEncoder::run_there(size_t part, Op& own) {
  for_each_operand(own, [&](std::string_view /*name*/, const Tensor& tensor) {
    // A part of `own`: what lists of it lead to lies on one device.
    if (tensor.buffer->part == Buffer::kEachPart) {
      const_cast<Tensor&>(tensor) = copy_on(part, tensor);
    }
  });
  on(part).scratch_release(scratch_.mark());
  on(part).run(own);
}

void SplitEncoder::move_to(size_t part) {
  join();
  if (const size_t used = scratch_.mark(); used > 0) {
    const Tensor bytes =
        Tensor::view(scratch_.buffer(), 0, Shape{static_cast<int64_t>(used)}, DType::kU8);
    on(part).take(copy_on(part, bytes), on(at_), copy_on(at_, bytes));
    // A step of text reads the last device alone; resources kept alive here go with a later step.
    submit_part(at_);
  }
  at_ = part;
}

}  // namespace moeflux
